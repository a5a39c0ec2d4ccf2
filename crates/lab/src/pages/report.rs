//! The tables, as text and as JSON.

use super::RTTS;
use super::measure::{Results, TableCell};
use super::options::{Pages, Window};
use super::page::Page;
use super::way::{ASAP_INSIDE, FAST_OPEN, HANDSHAKE, LoadWay, PRECONNECT};
use serde_json::{Value, json};
use std::fmt::Write;

/// The paper's Table 1: page, then plain and Fast Open in seconds at 20, 100 and 200 ms.
const PAPER: [(&str, [(f64, f64); 3]); 4] = [
    ("amazon.com", [(1.54, 1.48), (2.60, 2.34), (4.10, 3.66)]),
    ("nytimes.com", [(3.70, 3.56), (4.59, 4.30), (6.73, 5.55)]),
    ("wsj.com", [(5.74, 5.48), (7.08, 6.60), (9.46, 8.47)]),
    ("TCP wikipedia page", [(2.10, 1.95), (3.49, 2.92), (5.15, 3.03)]),
];

/// The paper's two times, seconds.
pub fn paper(stands_for: Option<&str>, rtt: u64) -> Option<(f64, f64)> {
    let (_, times) = PAPER.iter().find(|(name, _)| Some(*name) == stands_for)?;
    times.get(RTTS.iter().position(|other| *other == rtt)?).copied()
}

/// What the second time saves of the first, per cent.
pub fn saved((before, after): (f64, f64)) -> f64 {
    (1.0 - after / before) * 100.0
}

/// All tables.
pub fn text(options: &Pages, results: &Results) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "page load times, seconds: {}, {}; {} loads, seed {}",
        options.line(),
        options.congestion,
        options.loads(),
        options.seed,
    );
    if !options.columns().is_empty() {
        table(&mut out, options, results);
    }
    notes(&mut out, options, results);
    for page in 0..results.pages.len() {
        let rows = options.rows(page);
        if !rows.is_empty() {
            beyond(&mut out, options, results, page, &rows);
        }
    }
    preconnect(&mut out, options, results);
    if results.cases().any(|case| case.way == ASAP_INSIDE) {
        let _ = write!(
            out,
            "\nASAP inside the lookup: 80 of the {} B of each host's first request travel in 7 names (833 B) beside the \
             question for the address;\nthe server acts on them, and the others follow its answer; resolver and name \
             servers are at the servers",
            options.request,
        );
    }
    out.push_str(
        "\ngain: what is saved of the time without; in the last tables, of the time of the row that a row is compared \
         with",
    );
    out
}

fn table(out: &mut String, options: &Pages, results: &Results) {
    let paper_has = |page: &Page| options.rtt.iter().any(|rtt| paper(page.stands_for, *rtt).is_some());
    let with_paper = results.pages.iter().any(paper_has);
    let names: Vec<String> = results.pages.iter().map(title).collect();
    let width = names.iter().map(|name| name.chars().count()).fold(34, usize::max);
    let _ = write!(out, "\n{:<width$}{:5}", "", "");
    let mut gap = 22;
    let mut head = |out: &mut String, name: &str| {
        let _ = write!(out, "{name:>gap$}");
        gap = 24;
    };
    if with_paper {
        head(out, "the paper");
    }
    options.initial_window.iter().for_each(|window| head(out, &format!("ours, {window}")));
    let columns = options.initial_window.len() + usize::from(with_paper);
    let titles = "   plain    TFO   gain".repeat(columns).replacen("   plain", "  plain", 1);
    let _ = writeln!(out, "\n{:<width$}{:>5}{titles}", "page", "RTT");
    for (page, (described, name)) in results.pages.iter().zip(&names).enumerate() {
        for (line, rtt) in options.rtt.iter().copied().enumerate() {
            let _ = write!(out, "{:<width$}{rtt:>5}", if line == 0 { name.as_str() } else { "" });
            let ours = |window: &Window| {
                let case = |way| results.seconds(TableCell { page, rtt, window: *window, way });
                case(HANDSHAKE).zip(case(FAST_OPEN))
            };
            let papers = with_paper.then(|| paper(described.stands_for, rtt));
            let columns = papers.into_iter().chain(options.initial_window.iter().map(ours));
            for (at, times) in columns.enumerate() {
                let width = if at == 0 { 7 } else { 8 };
                let _ = match times {
                    Some((plain, fast)) => {
                        write!(out, "{plain:>width$.2}{fast:>7.2}{:>5.1} %", saved((plain, fast)))
                    }
                    None => write!(out, "{:>width$}{:>7}{:>7}", "-", "-", "-"),
                };
            }
            out.push('\n');
        }
    }
}

fn title(page: &Page) -> String {
    match page.stands_for {
        Some(other) => format!("{}; {other}", page.name),
        None => page.name.clone(),
    }
}

fn notes(out: &mut String, options: &Pages, results: &Results) {
    out.push('\n');
    let rtt = options.rtt.iter().copied().find(|rtt| *rtt == 100).or(options.rtt.last().copied());
    let (rtt, window) = (rtt.unwrap_or(100), last(options));
    for (page, described) in results.pages.iter().enumerate() {
        let way = options.rows(page).first().map_or(HANDSHAKE, |(_, over)| *over);
        let case = TableCell { page, rtt, window, way };
        let connections = results.mean(case, |load| load.counts.connections as f64).unwrap_or(f64::NAN);
        let _ = writeln!(
            out,
            "{}: {} resources on {} hosts, {} KB; at {rtt} ms {:.1} connections with {:.1} requests each",
            described.name,
            described.resources.len(),
            described.hosts,
            described.bytes() / 1000,
            connections,
            described.resources.len() as f64 / connections,
        );
    }
    let deviation = largest_deviation(results, |case| case.way == HANDSHAKE || case.way == FAST_OPEN);
    let dropped: f64 =
        results.cases().filter_map(|case| results.mean(*case, |load| load.dropped as f64)).sum();
    let _ = writeln!(
        out,
        "{deviation} in the table above; packets dropped by full buffers, in one load of every case {dropped:.1}"
    );
}

/// The largest standard deviation of the loads of these cases.
fn largest_deviation(results: &Results, of: impl Fn(&TableCell) -> bool) -> String {
    let deviations = results.cases().filter(|case| of(case)).filter_map(|case| results.deviation(*case));
    format!("largest standard deviation {:.1} %", deviations.fold(0.0, f64::max) * 100.0)
}

/// What PRECONNECT opens for nothing.
fn preconnect(out: &mut String, options: &Pages, results: &Results) {
    let cases: Vec<&TableCell> = results.cases().filter(|case| case.way == PRECONNECT).collect();
    let Some(rtt) = cases.iter().map(|case| case.rtt).max() else { return };
    let _ = write!(
        out,
        "\nPRECONNECT: {:.0} % of the guesses right; connections that carry nothing:",
        options.hits * 100.0
    );
    for case in cases.into_iter().filter(|case| case.rtt == rtt) {
        let unused = results.mean(*case, |load| load.unused() as f64).unwrap_or(f64::NAN);
        let all = results.mean(*case, |load| load.counts.connections as f64).unwrap_or(f64::NAN);
        let _ = write!(out, " {unused:.1} of {all:.1} ({}, {rtt} ms)", results.pages[case.page].name);
    }
}

/// The initial window of the rows beyond the paper.
fn last(options: &Pages) -> Window {
    options.initial_window.last().copied().unwrap_or(Window::NOW)
}

fn beyond(out: &mut String, options: &Pages, results: &Results, page: usize, rows: &[(LoadWay, LoadWay)]) {
    let window = last(options);
    let heads = options.rtt.iter().map(|rtt| format!("{:>18}", format!("{rtt} ms: s   gain")));
    let _ = writeln!(
        out,
        "\n{}, {}{window}\n{:<31}{}  compared with",
        results.pages[page].name,
        if options.row.is_empty() { "beyond the paper, " } else { "" },
        "",
        heads.collect::<String>(),
    );
    let mut before = None;
    let line = |out: &mut String, way: LoadWay, over: Option<LoadWay>| {
        let _ = write!(out, "{:<31}", way.name);
        for rtt in options.rtt.iter().copied() {
            let case = TableCell { page, rtt, window, way };
            let seconds = results.seconds(case).unwrap_or(f64::NAN);
            let gain = over.and_then(|over| results.gain(case, over));
            let gain = gain.map_or_else(String::new, |gain| format!("{gain:.1} %"));
            let _ = write!(out, "{seconds:>10.2}{gain:>8}");
        }
        let _ = writeln!(out, "{}", over.map_or_else(String::new, |over| format!("  {}", over.name)));
    };
    for (way, over) in rows.iter().copied() {
        if before != Some(over) {
            line(out, over, None);
            if over == HANDSHAKE && options.row.is_empty() {
                line(out, FAST_OPEN, Some(HANDSHAKE));
            }
            before = Some(over);
        }
        if way != over {
            line(out, way, Some(over));
        }
    }
    let shown = |way: LoadWay| rows.iter().any(|(row, over)| *row == way || *over == way);
    let of = |case: &TableCell| case.page == page && case.window == window && shown(case.way);
    let _ = writeln!(out, "{}", largest_deviation(results, of));
}

/// Every case with its mean time, and the paper's.
pub fn json(options: &Pages, results: &Results) -> Value {
    let cases = results.cases().map(|case| {
        let page = &results.pages[case.page];
        let mean = |value: fn(&super::world::Load) -> f64| results.mean(*case, value);
        let paper = paper(page.stands_for, case.rtt);
        json!({
            "page": page.name,
            "rtt_ms": case.rtt,
            "initial_window": case.window.setting().to_string(),
            "way": case.way.name,
            "seconds": results.seconds(*case),
            "deviation": results.deviation(*case),
            "connections": mean(|load| load.counts.connections as f64),
            "requests": mean(|load| load.counts.requests as f64),
            "lookups": mean(|load| load.counts.lookups as f64),
            "packets_up": mean(|load| load.sent as f64),
            "unused_connections": mean(|load| load.unused() as f64),
            "dropped": mean(|load| load.dropped as f64),
            "by_lookup": mean(|load| load.by_lookup as f64),
            "paper_s": match (paper, case.way) {
                (Some((plain, _)), HANDSHAKE) => Some(plain),
                (Some((_, fast)), FAST_OPEN) => Some(fast),
                _ => None,
            },
        })
    });
    json!({
        "seed": options.seed,
        "loads": options.loads(),
        "down_kbit": options.down,
        "up_kbit": options.up,
        "buffer_bytes": options.buffer * 1024,
        "mtu": options.mtu,
        "loss_percent": options.loss,
        "congestion": options.congestion.name(),
        "cases": cases.collect::<Vec<_>>(),
    })
}
