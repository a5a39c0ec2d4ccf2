//! The measurements, as text and as JSON. Ratios are ratios of medians of one run.

use super::engine::{IDLE, Results, Row};
use super::{BULK_BUFFER, IN_FLIGHT, Sample};
use crate::figure::{Figure, rounded};
use serde_json::{Map, Value, json};
use std::fmt::Write;

fn of(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Figure {
    Figure::new(samples.iter().map(value))
}

fn gbit(sample: &Sample) -> f64 {
    sample.per_second() * 8e-9
}

impl Results {
    fn rate(&self, row: Row) -> Figure {
        of(self.samples(row), Sample::per_second)
    }

    fn gbit(&self, row: Row) -> Figure {
        of(self.samples(row), gbit)
    }

    fn nanoseconds(&self, row: Row) -> Figure {
        of(self.samples(row), Sample::ns_per_packet)
    }

    fn packets_per_unit(&self, row: Row) -> f64 {
        of(self.samples(row), Sample::packets_per_unit).median()
    }

    fn allocations_per_unit(&self, row: Row) -> f64 {
        of(self.samples(row), Sample::allocations_per_unit).median()
    }
}

/// One JSON object. `conn_per_s` and figures derived from it are for the default configuration. `smoltcp` is driven
/// by the loop in its documentation, and `smoltcp_best` as fast as its API allows.
pub fn json(results: &Results) -> String {
    let mut object = Map::new();
    let parts = [setting(results), connections(results), bulk(results), packets(results), memory(results)];
    for part in parts {
        if let Value::Object(part) = part {
            object.extend(part);
        }
    }
    object.insert("all_rounds".to_owned(), all_rounds(results));
    Value::Object(object).to_string()
}

fn ratio(a: f64, b: f64) -> f64 {
    rounded(a / b, 3)
}

fn setting(results: &Results) -> Value {
    json!({
        "bench": "engine",
        "quick": results.quick,
        "rounds": results.rounds,
        "in_flight": IN_FLIGHT,
        "idle_connections": IDLE,
        "bulk_buffer_bytes": BULK_BUFFER,
    })
}

fn connections(results: &Results) -> Value {
    let rate = |row| results.rate(row).median();
    let (ours, theirs, best) = (rate(Row::FastOpen), rate(Row::Smoltcp), rate(Row::SmoltcpBest));
    let packets = |row| rounded(results.packets_per_unit(row), 2);
    json!({
        "conn_per_s": ours.round(),
        "conn_per_s_smoltcp": theirs.round(),
        "ratio": ratio(ours, theirs),
        "conn_per_s_smoltcp_best": best.round(),
        "ratio_smoltcp_best": ratio(ours, best),
        "conn_per_s_data_in_syn_ack": rate(Row::DataInSynAck).round(),
        "ratio_data_in_syn_ack": ratio(rate(Row::DataInSynAck), theirs),
        "ratio_data_in_syn_ack_smoltcp_best": ratio(rate(Row::DataInSynAck), best),
        "conn_per_s_handshake": rate(Row::Handshake).round(),
        "ratio_handshake": ratio(rate(Row::Handshake), theirs),
        "ratio_handshake_smoltcp_best": ratio(rate(Row::Handshake), best),
        "conn_per_s_with_10k_idle": rate(Row::FastOpenIdle).round(),
        "ratio_with_10k_idle": ratio(rate(Row::FastOpenIdle), ours),
        "conn_per_s_smoltcp_best_with_10k_idle": rate(Row::SmoltcpBestIdle).round(),
        "ratio_with_10k_idle_smoltcp_best": ratio(rate(Row::SmoltcpBestIdle), best),
        "packets_per_conn": packets(Row::FastOpen),
        "packets_per_conn_smoltcp": packets(Row::Smoltcp),
        "packets_per_conn_smoltcp_best": packets(Row::SmoltcpBest),
        "allocations_per_conn": rounded(results.allocations_per_unit(Row::FastOpen), 3),
    })
}

fn bulk(results: &Results) -> Value {
    let gbit = |row| results.gbit(row).median();
    json!({
        "bulk_gbit_s": rounded(gbit(Row::Bulk), 2),
        "bulk_gbit_s_smoltcp": rounded(gbit(Row::SmoltcpBulk), 2),
        "bulk_ratio": ratio(gbit(Row::Bulk), gbit(Row::SmoltcpBulk)),
        "bulk_gbit_s_timestamps": rounded(gbit(Row::BulkTimestamps), 2),
        "bulk_ratio_timestamps": ratio(gbit(Row::BulkTimestamps), gbit(Row::SmoltcpBulk)),
    })
}

fn packets(results: &Results) -> Value {
    let ns = |row| rounded(results.nanoseconds(row).median(), 1);
    json!({
        "ns_per_packet": ns(Row::FastOpen),
        "ns_per_packet_smoltcp": ns(Row::Smoltcp),
        "ns_per_packet_smoltcp_best": ns(Row::SmoltcpBest),
        "ns_per_packet_handshake": ns(Row::Handshake),
        "ns_per_packet_bulk": ns(Row::Bulk),
        "ns_per_packet_bulk_smoltcp": ns(Row::SmoltcpBulk),
    })
}

fn memory(results: &Results) -> Value {
    let memory = &results.memory;
    json!({
        "bytes_per_idle_connection": memory.idle.round(),
        "bytes_per_time_wait": memory.time_wait.round(),
        "bytes_per_pending": memory.pending.round(),
        "bytes_per_pending_packet_buffer": memory.pending_buffer.round(),
    })
}

/// The values of all rounds, in the order measured.
fn all_rounds(results: &Results) -> Value {
    let each = |row, value: fn(&Sample) -> f64| -> Vec<f64> {
        results.samples(row).iter().map(|s| rounded(value(s), 2)).collect()
    };
    let rate = |row| each(row, Sample::per_second);
    let ns = |row| each(row, Sample::ns_per_packet);
    json!({
        "conn_per_s": rate(Row::FastOpen),
        "conn_per_s_smoltcp": rate(Row::Smoltcp),
        "conn_per_s_smoltcp_best": rate(Row::SmoltcpBest),
        "conn_per_s_data_in_syn_ack": rate(Row::DataInSynAck),
        "conn_per_s_handshake": rate(Row::Handshake),
        "conn_per_s_with_10k_idle": rate(Row::FastOpenIdle),
        "conn_per_s_smoltcp_best_with_10k_idle": rate(Row::SmoltcpBestIdle),
        "bulk_gbit_s": each(Row::Bulk, gbit),
        "bulk_gbit_s_smoltcp": each(Row::SmoltcpBulk, gbit),
        "bulk_gbit_s_timestamps": each(Row::BulkTimestamps, gbit),
        "ns_per_packet": ns(Row::FastOpen),
        "ns_per_packet_smoltcp": ns(Row::Smoltcp),
        "ns_per_packet_smoltcp_best": ns(Row::SmoltcpBest),
        "ns_per_packet_bulk": ns(Row::Bulk),
        "ns_per_packet_bulk_smoltcp": ns(Row::SmoltcpBulk),
    })
}

/// Lines of a table: name, median (minimum to maximum), and ratios to references.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, what: &str, figure: &Figure, digits: usize, references: &[(f64, &str)]) {
        let median = figure.median();
        let value = figure.spread(digits);
        let ratios: Vec<_> =
            references.iter().map(|(base, of)| format!("{:.2} × {of}", median / base)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}", format!("{what:<44} {value:>28}  {}", ratios.join(", ")).trim_end());
    }
}

/// A table: median (minimum to maximum), and the ratio to the reference.
pub fn table(results: &Results) -> String {
    let mut lines = Lines::default();
    connection_lines(results, &mut lines);
    let theirs = results.gbit(Row::SmoltcpBulk);
    let reference = [(theirs.median(), "smoltcp")];
    lines.add("bulk, Gbit/s of payload", &results.gbit(Row::Bulk), 2, &reference);
    lines.add("  with timestamps", &results.gbit(Row::BulkTimestamps), 2, &reference);
    lines.add("  smoltcp (no timestamps)", &theirs, 2, &[]);
    for (what, row, base) in [
        ("ns per packet handled, connections", Row::FastOpen, Row::Smoltcp),
        ("  ordinary handshake", Row::Handshake, Row::Smoltcp),
        ("  bulk", Row::Bulk, Row::SmoltcpBulk),
    ] {
        let base = results.nanoseconds(base).median();
        lines.add(what, &results.nanoseconds(row), 0, &[(base, "smoltcp")]);
    }
    lines.add("  smoltcp, connections", &results.nanoseconds(Row::Smoltcp), 0, &[]);
    lines.add("  smoltcp at its best, connections", &results.nanoseconds(Row::SmoltcpBest), 0, &[]);
    lines.add("  smoltcp, bulk", &results.nanoseconds(Row::SmoltcpBulk), 0, &[]);
    let mut out = lines.0;
    memory_lines(results, &mut out);
    out.truncate(out.trim_end().len());
    out
}

fn connection_lines(results: &Results, lines: &mut Lines) {
    let (theirs, best) = (results.rate(Row::Smoltcp), results.rate(Row::SmoltcpBest));
    let both = [(theirs.median(), "smoltcp"), (best.median(), "its best")];
    let ours = results.rate(Row::FastOpen);
    lines.add("connections/s, Fast Open", &ours, 0, &both);
    lines.add("  data in the SYN-ACK", &results.rate(Row::DataInSynAck), 0, &both);
    lines.add("  ordinary handshake", &results.rate(Row::Handshake), 0, &both);
    lines.add("  smoltcp, the loop of its documentation", &theirs, 0, &[]);
    lines.add("  smoltcp at its best", &best, 0, &both[..1]);
    let idle = results.rate(Row::FastOpenIdle);
    lines.add("  Fast Open, 10,000 idle beside", &idle, 0, &[(ours.median(), "without")]);
    let idle = results.rate(Row::SmoltcpBestIdle);
    lines.add("  smoltcp at its best, 10,000 idle beside", &idle, 0, &[(best.median(), "without")]);
}

fn memory_lines(results: &Results, out: &mut String) {
    let memory = &results.memory;
    for (what, bytes) in [
        ("heap bytes per idle established connection", memory.idle),
        ("  TIME-WAIT", memory.time_wait),
        ("  pending first flight, buffer apart", memory.pending),
        ("  its packet buffer", memory.pending_buffer),
    ] {
        let _ = writeln!(out, "{what:<44} {bytes:>28.0}");
    }
    let _ = writeln!(
        out,
        "{} rounds in turn, median (least–most), CPU time of the one thread. Packets per connection: {:.2}, smoltcp {:.2}, \
         at its best {:.2}. Allocations per connection: {:.3}.\nA packet carried is handled twice: sent at one end, taken \
         at the other. Bulk buffers {} KiB. Memory: {} connections of each kind, one end.",
        results.rounds,
        results.packets_per_unit(Row::FastOpen),
        results.packets_per_unit(Row::Smoltcp),
        results.packets_per_unit(Row::SmoltcpBest),
        results.allocations_per_unit(Row::FastOpen),
        BULK_BUFFER >> 10,
        memory.connections,
    );
}
