//! The report.

use super::{Compare, REQUEST, RESPONSE, Row, Source};
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;
use std::fmt::Write;

const COLUMNS: [Column<(), Row>; 14] = [
    Column::new("", "name", |(), row| row.name.into()),
    Column::new("first", "first_rtt", |(), row| or(row.numbers.first, 2, "")),
    Column::new("later", "later_rtt", |(), row| or(row.numbers.later, 2, "")),
    Column::new("blind", "reflected_blind", |(), row| or(row.numbers.blind, 1, row.words.blind)),
    Column::new("stolen", "reflected_stolen", |(), row| or(row.numbers.stolen, 1, row.words.stolen)),
    Column::new("memory", "memory_bytes", |(), row| or(row.numbers.memory, 0, row.words.memory)),
    Column::new("copies", "copies_executed", |(), row| {
        or(row.numbers.replayed.map(f64::from), 0, row.words.copies)
    }),
    Column::new("moved", "moved_rtt", |(), row| or(row.numbers.moved, 2, row.words.moved)),
    Column::text("source", |(), row| format!("{}: {}", source(row).0, source(row).1).into()),
    Column::json("source", |(), row| source(row).0.into()),
    Column::json("by", |(), row| source(row).1.into()),
    Column::json("links", |(), row| row.links.into()),
    Column::json("moving", |(), row| row.moving.into()),
    Column::json("leaves_out", |(), row| row.leaves_out.into()),
];

/// A number, or the word in its place.
fn or(value: Option<f64>, digits: usize, word: &str) -> Cell {
    value.map_or_else(|| word.into(), |value| Cell::Number(value, digits))
}

fn source(row: &Row) -> (&'static str, &'static str) {
    match row.source {
        Source::Run(by) => ("run", by),
        Source::Assertion(by) => ("assertion", by),
        Source::Formula(formula) => ("formula", formula),
    }
}

/// Numbers, and words.
pub fn report(all: &[Row], options: &Compare) -> Report {
    let title = format!(
        "round-trip time {} ms, request {} B, response {RESPONSE} B, seed {}, hits {}, requests {}",
        options.rtt,
        REQUEST.len(),
        options.seed,
        options.hits,
        options.requests
    );
    let mut words =
        format!("{:<30}an observer can link; a move costs beside `moved`; what is left out\n", "");
    for row in all {
        // Writing to a string cannot fail.
        let _ = writeln!(words, "{:<30}links: {}\n{:<30}move: {}", row.name, row.links, "", row.moving);
        if !row.leaves_out.is_empty() {
            let _ = writeln!(words, "{:<30}left out: {}", "", row.leaves_out);
        }
    }
    Report::new(json!({ "seed": options.seed, "rtt_ms": options.rtt, "hits": options.hits, "requests": options.requests }))
        .table("rows", Table::of(title, &COLUMNS, &(), all))
        .note(
        "first, later: round trips to the first byte of the response, at first and at later contact, from the known \
         address\nblind, stolen: bytes that a victim gets for each byte of a first flight in its name, from an attacker \
         without its credential and with it\nmemory: bytes that the server keeps for each such first flight \
         (blind)\ncopies: executions of a first flight that is sent again twice, 1 s and 101 s after it was \
         over\nmoved: round trips of a new connection from another network\nnone: there is no credential to \
         steal\nas …: as in that row, TFO for Fast Open, encapsulation for the SYN that carries it; as blind: a credential \
         changes nothing\nnot stated: neither paper says, and there is nothing to run; attack dns: numbers by that \
         command (docs/dns-attacks.md)",
        )
        .note(words)
}
