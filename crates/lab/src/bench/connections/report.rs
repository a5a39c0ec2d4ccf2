//! The report.

use super::idle::{self, Idle};
use super::process::Visits;
use super::way::ConnectWay;
use super::{IN_FLIGHT, Row};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

/// Everything that was measured.
pub struct Results {
    pub rounds: u32,
    pub rows: Vec<Row>,
    pub idle: Vec<Idle>,
    /// Ways that this machine does not let us measure.
    pub skipped: Vec<ConnectWay>,
}

const NOTES: &str = "\
Round for round in turn; median (quartiles). CPU: user and system time of both processes for a connection. Work that the \
kernel does for both ends on loopback counts for the end that causes it, what its own threads do (ksoftirqd) for none. \
Latency: from the connect to the end of the response. Each process has one thread, and each connection a task of tokio at \
both ends. The server closes first; with quinn the client closes, as soon as it has the response, and with 0-RTT a new \
ticket, too, because a ticket is good once. TLS: rustls with aws-lc-rs, X25519, AES-128-GCM, ECDSA P-256, no tickets but for \
0-RTT. The kernel's Fast Open is through crate `kernel`, which asks the kernel for each connection's outcome. Servers limit \
neither a client's first flights nor signatures.";

const COLUMNS: [Column<(), Row>; 16] = [
    Column::new("", "name", |(), row| row.name().into()),
    Column::json("way", |(), row| row.task.way.label().into()),
    Column::json("clients", |(), row| u32::from(row.task.clients).into()),
    Column::json("in_flight", |(), row| row.in_flight.into()),
    Column::json("busy_poll_us", |(), row| (row.task.busy_poll.as_micros() as u64).into()),
    Column::new("encrypts", "encrypts", |(), row| row.task.way.encrypts().into()),
    Column::new("early", "early", |(), row| {
        Cell::Share(row.sum(|visits| visits.early) / row.sum(|visits| visits.connections).max(1.0), 1)
    }),
    Column::json("connections", |(), row| Cell::Number(row.sum(|visits| visits.connections), 0)),
    Column::new("CPU µs", "cpu_us", |(), row| Cell::Quartiles(row.figure(Visits::cpu_us), 1)),
    Column::new("of it user", "user_us", |(), row| {
        Cell::Median(row.each(|visits| visits.client.user_us + visits.server.user_us), 1)
    }),
    Column::new("client", "client_us", |(), row| Cell::Median(row.each(|visits| visits.client.cpu_us()), 1)),
    Column::json("server_us", |(), row| Cell::Median(row.each(|visits| visits.server.cpu_us()), 1)),
    Column::json("system_us", |(), row| {
        Cell::Median(row.each(|visits| visits.client.system_us + visits.server.system_us), 1)
    }),
    Column::new("connections/s", "per_s", |(), row| Cell::Quartiles(row.figure(Visits::per_s), 0)),
    Column::new("p50 µs", "p50_us", |(), row| Cell::Quartiles(row.figure(|visits| visits.p50_us), 0)),
    Column::new("p99 µs", "p99_us", |(), row| Cell::Quartiles(row.figure(|visits| visits.p99_us), 0)),
];

impl Row {
    fn figure(&self, value: impl Fn(&Visits) -> f64) -> Figure {
        Figure::of(&self.visits, value)
    }

    /// For each connection.
    fn each(&self, value: fn(&Visits) -> f64) -> Figure {
        self.figure(|visits| value(visits) / visits.connections)
    }

    fn sum(&self, value: fn(&Visits) -> f64) -> f64 {
        self.visits.iter().map(value).sum()
    }

    fn name(&self) -> String {
        let mut name = self.task.way.name().to_owned();
        if self.task.clients > 1 {
            name += &format!(", {} addresses", self.task.clients);
        }
        if !self.task.busy_poll.is_zero() {
            name += &format!(", busy polling {:?}", self.task.busy_poll);
        }
        name
    }
}

impl Results {
    /// CPU time of a connection by `way`, 64 in flight, from one address.
    pub fn alone(&self, way: ConnectWay) -> f64 {
        let row = self.rows.iter().find(|row| row.task.way == way && row.in_flight == IN_FLIGHT);
        row.map_or(f64::NAN, |row| row.figure(Visits::cpu_us).median())
    }

    pub fn report(&self) -> Report {
        let idle = Table::of(idle::TITLE, &idle::COLUMNS, self, &self.idle);
        let mut report = Report::new(json!({
            "rounds": self.rounds, "rows": Table::of("", &COLUMNS, &(), &self.rows).rows(), "idle": idle.rows(),
            "skipped": self.skipped.iter().map(|way| way.label()).collect::<Vec<_>>(),
        }));
        for in_flight in super::BOTH {
            let rows = self.rows.iter().filter(|row| row.in_flight == in_flight);
            let title = format!("{in_flight} in flight, {} rounds", self.rounds);
            report = report.note(Table::of(title, &COLUMNS, &(), rows).to_string());
        }
        if !self.idle.is_empty() {
            report = report.note(idle.to_string());
        }
        for way in &self.skipped {
            let why = match way {
                ConnectWay::UdpCard => "",
                _ => "net.ipv4.tcp_fastopen does not let servers use it, and ",
            };
            let text =
                format!("{}: not measured, because {why}a network namespace needs root.\n", way.name());
            report = report.note(text);
        }
        report.note(NOTES)
    }
}
