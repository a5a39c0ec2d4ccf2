//! The experiment's figures, as text and as JSON.

use super::nodes::Nodes;
use super::{FIRST_BYTE, Lookup, Model, RequestWay, ResolverCase, Resolving, Time, Trial, WHOLE};
use crate::figure::Figure;
use serde_json::json;
use std::fmt::Write;

pub fn ratios(trials: &[Trial], case: ResolverCase, way: RequestWay, time: Time) -> Figure {
    Figure::new(trials.iter().filter(|trial| trial.case == case).filter_map(|trial| trial.ratio(way, time)))
}

/// A table for each case.
pub fn table(trials: &[Trial], options: &Lookup, nodes: &Nodes) -> String {
    let mut out = String::new();
    let Lookup { seed, size, loss, .. } = options;
    let (count, (least, most)) = (nodes.count(), nodes.range());
    let window = match options.initial_window {
        10 => String::new(),
        segments => format!(", initial window {segments}"),
    };
    let _ = writeln!(
        out,
        "a page of {size} B, {count} nodes with round-trip times of {least:.0} to {most:.0} ms{window}, seed {seed}; {}",
        match options.resolver {
            Resolving::Honest => "an honest resolver",
            Resolving::Strips => "a resolver that takes requests out of names",
            Resolving::Rewrites => "a resolver that replaces octets of names",
        }
    );
    let (shorter, fifth) = nodes.detours();
    let _ = write!(out, "detours shorter than the direct path for {:.0} % of the pairs", shorter * 100.0);
    let _ = write!(out, ", by a fifth or more for {:.0} %", fifth * 100.0);
    let jitter = humantime::format_duration(options.jitter);
    let _ = match options.model {
        Model::Plane => writeln!(out, "; nothing lost or late"),
        Model::Internet => {
            writeln!(out, "; {loss} % of the packets lost each way, {jitter} later in the mean")
        }
    };
    for case in ResolverCase::ALL {
        let mine: Vec<&Trial> = trials.iter().filter(|trial| trial.case == case).collect();
        let _ = writeln!(
            out,
            "\n({}) {case}: {} pairs\n{:<40}{:>14}{:>9}{:>7}{:>10}{:>9}{:>7}{:>7}{:>7}{:>11}{:>10}",
            case.letter(),
            mine.len(),
            "",
            "first byte, ms",
            "ratio",
            "best",
            "page, ms",
            "ratio",
            "best",
            "10 %",
            "90 %",
            "by lookup",
            "executed"
        );
        for way in RequestWay::ALL {
            line(&mut out, trials, case, way);
        }
    }
    out.push_str(
        "times and ratios: medians; ratio: time as a share of that of the first line, its least, and what a tenth and \
         nine tenths are below\nby lookup: that copy was the first at the server",
    );
    out
}

fn line(out: &mut String, trials: &[Trial], case: ResolverCase, way: RequestWay) {
    let pages: Vec<_> =
        trials.iter().filter(|trial| trial.case == case).filter_map(|trial| trial.of(way)).collect();
    let ms = |time: Time| Figure::new(pages.iter().map(|page| time(page).as_secs_f64() * 1e3)).quantile(0.5);
    let (first, whole) = (ratios(trials, case, way, FIRST_BYTE), ratios(trials, case, way, WHOLE));
    let by_lookup = pages.iter().filter(|page| page.by_lookup).count();
    let executed = pages.iter().map(|page| page.executed).max().unwrap_or(0);
    let share = if way.inside() {
        format!("{:.0} %", 100.0 * by_lookup as f64 / pages.len() as f64)
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "  {:<38}{:>14.1}{:>9.2}{:>7.2}{:>10.1}{:>9.2}{:>7.2}{:>7.2}{:>7.2}{share:>11}{executed:>10}",
        way.as_str(),
        ms(FIRST_BYTE),
        first.quantile(0.5),
        first.min(),
        ms(WHOLE),
        whole.quantile(0.5),
        whole.min(),
        whole.quantile(0.1),
        whole.quantile(0.9),
    );
}

/// Every page.
pub fn json(trials: &[Trial], options: &Lookup) -> String {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let trials: Vec<_> = trials
        .iter()
        .map(|trial| {
            let distances = &trial.distances;
            let pages: Vec<_> = trial
                .pages
                .iter()
                .map(|page| {
                    json!({
                        "way": page.way.as_str(), "first_byte_ms": ms(page.first_byte), "total_ms": ms(page.total),
                        "first_byte_ratio": trial.ratio(page.way, FIRST_BYTE), "ratio": trial.ratio(page.way, WHOLE), "by_lookup": page.by_lookup, "executed": page.executed,
                    })
                })
                .collect();
            json!({
                "case": trial.case.letter().to_string(), "rtt_ms": ms(distances.server),
                "resolver_ms": ms(distances.resolver), "front_ms": ms(distances.front),
                "relay_ms": ms(distances.relay), "pages": pages,
            })
        })
        .collect();
    let internet = (options.model == Model::Internet)
        .then(|| json!({ "jitter_ms": ms(options.jitter), "loss_percent": options.loss }));
    json!({
        "seed": options.seed, "size": options.size, "initial_window": options.initial_window,
        "rtts": options.rtts.as_ref().map(|path| path.display().to_string()), "internet": internet,
        "resolver": format!("{:?}", options.resolver).to_lowercase(), "trials": trials,
    })
    .to_string()
}
