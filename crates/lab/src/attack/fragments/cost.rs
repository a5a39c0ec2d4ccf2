//! CPU time that a fragment costs the server, compared with an ordinary segment. The results vary from run to run.

use super::forged::Kind;
use crate::attack::world::{PORT, address, packet};
use crate::table::Table;
use firstflight_link::path::fragment;
use firstflight_stack::{Config, ConnId, ListenConfig, Stack};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Header, Segment};
use firstflight_wire::{Instant, SeqNum};
use nix::time::{ClockId, clock_gettime};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use stats_alloc::INSTRUMENTED_SYSTEM;
use std::net::SocketAddr;
use std::time::Duration;

/// Packets in a measurement, and the number of measurements. The fastest counts.
const PACKETS: u32 = 100_000;
const TIMES: u32 = 10;
/// Bytes of a segment.
const SEGMENT: usize = 1400;
/// Time between two packets: a flood of 20,000 a second.
const PAUSE: Duration = Duration::from_micros(50);

/// A server with an open connection.
struct Server {
    stack: Stack,
    now: Instant,
    id: ConnId,
    /// The acknowledgement number of the client's segments.
    ack: SeqNum,
    block: Vec<u8>,
    out: Vec<u8>,
}

fn segment(seq: u32, ack: SeqNum, flags: Flags, data: &[u8]) -> Vec<u8> {
    let seq = SeqNum::new(seq);
    let header = Header { src_port: 40_000, dst_port: PORT, seq, ack, flags, window: 0xffff, urgent: 0 };
    packet(address(2), address(1), &header, &[], data)
}

impl Server {
    fn new() -> Option<Self> {
        let now = Instant::from_secs(1000);
        let mut stack = Stack::new(Config::new(vec![address(1)], [7; 32]), now);
        let listener = stack.listen(ListenConfig::new(SocketAddr::new(address(1), PORT))).ok()?;
        stack.handle_packet(now, &segment(0, SeqNum::new(0), Flags::SYN, &[]));
        let mut out = vec![0; 2048];
        let len = stack.poll_transmit(now, &mut out)?;
        let ack = Segment::parse(Packet::parse(&out[..len]).ok()?.payload).ok()?.seq + 1;
        stack.handle_packet(now, &segment(1, ack, Flags::ACK, &[]));
        let id = stack.accept(listener)?;
        Some(Self { stack, now, id, ack, block: vec![0; 4096], out })
    }

    /// Receives a packet, reads its data, and answers.
    fn take(&mut self, packet: &[u8]) {
        self.now += PAUSE;
        self.stack.handle_packet(self.now, packet);
        while self.stack.poll_event().is_some() {
            while let Ok(1..) = self.stack.read(self.id, &mut self.block, self.now) {}
        }
        if self.stack.poll_timeout().is_some_and(|at| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        while self.stack.poll_transmit(self.now, &mut self.out).is_some() {}
    }

    /// Nanoseconds for each of these packets.
    fn time(&mut self, packets: &[Vec<u8>]) -> f64 {
        let began = cpu_time();
        packets.iter().for_each(|packet| self.take(packet));
        (cpu_time() - began).as_nanos() as f64 / packets.len() as f64
    }
}

/// CPU time of this thread. It does not include other programs.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Bytes in use.
fn heap() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// One row: the fastest time, and the memory of incomplete packets, first as the stack counts it and then as allocated.
fn measure(packets: impl Fn(SeqNum) -> Vec<Vec<u8>>) -> Option<(f64, usize, usize)> {
    let mut found: Option<(f64, usize, usize)> = None;
    for _ in 0..TIMES {
        let mut server = Server::new()?;
        let packets = packets(server.ack);
        let before = heap();
        let time = server.time(&packets);
        let grown = heap().saturating_sub(before);
        if found.is_none_or(|(fastest, ..)| time < fastest) {
            found = Some((time, server.stack.gauges().fragment_bytes, grown));
        }
    }
    found
}

/// The rows.
pub fn table() -> Table {
    let data = [b'd'; SEGMENT];
    let segments = |ack: SeqNum| -> Vec<Vec<u8>> {
        (0..PACKETS)
            .map(|n| segment(1 + n * SEGMENT as u32, ack, Flags::ACK.union(Flags::PSH), &data))
            .collect()
    };
    let in_two = |ack: SeqNum| -> Vec<Vec<u8>> {
        let whole = segments(ack).into_iter().take(PACKETS as usize / 2).zip(0..);
        whole.flat_map(|(packet, n)| fragment(&packet, 1000, n).unwrap_or_default()).collect()
    };
    let of = |kind: Kind| {
        measure(move |_| {
            let mut random = ChaCha20Rng::seed_from_u64(1);
            (0..PACKETS).map(|n| kind.packet(n, &mut random)).collect()
        })
    };
    let rows = [
        ("ordinary segment of 1,400 bytes", measure(segments)),
        ("half of one, reassembled", measure(in_two)),
        ("first fragment of 1,400 bytes, one source", of(Kind::First)),
        ("first fragment of 1,400 bytes, 50,000 sources", of(Kind::FirstOfMany)),
        ("first fragment of 8 bytes, one source", of(Kind::Tiny)),
        ("last 8 bytes of 1,500, 50,000 sources", of(Kind::TinyLastOfMany)),
        ("piece of 8 bytes of the same packet", of(Kind::Pieces)),
        ("overlap", of(Kind::Overlaps)),
        ("one fragment, again and again", of(Kind::Copies)),
    ];
    let mut table = Table::new(
        format!("CPU time for each packet, the fastest of {TIMES} times {PACKETS}, and memory at the end"),
        &["packet", "ns", "× a segment", "MB counted", "MB of heap"],
    );
    let ordinary = rows.first().and_then(|row| row.1).map_or(1.0, |found| found.0);
    for (name, found) in rows {
        let Some((time, counted, grown)) = found else { continue };
        let [counted, grown] = [counted, grown].map(|bytes| bytes as f64 / 1e6);
        table.row([name.into(), time.into(), (time / ordinary).into(), counted.into(), grown.into()]);
    }
    table
}
