//! The report.

use super::{GatewayCase, Proxy, Row, Sample};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
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

type CaseColumn = Column<Vec<Row>, GatewayCase>;

const COLUMNS: [CaseColumn; 9] = [
    Column::new("", "case", |_, case| case.name().into()),
    Column::new("gateway", "per_cpu_second", |rows, case| per_cpu(rows, *case, Proxy::Gateway)),
    Column::new("haproxy", "haproxy_per_cpu_second", |rows, case| per_cpu(rows, *case, Proxy::Haproxy)),
    Column::new("nginx", "nginx_per_cpu_second", |rows, case| per_cpu(rows, *case, Proxy::Nginx)),
    Column::new("/haproxy", "of_haproxy", |rows, case| share(rows, *case, Proxy::Haproxy)),
    Column::new("/nginx", "of_nginx", |rows, case| share(rows, *case, Proxy::Nginx)),
    Column::new("gateway/s", "per_second", |rows, case| per_second(rows, *case, Proxy::Gateway)),
    Column::new("haproxy/s", "haproxy_per_second", |rows, case| per_second(rows, *case, Proxy::Haproxy)),
    Column::new("nginx/s", "nginx_per_second", |rows, case| per_second(rows, *case, Proxy::Nginx)),
];

fn find(rows: &[Row], case: GatewayCase, proxy: Proxy) -> Option<&Row> {
    rows.iter().find(|row| row.case == case && row.proxy == proxy)
}

/// Requests for each second of the proxy's CPU time.
fn for_cpu(sample: &Sample) -> f64 {
    sample.requests / sample.cpu
}

fn per_cpu(rows: &[Row], case: GatewayCase, proxy: Proxy) -> Cell {
    find(rows, case, proxy).map(|row| Cell::Median(Figure::of(&row.samples, for_cpu), 0)).into()
}

fn per_second(rows: &[Row], case: GatewayCase, proxy: Proxy) -> Cell {
    let per_second = |sample: &Sample| sample.requests / sample.seconds;
    find(rows, case, proxy).map(|row| Cell::Median(Figure::of(&row.samples, per_second), 0)).into()
}

/// The median of the rounds' ratios of requests for each CPU second.
fn share(rows: &[Row], case: GatewayCase, to: Proxy) -> Cell {
    let both = find(rows, case, Proxy::Gateway).zip(find(rows, case, to));
    both.map(|(ours, other)| Cell::Median(Figure::ratios(&ours.samples, &other.samples, for_cpu), 2)).into()
}

pub(super) fn report(rows: &Vec<Row>, facts: GatewayFacts) -> Report {
    let title = format!(
        "Requests for each second of the proxy's CPU time, and requests a second; {} rounds of {:.1} s in turn, medians",
        facts.rounds,
        facts.time.as_secs_f64()
    );
    let cases: Vec<_> = rows.iter().filter(|row| row.proxy == Proxy::Gateway).map(|row| row.case).collect();
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
    let time_ms = facts.time.as_millis() as u64;
    Report::new(json!({ "rounds": facts.rounds, "time_ms": time_ms, "separate_cores": facts.cores }))
        .table("rows", Table::of(title, &COLUMNS, rows, &cases))
        .note(format!("{cores} One thread each, no TLS, no logs.{missing}"))
}
