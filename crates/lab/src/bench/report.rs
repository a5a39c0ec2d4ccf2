//! The report of `bench engine`. Ratios are ratios of medians of one run.

use super::engine::{IDLE, Results, Row};
use super::{BULK_BUFFER, IN_FLIGHT, Sample};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;

/// The unit of a line.
#[derive(Debug, Clone, Copy)]
enum Unit {
    PerSecond,
    Gbit,
    Nanoseconds,
}

/// A line: its name in JSON and in the text, and the row that it is compared with.
struct Line {
    row: Row,
    unit: Unit,
    name: &'static str,
    text: &'static str,
    to: Option<(Row, &'static str)>,
}

const fn line(
    row: Row,
    unit: Unit,
    name: &'static str,
    text: &'static str,
    to: Option<(Row, &'static str)>,
) -> Line {
    Line { row, unit, name, text, to }
}

const SMOLTCP: Option<(Row, &str)> = Some((Row::Smoltcp, "smoltcp"));
const SMOLTCP_BULK: Option<(Row, &str)> = Some((Row::SmoltcpBulk, "smoltcp"));

/// `smoltcp` is driven by the loop in its documentation, and `smoltcp_best` as fast as its API allows.
const LINES: [Line; 16] = [
    line(Row::FastOpen, Unit::PerSecond, "conn_per_s", "connections/s, Fast Open", SMOLTCP),
    line(Row::DataInSynAck, Unit::PerSecond, "conn_per_s_data_in_syn_ack", "  data in the SYN-ACK", SMOLTCP),
    line(Row::Handshake, Unit::PerSecond, "conn_per_s_handshake", "  ordinary handshake", SMOLTCP),
    line(
        Row::Smoltcp,
        Unit::PerSecond,
        "conn_per_s_smoltcp",
        "  smoltcp, the loop of its documentation",
        None,
    ),
    line(Row::SmoltcpBest, Unit::PerSecond, "conn_per_s_smoltcp_best", "  smoltcp at its best", SMOLTCP),
    line(
        Row::FastOpenIdle,
        Unit::PerSecond,
        "conn_per_s_with_10k_idle",
        "  Fast Open, 10,000 idle beside",
        Some((Row::FastOpen, "without")),
    ),
    line(
        Row::SmoltcpBestIdle,
        Unit::PerSecond,
        "conn_per_s_smoltcp_best_with_10k_idle",
        "  smoltcp at its best, 10,000 idle beside",
        Some((Row::SmoltcpBest, "without")),
    ),
    line(Row::Bulk, Unit::Gbit, "bulk_gbit_s", "bulk, Gbit/s of payload", SMOLTCP_BULK),
    line(Row::BulkTimestamps, Unit::Gbit, "bulk_gbit_s_timestamps", "  with timestamps", SMOLTCP_BULK),
    line(Row::SmoltcpBulk, Unit::Gbit, "bulk_gbit_s_smoltcp", "  smoltcp (no timestamps)", None),
    line(Row::FastOpen, Unit::Nanoseconds, "ns_per_packet", "ns per packet handled, connections", SMOLTCP),
    line(Row::Handshake, Unit::Nanoseconds, "ns_per_packet_handshake", "  ordinary handshake", SMOLTCP),
    line(Row::Bulk, Unit::Nanoseconds, "ns_per_packet_bulk", "  bulk", SMOLTCP_BULK),
    line(Row::Smoltcp, Unit::Nanoseconds, "ns_per_packet_smoltcp", "  smoltcp, connections", None),
    line(
        Row::SmoltcpBest,
        Unit::Nanoseconds,
        "ns_per_packet_smoltcp_best",
        "  smoltcp at its best, connections",
        None,
    ),
    line(Row::SmoltcpBulk, Unit::Nanoseconds, "ns_per_packet_bulk_smoltcp", "  smoltcp, bulk", None),
];

const COLUMNS: [Column<Results, Line>; 6] = [
    Column::text("", |_, line| line.text.into()),
    Column::json("row", |_, line| line.name.into()),
    Column::new("", "value", |results, line| {
        Cell::Range(results.figure(line.row, line.unit), line.unit.digits())
    }),
    Column::text("×", |results, line| line.to.map(|(to, _)| results.ratio(line, to)).into()),
    Column::text("of", |_, line| line.to.map(|(_, name)| name).into()),
    Column::json("ratio", |results, line| line.to.map(|(to, _)| results.ratio(line, to)).into()),
];

impl Unit {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::PerSecond => sample.per_second(),
            Self::Gbit => sample.per_second() * 8e-9,
            Self::Nanoseconds => sample.ns_per_packet(),
        }
    }

    const fn digits(self) -> usize {
        match self {
            Self::PerSecond | Self::Nanoseconds => 0,
            Self::Gbit => 2,
        }
    }
}

impl Results {
    fn figure(&self, row: Row, unit: Unit) -> Figure {
        Figure::of(self.samples(row), |sample| unit.of(sample))
    }

    fn ratio(&self, line: &Line, to: Row) -> f64 {
        self.figure(line.row, line.unit).median() / self.figure(to, line.unit).median()
    }
}

/// Median (minimum to maximum), and the ratio to the reference.
pub fn report(results: &Results) -> Report {
    let packets = |row| Figure::of(results.samples(row), Sample::packets_per_unit).median();
    let [ours, theirs, best] = [Row::FastOpen, Row::Smoltcp, Row::SmoltcpBest].map(packets);
    let allocations = Figure::of(results.samples(Row::FastOpen), Sample::allocations_per_unit).median();
    let memory = &results.memory;
    let facts = json!({
        "bench": "engine", "quick": results.quick, "rounds": results.rounds, "in_flight": IN_FLIGHT, "idle_connections": IDLE,
        "bulk_buffer_bytes": BULK_BUFFER, "packets_per_conn": ours, "packets_per_conn_smoltcp": theirs,
        "packets_per_conn_smoltcp_best": best, "allocations_per_conn": allocations,
        "bytes_per_idle_connection": memory.idle.round(), "bytes_per_time_wait": memory.time_wait.round(),
        "bytes_per_pending": memory.pending.round(), "bytes_per_pending_packet_buffer": memory.pending_buffer.round(),
    });
    let title = format!("{} rounds in turn, median (least–most), CPU time of the one thread", results.rounds);
    let mut bytes = Table::new("Heap bytes".to_owned(), &["", "each"]);
    for (what, value) in [
        ("idle established connection", memory.idle),
        ("TIME-WAIT", memory.time_wait),
        ("pending first flight, buffer apart", memory.pending),
        ("its packet buffer", memory.pending_buffer),
    ] {
        bytes.row([what.into(), Cell::Number(value, 0)]);
    }
    let notes = format!(
        "Packets per connection: {ours:.2}, smoltcp {theirs:.2}, at its best {best:.2}. Allocations per connection: \
         {allocations:.3}.\nA packet carried is handled twice: sent at one end, taken at the other. Bulk buffers {} KiB. Memory: {} \
         connections of each kind, one end.",
        BULK_BUFFER >> 10,
        memory.connections,
    );
    Report::new(facts)
        .table("rows", Table::of(title, &COLUMNS, results, &LINES))
        .note(bytes.to_string())
        .note(notes)
}
