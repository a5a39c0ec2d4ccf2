//! The measurements, as text and as JSON.

use super::work::PARTS;
use super::{Results, Row};
use crate::figure::{Figure, rounded};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What ASAP adds at name servers according to the thesis, microseconds (§7.3).
const THESIS_US: f64 = 100.0;

const ROWS: [(Row, &str, &str); 9] = [
    (Row::Library, "library_plain", "ordinary query, the library alone"),
    (Row::Plain, "plain", "ordinary query"),
    (Row::LibraryFragment, "library_fragment", "fragment, the library alone"),
    (Row::Begins, "fragment_begins", "fragment that begins a set"),
    (Row::Waits, "fragment_waits", "fragment, others of its set are missing"),
    (Row::Open, "open", "HPKE opened, alone"),
    (Row::Relayed, "relayed", "first flight: 7 fragments, opened, sealed for the server"),
    (Row::Here, "here", "first flight: 7 fragments, opened for the server itself"),
    (Row::Received, "received", "relay datagram, at the server"),
];

impl Results {
    fn figure(&self, row: Row) -> Figure {
        Figure::new(self.each(row).to_vec())
    }

    fn median(&self, row: Row) -> f64 {
        self.figure(row).median()
    }

    /// Microseconds of as many ordinary queries as a first flight has fragments.
    fn queries(&self) -> f64 {
        PARTS as f64 * self.median(Row::Plain)
    }

    /// Microseconds of a first flight without the time to open it, and without the time of its queries.
    fn rest(&self, row: Row) -> f64 {
        self.median(row) - self.median(Row::Open) - self.queries()
    }
}

/// One JSON object.
pub fn json(results: &Results) -> String {
    let mut object = Map::new();
    let mut put = |name: String, value: Value| {
        object.insert(name, value);
    };
    put("bench".into(), json!("front"));
    put("quick".into(), json!(results.quick));
    put("rounds".into(), json!(results.rounds));
    put("fragments".into(), json!(PARTS));
    for (row, name, _) in ROWS {
        put(format!("{name}_us"), json!(rounded(results.median(row), 3)));
        put(format!("{name}_us_all_rounds"), json!(results.each(row)));
    }
    let ratio = |a, b| json!(rounded(results.median(a) / results.median(b), 3));
    put("ratio_plain_to_library".into(), ratio(Row::Plain, Row::Library));
    put("ratio_fragment_to_library".into(), ratio(Row::Waits, Row::LibraryFragment));
    for (row, name) in [(Row::Relayed, "relayed"), (Row::Here, "here")] {
        put(format!("{name}_beside_open_and_queries_us"), json!(rounded(results.rest(row), 2)));
    }
    put("ratio_relayed_to_thesis".into(), json!(rounded(results.median(Row::Relayed) / THESIS_US, 3)));
    Value::Object(object).to_string()
}

/// A table: median (minimum to maximum), microseconds of one core.
pub fn table(results: &Results) -> String {
    let mut out = format!("{:<58} {:>24}\n", "one core", "µs each");
    for (row, _, what) in ROWS {
        let figure = results.figure(row);
        let value = figure.spread(2);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{what:<58} {value:>24}");
    }
    let ratio = |a, b| results.median(a) / results.median(b);
    let _ = write!(
        out,
        "Against the library, which reads and writes the same message: {:.2} × (ordinary), {:.2} × (fragment).\nA first \
         flight costs {:.1} µs beside the query for the host: {:.1} µs to open it, {:.1} µs as {PARTS} ordinary \
         queries, {:.1} µs for the rest. The thesis: on the order of {THESIS_US} µs.\nA resolver handles {} queries for it instead of one; what \
         they cost it is not measured here.\n{} rounds in turn, median (least–most), CPU time of the one thread.",
        ratio(Row::Plain, Row::Library),
        ratio(Row::Waits, Row::LibraryFragment),
        results.median(Row::Relayed),
        results.median(Row::Open),
        results.queries(),
        results.rest(Row::Relayed),
        PARTS + 1,
        results.rounds
    );
    out
}
