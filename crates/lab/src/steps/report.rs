//! The report.

use super::Times;
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

const COLUMNS: [Column<(), Times>; 6] = [
    Column::new("", "step", |(), times| times.step.name().into()),
    Column::new("median", "us", |(), times| Cell::Median(times.figure(), 1)),
    Column::new("mean", "mean_us", |(), times| Cell::Number(times.figure().mean(), 1)),
    Column::new("95 %", "p95_us", |(), times| Cell::Number(times.figure().quantile(0.95), 1)),
    Column::new("99 %", "p99_us", |(), times| Cell::Number(times.figure().quantile(0.99), 1)),
    Column::new("the thesis", "thesis", |(), times| times.step.thesis().into()),
];

impl Times {
    fn figure(&self) -> Figure {
        Figure::new(self.us.iter().copied())
    }
}

/// One line for each step.
pub fn report(all: &[Times]) -> Report {
    let count = all.first().map_or(0, |times| times.us.len());
    let title = format!("{count} trials of each step, CPU time of one thread on this machine, µs");
    Report::new(json!({ "clock": "CPU time of one thread" }))
        .table("steps", Table::of(title, &COLUMNS, &(), all))
        .note(
            "the thesis: RSA-1024 for certificates and RSA-512 for requests, in OpenSSL 1.0.0c on a Core 2 Quad Q9550 at \
             2.83 GHz; here Ed25519",
        )
}
