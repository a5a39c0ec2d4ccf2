//! The table as text and as JSON.

use super::{Compare, REQUEST, RESPONSE, Row, Source};
use crate::figure::rounded;
use serde_json::{Value, json};
use std::fmt::Write;

/// A number, or the word in its place.
fn cell(value: Option<f64>, digits: usize, word: &str) -> String {
    value.map_or_else(|| word.into(), |value| format!("{value:.digits$}"))
}

/// Two tables: numbers, and words.
pub fn table(all: &[Row], options: &Compare) -> String {
    let mut out = format!(
        "round-trip time {} ms, request {} B, response {RESPONSE} B, seed {}, hits {}, requests {}\n\n",
        options.rtt,
        REQUEST.len(),
        options.seed,
        options.hits,
        options.requests
    );
    let _ = writeln!(
        out,
        "{:<30}{:>7}{:>7}{:>12}{:>12}{:>12}{:>12}{:>9}  source",
        "", "first", "later", "blind", "stolen", "memory", "copies", "moved"
    );
    for row in all {
        let (numbers, words) = (&row.numbers, &row.words);
        let source = match row.source {
            Source::Run(by) => format!("run: {by}"),
            Source::Assertion(by) => format!("assertion: {by}"),
            Source::Formula(formula) => format!("formula: {formula}"),
        };
        let _ = writeln!(
            out,
            "{:<30}{:>7}{:>7}{:>12}{:>12}{:>12}{:>12}{:>9}  {source}",
            row.name,
            cell(numbers.first, 2, ""),
            cell(numbers.later, 2, ""),
            cell(numbers.blind, 1, words.blind),
            cell(numbers.stolen, 1, words.stolen),
            cell(numbers.memory, 0, words.memory),
            cell(numbers.replayed.map(f64::from), 0, words.copies),
            cell(numbers.moved, 2, words.moved),
        );
    }
    out.push_str(
        "first, later: round trips to the first byte of the response, at first and at later contact, from the known \
         address\nblind, stolen: bytes that a victim gets for each byte of a first flight in its name, from an attacker \
         without its credential and with it\nmemory: bytes that the server keeps for each such first flight \
         (blind)\ncopies: executions of a first flight that is sent again twice, 1 s and 101 s after it was \
         over\nmoved: round trips of a new connection from another network\nnone: there is no credential to \
         steal\nas …: as in that row, TFO for Fast Open, encapsulation for the SYN that carries it; as blind: a credential \
         changes nothing\nnot stated: neither paper says, and there is nothing to run; attack dns: numbers by that \
         command (docs/dns-attacks.md)\n\n",
    );
    let _ = writeln!(out, "{:<30}an observer can link; a move costs beside `moved`; what is left out", "");
    for row in all {
        let _ = writeln!(out, "{:<30}links: {}", row.name, row.links);
        let _ = writeln!(out, "{:<30}move: {}", "", row.moving);
        if !row.leaves_out.is_empty() {
            let _ = writeln!(out, "{:<30}left out: {}", "", row.leaves_out);
        }
    }
    out.trim_end().to_owned()
}

/// The words under the names of the numbers in whose place they are.
fn words(row: &Row) -> Value {
    let words = &row.words;
    let all = [
        ("reflected_blind", words.blind),
        ("reflected_stolen", words.stolen),
        ("memory_bytes", words.memory),
        ("copies_executed", words.copies),
        ("moved_rtt", words.moved),
    ];
    all.into_iter().filter(|(_, word)| !word.is_empty()).collect()
}

/// Every row.
pub fn json(all: &[Row], options: &Compare) -> String {
    let value = |value: Option<f64>| value.map(|value| rounded(value, 3));
    let one = |row: &Row| {
        let numbers = &row.numbers;
        let (source, by) = match row.source {
            Source::Run(by) => ("run", by),
            Source::Assertion(by) => ("assertion", by),
            Source::Formula(formula) => ("formula", formula),
        };
        json!({
            "name": row.name, "source": source, "by": by, "first_rtt": value(numbers.first),
            "later_rtt": value(numbers.later), "reflected_blind": value(numbers.blind),
            "reflected_stolen": value(numbers.stolen), "memory_bytes": value(numbers.memory),
            "copies_executed": numbers.replayed, "moved_rtt": value(numbers.moved), "words": words(row),
            "links": row.links, "moving": row.moving, "leaves_out": row.leaves_out,
        })
    };
    let rows: Vec<Value> = all.iter().map(one).collect();
    json!({ "seed": options.seed, "rtt_ms": options.rtt, "hits": options.hits, "requests": options.requests, "rows": rows })
        .to_string()
}
