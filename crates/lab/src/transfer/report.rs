//! The figures as text and as JSON.

use super::{Results, Times, Transfer, TransferWay, trials};
use crate::figure::{Figure, rounded};
use serde_json::{Value, json};
use std::fmt::Write;

fn figure(times: &Times) -> Figure {
    Figure::new(times.ms.iter().copied())
}

/// The difference of the medians of TCP's handshake and of `times`, ms.
fn saved(ways: &[Times], times: &Times) -> f64 {
    let handshake = ways.iter().find(|times| times.way == TransferWay::Handshake);
    handshake.map_or(f64::NAN, |first| figure(first).median() - figure(times).median())
}

/// A table for (a), and one for (b).
pub fn table(results: &Results, options: &Transfer) -> String {
    let (many, few) = trials(options);
    let Transfer { size, seed, initial_window, .. } = options;
    let [rtt, jitter, rto] =
        [options.rtt, options.jitter, options.initial_rto].map(humantime::format_duration);
    let mut out = format!(
        "round-trip time {rtt}, jitter up to {jitter} each way, initial window {initial_window} segments (like UDT: \
         16), first timeout {rto}, seed {seed}\n\n(a) {size} B, {many} trials, ms\n"
    );
    let _ = writeln!(
        out,
        "{:>6}  {:<12}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}",
        "loss %", "", "median", "mean", "10 %", "90 %", "95 %", "99 %", "saved", "failed"
    );
    for (loss, ways) in &results.losses {
        for times in ways {
            let figure = figure(times);
            let mean = times.ms.iter().sum::<f64>() / times.ms.len() as f64;
            let _ = write!(out, "{loss:>6}  {:<12}{:>9.1}{mean:>9.1}", times.way.name(), figure.median());
            for share in [0.1, 0.9, 0.95, 0.99] {
                let _ = write!(out, "{:>9.1}", figure.quantile(share));
            }
            let _ = writeln!(out, "{:>8.1}{:>8}", saved(ways, times), times.failed);
        }
    }
    let _ = write!(out, "\n(b) no loss, medians of {few} trials, ms\n{:>6}", "KB");
    for way in TransferWay::ALL {
        let _ = write!(out, "{:>12}", way.name());
    }
    out.push('\n');
    for (kb, ways) in &results.sizes {
        let _ = write!(out, "{kb:>6}");
        for times in ways {
            let _ = write!(out, "{:>12.1}", figure(times).median());
        }
        out.push('\n');
    }
    out.push_str(
        "saved: the median of the handshake's times less that of this way\nlike UDT: UDT's round trips and initial \
         window, with TCP's recovery and congestion control (UDT has its own)",
    );
    out
}

/// Every time.
pub fn json(results: &Results, options: &Transfer) -> String {
    let ways = |ways: &[Times]| -> Vec<Value> {
        let one = |times: &Times| {
            let ms: Vec<f64> = times.ms.iter().map(|ms| rounded(*ms, 3)).collect();
            json!({
                "way": times.way.name(), "median_ms": rounded(figure(times).median(), 3),
                "saved_ms": rounded(saved(ways, times), 3), "failed": times.failed, "ms": ms,
            })
        };
        ways.iter().map(one).collect()
    };
    let losses: Vec<Value> =
        results.losses.iter().map(|(loss, all)| json!({ "loss_percent": loss, "ways": ways(all) })).collect();
    let sizes: Vec<Value> =
        results.sizes.iter().map(|(kb, all)| json!({ "kb": kb, "ways": ways(all) })).collect();
    let ms = |time: std::time::Duration| rounded(time.as_secs_f64() * 1e3, 3);
    json!({
        "seed": options.seed, "rtt_ms": ms(options.rtt), "jitter_ms": ms(options.jitter), "size": options.size,
        "initial_window": options.initial_window, "initial_rto_ms": ms(options.initial_rto),
        "losses": losses, "sizes": sizes,
    })
    .to_string()
}
