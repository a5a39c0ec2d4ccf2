//! The report.

use super::{GatewayCase, Proxy, Row};
use crate::figure::{Figure, rounded};
use crate::table::Table;
use serde_json::json;
use std::time::Duration;

/// What the report says of the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewayFacts {
    pub(super) rounds: u32,
    pub(super) time: Duration,
    /// Whether the proxy has a processor of its own.
    pub(super) cores: bool,
}

impl Row {
    /// Requests for each second of the proxy's CPU time.
    fn per_cpu(&self) -> Figure {
        Figure::new(self.samples.iter().map(|sample| sample.requests / sample.cpu))
    }

    /// Requests a second.
    fn per_s(&self) -> Figure {
        Figure::new(self.samples.iter().map(|sample| sample.requests / sample.seconds))
    }
}

fn find(rows: &[Row], case: GatewayCase, proxy: Proxy) -> Option<&Row> {
    rows.iter().find(|row| row.case == case && row.proxy == proxy)
}

/// The median of the rounds' ratios of requests for each CPU second.
fn ratio(rows: &[Row], case: GatewayCase, to: Proxy) -> Option<f64> {
    let (ours, other) = (find(rows, case, Proxy::Gateway)?, find(rows, case, to)?);
    let pairs = ours.samples.iter().zip(&other.samples);
    Some(Figure::new(pairs.map(|(a, b)| (a.requests / a.cpu) / (b.requests / b.cpu))).median())
}

fn cases(rows: &[Row]) -> impl Iterator<Item = GatewayCase> {
    rows.iter().filter(|row| row.proxy == Proxy::Gateway).map(|row| row.case)
}

pub(super) fn text(rows: &[Row], facts: GatewayFacts) -> String {
    let title = format!(
        "Requests for each second of the proxy's CPU time, and requests a second; {} rounds of {:.1} s in turn, medians",
        facts.rounds,
        facts.time.as_secs_f64()
    );
    let columns =
        ["", "gateway", "haproxy", "nginx", "/haproxy", "/nginx", "gateway/s", "haproxy/s", "nginx/s"];
    let mut table = Table::new(title, &columns);
    for case in cases(rows) {
        let of = |proxy, figure: fn(&Row) -> Figure| {
            find(rows, case, proxy).map_or(String::new(), |row| format!("{:.0}", figure(row).median()))
        };
        let share = |to| ratio(rows, case, to).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        table.row([
            case.name().into(),
            of(Proxy::Gateway, Row::per_cpu).into(),
            of(Proxy::Haproxy, Row::per_cpu).into(),
            of(Proxy::Nginx, Row::per_cpu).into(),
            share(Proxy::Haproxy).into(),
            share(Proxy::Nginx).into(),
            of(Proxy::Gateway, Row::per_s).into(),
            of(Proxy::Haproxy, Row::per_s).into(),
            of(Proxy::Nginx, Row::per_s).into(),
        ]);
    }
    let cores = match facts.cores {
        true => {
            "The proxy has a processor of its own; wrk, h2load and the backend (nginx) share another one."
        }
        false => "All share the only processor.",
    };
    let missing = match rows.iter().any(|row| row.proxy == Proxy::Haproxy) {
        true => "",
        false => "\nHAProxy is not installed, so it was not measured.",
    };
    format!("{table}\n{cores} One thread each, no TLS, no logs.{missing}")
}

pub(super) fn json(rows: &[Row], facts: GatewayFacts) -> String {
    let rounds = |row: &Row| row.samples.iter().map(|s| rounded(s.requests / s.cpu, 0)).collect::<Vec<_>>();
    let measured = rows.iter().map(|row| {
        json!({
            "case": row.case.name(), "proxy": row.proxy.name(), "per_cpu_second": rounded(row.per_cpu().median(), 0),
            "per_second": rounded(row.per_s().median(), 0), "per_cpu_second_rounds": rounds(row),
        })
    });
    let ratios = cases(rows).map(|case| {
        let share = |to| ratio(rows, case, to).map(|ratio| rounded(ratio, 3));
        json!({ "case": case.name(), "haproxy": share(Proxy::Haproxy), "nginx": share(Proxy::Nginx) })
    });
    json!({
        "rounds": facts.rounds, "time_ms": facts.time.as_millis() as u64, "separate_cores": facts.cores,
        "rows": measured.collect::<Vec<_>>(), "ratios": ratios.collect::<Vec<_>>(),
    })
    .to_string()
}
