//! The report.

use super::idle::{self, Idle};
use super::process::Visits;
use super::way::ConnectWay;
use super::{IN_FLIGHT, Row};
use crate::figure::{Figure, rounded};
use crate::table::Table;
use serde_json::{Value, json};

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

fn figure(visits: &[Visits], value: impl Fn(&Visits) -> f64) -> Figure {
    Figure::new(visits.iter().map(value))
}

fn quartiles(figure: &Figure, digits: usize) -> String {
    let (low, high) = (figure.quantile(0.25), figure.quantile(0.75));
    format!("{:.digits$} ({low:.digits$}–{high:.digits$})", figure.median())
}

impl Row {
    fn early(&self) -> f64 {
        let sum = |value: fn(&Visits) -> f64| self.visits.iter().map(value).sum::<f64>();
        sum(|visits| visits.early) / sum(|visits| visits.connections).max(1.0)
    }

    fn json(&self) -> Value {
        let each = |value: fn(&Visits) -> f64| rounded(figure(&self.visits, value).median(), 2);
        let both = |value: fn(&Visits) -> f64| {
            let figure = figure(&self.visits, value);
            json!([rounded(figure.quantile(0.25), 2), rounded(figure.quantile(0.75), 2)])
        };
        let way = self.task.way;
        json!({
            "way": way.label(), "name": way.name(), "clients": self.task.clients, "in_flight": self.in_flight,
            "busy_poll_us": self.task.busy_poll.as_micros() as u64, "encrypts": way.encrypts(),
            "early": rounded(self.early(), 4),
            "connections": self.visits.iter().map(|visits| visits.connections).sum::<f64>(),
            "cpu_us": each(Visits::cpu_us), "cpu_us_quartiles": both(Visits::cpu_us),
            "client_us": each(|visits| visits.client.cpu_us() / visits.connections),
            "server_us": each(|visits| visits.server.cpu_us() / visits.connections),
            "user_us": each(|visits| (visits.client.user_us + visits.server.user_us) / visits.connections),
            "system_us": each(|visits| (visits.client.system_us + visits.server.system_us) / visits.connections),
            "per_s": each(Visits::per_s), "per_s_quartiles": both(Visits::per_s),
            "p50_us": each(|visits| visits.p50_us), "p99_us": each(|visits| visits.p99_us),
            "cpu_us_rounds": self.visits.iter().map(|visits| rounded(visits.cpu_us(), 2)).collect::<Vec<_>>(),
        })
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
    fn alone(&self, way: ConnectWay) -> f64 {
        let row = self.rows.iter().find(|row| row.task.way == way && row.in_flight == IN_FLIGHT);
        row.map_or(f64::NAN, |row| figure(&row.visits, Visits::cpu_us).median())
    }

    pub fn json(&self) -> Value {
        json!({
            "rounds": self.rounds,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "idle": self.idle.iter().map(Idle::json).collect::<Vec<_>>(),
            "skipped": self.skipped.iter().map(|way| way.label()).collect::<Vec<_>>(),
        })
    }

    pub fn text(&self) -> String {
        let mut all: Vec<String> = super::BOTH.map(|in_flight| self.table(in_flight).to_string()).into();
        if !self.idle.is_empty() {
            all.push(idle::table(&self.idle, |way| self.alone(way)).to_string());
        }
        for way in &self.skipped {
            let why = match way {
                ConnectWay::UdpCard => "",
                _ => "net.ipv4.tcp_fastopen does not let servers use it, and ",
            };
            all.push(format!("{}: not measured, because {why}a network namespace needs root.\n", way.name()));
        }
        all.push(NOTES.to_owned());
        all.join("\n")
    }

    fn table(&self, in_flight: usize) -> Table {
        let title = format!("{in_flight} in flight, {} rounds", self.rounds);
        let columns =
            ["", "encrypts", "early", "CPU µs", "of it user", "client", "connections/s", "p50 µs", "p99 µs"];
        let mut table = Table::new(title, &columns);
        for row in self.rows.iter().filter(|row| row.in_flight == in_flight) {
            let of = |value: fn(&Visits) -> f64| figure(&row.visits, value);
            let user = of(|visits| (visits.client.user_us + visits.server.user_us) / visits.connections);
            let client = of(|visits| visits.client.cpu_us() / visits.connections);
            table.row([
                row.name().into(),
                if row.task.way.encrypts() { "yes" } else { "no" }.into(),
                if row.task.way.is_early() { format!("{:.1} %", row.early() * 100.0) } else { String::new() }
                    .into(),
                quartiles(&of(Visits::cpu_us), 1).into(),
                format!("{:.1}", user.median()).into(),
                format!("{:.1}", client.median()).into(),
                quartiles(&of(Visits::per_s), 0).into(),
                quartiles(&of(|visits| visits.p50_us), 0).into(),
                quartiles(&of(|visits| visits.p99_us), 0).into(),
            ]);
        }
        table
    }
}
