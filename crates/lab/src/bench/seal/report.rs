//! The measurements, as text and as JSON.

use super::ends::{ANSWER, REQUEST};
use super::flood::{HONEST, Outcome};
use super::{Results, Row};
use crate::figure::{Figure, rounded};
use crate::table::Table;
use serde_json::{Map, Value, json};

const ROWS: [(Row, &str, &str, Option<Row>); 8] = [
    (Row::Seal, "seal", "sealed: digest and HPKE, without the ClientHello", None),
    (Row::Open, "open", "opened: HPKE, the ClientHello and its digest", None),
    (Row::RustlsServer, "rustls_server", "server, rustls alone", None),
    (Row::ClearServer, "clear_server", "server, Acceptor, in clear", Some(Row::RustlsServer)),
    (Row::SealedServer, "sealed_server", "server, Acceptor, sealed", Some(Row::RustlsServer)),
    (Row::RustlsClient, "rustls_client", "client, rustls alone", None),
    (Row::ClearClient, "clear_client", "client, Connector, in clear", Some(Row::RustlsClient)),
    (Row::SealedClient, "sealed_client", "client, Connector, sealed", Some(Row::RustlsClient)),
];

/// A figure of a flood's outcome.
type Get = fn(&Outcome) -> f64;

const FLOOD: [(&str, Get); 7] = [
    ("flood_per_s", |outcome| outcome.flood_per_s),
    ("openings_per_s", |outcome| outcome.openings_per_s),
    ("busy", |outcome| outcome.busy),
    ("honest_early", |outcome| outcome.early),
    ("honest_ordinary", |outcome| outcome.ordinary),
    ("honest_late", |outcome| outcome.late),
    ("waited_ms", |outcome| outcome.waited_ms),
];

impl Results {
    fn figure(&self, row: Row) -> Figure {
        Figure::new(self.each(row).to_vec())
    }

    fn ratio(&self, row: Row, to: Row) -> f64 {
        self.figure(row).median() / self.figure(to).median()
    }
}

fn median(outcomes: &[Outcome], get: Get) -> f64 {
    Figure::new(outcomes.iter().map(get)).median()
}

/// One JSON object.
pub fn json(results: &Results) -> String {
    let mut object = Map::new();
    let mut put = |name: String, value: Value| {
        object.insert(name, value);
    };
    put("bench".into(), json!("seal"));
    put("quick".into(), json!(results.quick));
    put("rounds".into(), json!(results.rounds));
    for (row, name, _, to) in ROWS {
        put(format!("{name}_us"), json!(rounded(results.figure(row).median(), 2)));
        put(format!("{name}_us_all_rounds"), json!(results.each(row)));
        if let Some(to) = to {
            put(format!("ratio_{name}_to_rustls"), json!(rounded(results.ratio(row, to), 3)));
        }
    }
    let floods = results.floods.iter().map(|(flood, budget, outcomes)| {
        let mut one = Map::new();
        one.insert("flood".into(), json!(flood.text()));
        one.insert("budget".into(), json!(budget));
        for (name, get) in FLOOD {
            one.insert(name.into(), json!(rounded(median(outcomes, get), 3)));
        }
        Value::Object(one)
    });
    put("honest_per_s".into(), json!(HONEST));
    put("floods".into(), floods.collect());
    Value::Object(object).to_string()
}

/// Two tables.
pub fn table(results: &Results) -> String {
    let title = format!(
        "One core, X25519, a request of {} B and a response of {} B, {} rounds in turn: median (least–most), CPU time. Servers \
         send the response before the client's Finished, clients have read it and made theirs.",
        REQUEST.len(),
        ANSWER.len(),
        results.rounds
    );
    let mut costs = Table::new(title, &["", "µs each", "of rustls alone"]);
    for (row, _, text, to) in ROWS {
        let ratio = to.map_or_else(String::new, |to| format!("{:.2}", results.ratio(row, to)));
        costs.row([text.into(), results.figure(row).spread(1).into(), ratio.into()]);
    }
    let title = format!(
        "A server of one core under twice the flights that it can open, without credential blocks, and {HONEST} honest clients a \
         second, also without. Honest clients are answered after their first flight; after a REJECT, in ordinary TLS; or later \
         than 250 ms."
    );
    let columns = [
        "flood",
        "budget",
        "flood/s",
        "openings/s",
        "busy",
        "first flight",
        "ordinary",
        "late",
        "waited, ms",
    ];
    let mut floods = Table::new(title, &columns);
    for (flood, budget, outcomes) in &results.floods {
        let share = |get: Get| format!("{:.0} %", 100.0 * median(outcomes, get));
        let number = |get: Get| format!("{:.0}", median(outcomes, get));
        floods.row([
            flood.text().into(),
            (*budget).into(),
            number(|outcome| outcome.flood_per_s).into(),
            number(|outcome| outcome.openings_per_s).into(),
            share(|outcome| outcome.busy).into(),
            share(|outcome| outcome.early).into(),
            share(|outcome| outcome.ordinary).into(),
            share(|outcome| outcome.late).into(),
            format!("{:.1}", median(outcomes, |outcome| outcome.waited_ms)).into(),
        ]);
    }
    format!("{costs}\n{floods}").trim_end().to_owned()
}
