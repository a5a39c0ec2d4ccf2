//! The report.

use super::ends::{ANSWER, REQUEST};
use super::flood::{Flood, HONEST, Outcome};
use super::{Results, Row};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

/// A measurement: its name in JSON and in the text, and what it is compared with.
type Line = (Row, &'static str, &'static str, Option<Row>);

const ROWS: [Line; 8] = [
    (Row::Seal, "seal", "sealed: digest and HPKE, without the ClientHello", None),
    (Row::Open, "open", "opened: HPKE, the ClientHello and its digest", None),
    (Row::RustlsServer, "rustls_server", "server, rustls alone", None),
    (Row::ClearServer, "clear_server", "server, Acceptor, in clear", Some(Row::RustlsServer)),
    (Row::SealedServer, "sealed_server", "server, Acceptor, sealed", Some(Row::RustlsServer)),
    (Row::RustlsClient, "rustls_client", "client, rustls alone", None),
    (Row::ClearClient, "clear_client", "client, Connector, in clear", Some(Row::RustlsClient)),
    (Row::SealedClient, "sealed_client", "client, Connector, sealed", Some(Row::RustlsClient)),
];

const COSTS: [Column<Results, Line>; 4] = [
    Column::text("", |_, (_, _, text, _)| (*text).into()),
    Column::json("row", |_, (_, name, ..)| (*name).into()),
    Column::new("µs each", "us", |results, (row, ..)| Cell::Range(results.figure(*row), 1)),
    Column::new("of rustls alone", "ratio_to_rustls", |results, (row, _, _, to)| {
        let ratio = |to: &Row| results.figure(*row).median() / results.figure(*to).median();
        to.as_ref().map(ratio).into()
    }),
];

/// A flood, the budget's name, and an outcome for each round.
type FloodRow = (Flood, &'static str, Vec<Outcome>);

const FLOODS: [Column<(), FloodRow>; 9] = [
    Column::new("flood", "flood", |(), (flood, ..)| flood.text().into()),
    Column::new("budget", "budget", |(), (_, budget, _)| (*budget).into()),
    Column::new("flood/s", "flood_per_s", |(), row| {
        Cell::Median(figure(row, |outcome| outcome.flood_per_s), 0)
    }),
    Column::new("openings/s", "openings_per_s", |(), row| {
        Cell::Median(figure(row, |outcome| outcome.openings_per_s), 0)
    }),
    Column::new("busy", "busy", |(), row| share(row, |outcome| outcome.busy)),
    Column::new("first flight", "honest_early", |(), row| share(row, |outcome| outcome.early)),
    Column::new("ordinary", "honest_ordinary", |(), row| share(row, |outcome| outcome.ordinary)),
    Column::new("late", "honest_late", |(), row| share(row, |outcome| outcome.late)),
    Column::new("waited, ms", "waited_ms", |(), row| {
        Cell::Median(figure(row, |outcome| outcome.waited_ms), 1)
    }),
];

fn figure((_, _, outcomes): &FloodRow, get: fn(&Outcome) -> f64) -> Figure {
    Figure::of(outcomes, get)
}

fn share(row: &FloodRow, get: fn(&Outcome) -> f64) -> Cell {
    Cell::Share(figure(row, get).median(), 0)
}

impl Results {
    fn figure(&self, row: Row) -> Figure {
        Figure::new(self.each(row).to_vec())
    }
}

/// Two tables.
pub fn report(results: &Results) -> Report {
    let costs = format!(
        "One core, X25519, a request of {} B and a response of {} B, {} rounds in turn: median (least–most), CPU time. Servers \
         send the response before the client's Finished, clients have read it and made theirs.",
        REQUEST.len(),
        ANSWER.len(),
        results.rounds
    );
    let floods = format!(
        "A server of one core under twice the flights that it can open, without credential blocks, and {HONEST} honest clients a \
         second, also without. Honest clients are answered after their first flight; after a REJECT, in ordinary TLS; or later \
         than 250 ms."
    );
    let facts =
        json!({ "bench": "seal", "quick": results.quick, "rounds": results.rounds, "honest_per_s": HONEST });
    Report::new(facts)
        .table("rows", Table::of(costs, &COSTS, results, &ROWS))
        .table("floods", Table::of(floods, &FLOODS, &(), &results.floods))
}
