//! The tables, as text and as JSON.

use super::measure::{Case, Results};
use super::way::{BEYOND, FAST_OPEN, HANDSHAKE, Way};
use super::{Pages, RTTS, Window};
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
pub fn paper(stands_for: &str, rtt: u64) -> Option<(f64, f64)> {
    let (_, times) = PAPER.iter().find(|(name, _)| *name == stands_for)?;
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
        "page load times, seconds: 4 Mbit/s down, {} kbit/s up, 128 KB buffers, MTU 1500; {} loads, seed {}",
        options.up,
        options.loads(),
        options.seed,
    );
    table(&mut out, results);
    notes(&mut out, results);
    for page in (0..results.pages.len()).filter(|page| results.goes_beyond(*page)) {
        beyond(&mut out, results, page);
    }
    out.push_str(
        "\nASAP inside the lookup: 80 of the 450 B of each host's first request travel in 7 names (833 B) beside the \
         question for the address;\nthe server acts on them, and the others follow its answer; resolver and name \
         servers are at the servers\ngain: what is saved of the time without; in the last tables, of the time of the \
         row that a row is compared with",
    );
    out
}

fn table(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "\n{:<39}{:>22}{:>24}{:>24}\n{:<34}{:>5}{}",
        "",
        "the paper",
        "ours, 3 segments",
        "ours, 10 segments",
        "page",
        "RTT",
        "   plain    TFO   gain".repeat(3).replacen("   plain", "  plain", 1),
    );
    for (page, described) in results.pages.iter().enumerate() {
        for rtt in RTTS {
            let name = if rtt == RTTS[0] {
                format!("{}; {}", described.name, described.stands_for)
            } else {
                String::new()
            };
            let _ = write!(out, "{name:<34}{rtt:>5}");
            let ours = |window| {
                let case = |way| results.seconds(Case { page, rtt, window, way });
                case(HANDSHAKE).zip(case(FAST_OPEN))
            };
            let columns = [paper(described.stands_for, rtt), ours(Window::Then), ours(Window::Now)];
            for (at, times) in columns.into_iter().enumerate() {
                let (plain, fast) = times.unwrap_or((f64::NAN, f64::NAN));
                let width = if at == 0 { 7 } else { 8 };
                let _ = write!(out, "{plain:>width$.2}{fast:>7.2}{:>5.1} %", saved((plain, fast)));
            }
            out.push('\n');
        }
    }
}

fn notes(out: &mut String, results: &Results) {
    out.push('\n');
    for (page, described) in results.pages.iter().enumerate() {
        let case = Case { page, rtt: 100, window: Window::Now, way: HANDSHAKE };
        let connections = results.mean(case, |load| load.counts.connections as f64).unwrap_or(f64::NAN);
        let _ = writeln!(
            out,
            "{}: {} resources on {} hosts, {} KB; at 100 ms {:.1} connections with {:.1} requests each",
            described.name,
            described.resources.len(),
            described.hosts,
            described.bytes() / 1000,
            connections,
            described.resources.len() as f64 / connections,
        );
    }
    let deviations = results.cases().filter_map(|case| results.deviation(*case)).fold(0.0, f64::max);
    let dropped: f64 =
        results.cases().filter_map(|case| results.mean(*case, |load| load.dropped as f64)).sum();
    let _ = writeln!(
        out,
        "largest standard deviation {:.1} %; packets dropped by full buffers, in one load of every case {dropped:.1}",
        deviations * 100.0
    );
}

fn beyond(out: &mut String, results: &Results, page: usize) {
    let _ = writeln!(
        out,
        "\n{}, beyond the paper, 10 segments\n{:<31}{}  compared with",
        results.pages[page].name,
        "",
        RTTS.map(|rtt| format!("{:>18}", format!("{rtt} ms: s   gain"))).concat(),
    );
    let mut before = None;
    let line = |out: &mut String, way: Way, over: Option<Way>| {
        let _ = write!(out, "{:<31}", way.name);
        for rtt in RTTS {
            let case = Case { page, rtt, window: Window::Now, way };
            let seconds = results.seconds(case).unwrap_or(f64::NAN);
            let gain = over.and_then(|over| results.gain(case, over));
            let gain = gain.map_or_else(String::new, |gain| format!("{gain:.1} %"));
            let _ = write!(out, "{seconds:>10.2}{gain:>8}");
        }
        let _ = writeln!(out, "{}", over.map_or_else(String::new, |over| format!("  {}", over.name)));
    };
    for (way, over) in BEYOND {
        if before != Some(over) {
            line(out, over, None);
            if over == HANDSHAKE {
                line(out, FAST_OPEN, Some(HANDSHAKE));
            }
            before = Some(over);
        }
        line(out, way, Some(over));
    }
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
            "dropped": mean(|load| load.dropped as f64),
            "by_lookup": mean(|load| load.by_lookup as f64),
            "paper_s": match (paper, case.way) {
                (Some((plain, _)), HANDSHAKE) => Some(plain),
                (Some((_, fast)), FAST_OPEN) => Some(fast),
                _ => None,
            },
        })
    });
    json!({ "seed": options.seed, "loads": options.loads(), "up_kbit": options.up, "cases": cases.collect::<Vec<_>>() })
}
