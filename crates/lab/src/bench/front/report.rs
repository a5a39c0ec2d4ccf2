//! The report.

use super::work::PARTS;
use super::{Results, Row};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

/// What ASAP adds at name servers according to the thesis, microseconds (§7.3).
const THESIS_US: f64 = 100.0;

/// A measurement: its name in JSON and in the text.
type Line = (Row, &'static str, &'static str);

const ROWS: [Line; 9] = [
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

const COLUMNS: [Column<Results, Line>; 3] = [
    Column::text("one core", |_, (_, _, text)| (*text).into()),
    Column::json("row", |_, (_, name, _)| (*name).into()),
    Column::new("µs each", "us", |results, (row, ..)| Cell::Range(results.figure(*row), 2)),
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

/// Median (minimum to maximum), microseconds of one core.
pub fn report(results: &Results) -> Report {
    let ratio = |a, b| results.median(a) / results.median(b);
    let [plain, fragment] = [ratio(Row::Plain, Row::Library), ratio(Row::Waits, Row::LibraryFragment)];
    let notes = format!(
        "Against the library, which reads and writes the same message: {plain:.2} × (ordinary), {fragment:.2} × (fragment).\nA first \
         flight costs {:.1} µs beside the query for the host: {:.1} µs to open it, {:.1} µs as {PARTS} ordinary \
         queries, {:.1} µs for the rest. The thesis: on the order of {THESIS_US} µs.\nA resolver handles {} queries for it instead of one; what \
         they cost it is not measured here.",
        results.median(Row::Relayed),
        results.median(Row::Open),
        results.queries(),
        results.rest(Row::Relayed),
        PARTS + 1,
    );
    let facts = json!({
        "bench": "front", "quick": results.quick, "rounds": results.rounds, "fragments": PARTS,
        "ratio_plain_to_library": plain, "ratio_fragment_to_library": fragment,
        "relayed_beside_open_and_queries_us": results.rest(Row::Relayed),
        "here_beside_open_and_queries_us": results.rest(Row::Here),
        "ratio_relayed_to_thesis": results.median(Row::Relayed) / THESIS_US,
    });
    let title = format!("{} rounds in turn, median (least–most), CPU time of the one thread", results.rounds);
    Report::new(facts).table("rows", Table::of(title, &COLUMNS, results, &ROWS)).note(notes)
}
