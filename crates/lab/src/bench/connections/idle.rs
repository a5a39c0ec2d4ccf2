//! Memory of idle connections, and what a visit costs beside them.

use super::process::{Pair, Place, Programs};
use super::usage::raise_open_files;
use super::way::Way;
use crate::bench::{BenchError, IN_FLIGHT, progress};
use crate::figure::Figure;
use crate::table::Table;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// Descriptors of an end that are not connections.
const SPARE: u64 = 256;
/// Connections between two looks at the progress.
const CHUNK: u32 = 2_000;
/// Until the kernel has freed what it frees later.
const SETTLE: Duration = Duration::from_millis(500);
/// Visits before the first look at memory.
const WARM_UP: u64 = 1_000;

/// The figures of a way.
#[derive(Debug)]
pub struct Idle {
    way: Way,
    connections: u32,
    /// Bytes for each connection: the client's process, the server's, the kernel's slabs and its sockets' buffers for
    /// both ends.
    bytes: [f64; 4],
    /// CPU time of a visit beside them, µs: of some rounds.
    beside_us: Vec<f64>,
}

/// Opens up to `wanted` connections that stay open and idle.
pub fn measure(
    place: &Place,
    programs: &Programs,
    way: Way,
    (wanted, rounds, time): (u32, u32, Duration),
) -> Result<Idle, BenchError> {
    let connections = match way.takes_descriptors() {
        true => {
            let limit = raise_open_files(u64::from(wanted) + SPARE).saturating_sub(SPARE);
            wanted.min(u32::try_from(limit).unwrap_or(u32::MAX))
        }
        false => wanted,
    };
    let mut pair = Pair::start(place, programs, way, 1, Duration::ZERO)?;
    pair.visits(IN_FLIGHT, Duration::ZERO, WARM_UP.min(u64::from(wanted)))?;
    thread::sleep(SETTLE);
    let before = pair.usage()?;
    let mut open = 0;
    while open < connections {
        progress(&format!("{}: {open} of {connections} idle connections", way.name()));
        let end = connections.min(open + CHUNK);
        pair.stay(open, end)?;
        open = end;
    }
    thread::sleep(SETTLE);
    let after = pair.usage()?;
    let [client, server] = [0, 1].map(|end| after[end].since(&before[end]));
    let each = |kb: f64| kb * 1024.0 / f64::from(connections.max(1));
    let bytes = [client.rss_kb, server.rss_kb, client.slab_kb, client.sockets_kb].map(each);
    let mut beside_us = Vec::new();
    for round in 1..=rounds {
        progress(&format!("{}: beside {connections} idle connections, round {round}", way.name()));
        beside_us.push(pair.visits(IN_FLIGHT, time, 1)?.cpu_us());
    }
    Ok(Idle { way, connections, bytes, beside_us })
}

impl Idle {
    pub fn json(&self) -> Value {
        let [client, server, slab, sockets] = self.bytes.map(f64::round);
        let beside = Figure::new(self.beside_us.iter().copied());
        json!({
            "way": self.way.label(), "connections": self.connections, "client_bytes": client, "server_bytes": server,
            "slab_bytes": slab, "socket_bytes": sockets, "cpu_us_beside": beside.median(),
            "cpu_us_beside_quartiles": [beside.quantile(0.25), beside.quantile(0.75)],
        })
    }
}

/// The table. `alone` is the CPU time of a visit without idle connections.
pub fn table(all: &[Idle], alone: impl Fn(Way) -> f64) -> Table {
    let title = "Idle connections, one request each, then nothing. Bytes a connection: growth of the resident memory of each \
                 process, and of the machine's slabs and sockets' buffers for both ends. CPU: a visit beside them, 64 in \
                 flight, and as a multiple of the same without them."
        .to_owned();
    let columns = [
        "",
        "connections",
        "client B",
        "server B",
        "kernel slabs B",
        "socket buffers B",
        "CPU µs",
        "multiple",
    ];
    let mut table = Table::new(title, &columns);
    for one in all {
        let [client, server, slab, sockets] = one.bytes.map(|bytes| format!("{bytes:.0}").into());
        let beside = Figure::new(one.beside_us.iter().copied()).median();
        table.row([
            one.way.name().into(),
            one.connections.into(),
            client,
            server,
            slab,
            sockets,
            format!("{beside:.1}").into(),
            format!("{:.2}", beside / alone(one.way)).into(),
        ]);
    }
    table
}
