//! An attacker who knows a connection's four-tuple but sees none of its packets tries to reset it (RFC 5961). It forges
//! RSTs with the client's address, and looks for a sign in the answers to its own probes that the server sent a
//! challenge ACK in between.

use super::world::{PORT, address, packet};
use crate::table::Table;
use firstflight_stack::{CloseReason, Config, ConnId, ListenConfig, Stack};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Header, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A closed port. A SYN to it causes a RST, whose IP header is examined.
const CLOSED: u16 = 9;
const CLIENT_PORT: u16 = 40_000;
/// Forged RSTs between two probes.
const BATCH: u32 = 64;

/// The result of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that the attacker sent.
    pub packets: u64,
    /// Probes whose answers showed that the server had sent another packet.
    pub signs: u64,
    /// The connection was reset.
    pub reset: bool,
}

struct Attacker {
    stack: Stack,
    now: Instant,
    victim: ConnId,
    /// Size of the server's window.
    window: u32,
    identification: Option<u16>,
    outcome: Outcome,
}

/// A segment to the server.
fn segment(from: IpAddr, port: u16, to: u16, seq: u32, ack: Option<SeqNum>, flags: Flags) -> Vec<u8> {
    let flags = if ack.is_some() { flags.union(Flags::ACK) } else { flags };
    let (seq, ack) = (SeqNum::new(seq), ack.unwrap_or(SeqNum::new(0)));
    let header = Header { src_port: port, dst_port: to, seq, ack, flags, window: 0xffff, urgent: 0 };
    packet(from, address(1), &header, &[], &[])
}

impl Attacker {
    /// A server to which a client with this ISN is connected.
    fn new(isn: u32) -> Option<Self> {
        let now = Instant::from_secs(1000);
        let mut stack = Stack::new(Config::new(vec![address(1)], [7; 32]), now);
        let listener = stack.listen(ListenConfig::new(SocketAddr::new(address(1), PORT))).ok()?;
        let client = address(2);
        stack.handle_packet(now, &segment(client, CLIENT_PORT, PORT, isn, None, Flags::SYN));
        let mut out = vec![0; 2048];
        let len = stack.poll_transmit(now, &mut out)?;
        let answer = Segment::parse(Packet::parse(&out[..len]).ok()?.payload).ok()?;
        let (ack, window) = (answer.seq + 1, u32::from(answer.window));
        stack.handle_packet(
            now,
            &segment(client, CLIENT_PORT, PORT, isn.wrapping_add(1), Some(ack), Flags::default()),
        );
        let victim = stack.accept(listener)?;
        let outcome = Outcome { packets: 0, signs: 0, reset: false };
        Some(Self { stack, now, victim, window, identification: None, outcome })
    }

    /// Sends RSTs with these sequence numbers, then a probe. Returns whether its answer shows that another packet has
    /// left since the last probe.
    fn answered(&mut self, numbers: impl IntoIterator<Item = u32>) -> bool {
        // A connection sends at most five challenge ACKs a second.
        self.now += Duration::from_millis(250);
        for number in numbers {
            let forged = segment(address(2), CLIENT_PORT, PORT, number, None, Flags::RST);
            self.stack.handle_packet(self.now, &forged);
            self.outcome.packets += 1;
        }
        let probe = segment(address(3), 50_000, CLOSED, 1, None, Flags::SYN);
        let mut out = vec![0; 2048];
        // Answers to the forged RSTs leave before the probe arrives.
        while self.stack.poll_transmit(self.now, &mut out).is_some() {}
        self.stack.handle_packet(self.now, &probe);
        self.outcome.packets += 1;
        let seen = self.stack.poll_transmit(self.now, &mut out).map(|_| u16::from_be_bytes([out[4], out[5]]));
        let last = std::mem::replace(&mut self.identification, seen);
        let sign = matches!((last, seen), (Some(last), Some(seen)) if seen.wrapping_sub(last) > 1);
        self.outcome.signs += u64::from(sign);
        sign
    }

    /// Tries the sequence numbers one window apart, then finds the left edge of the window by binary search.
    fn run(mut self) -> Outcome {
        self.answered([]);
        let step = self.window;
        let mut at = 0_u64;
        while at < 1 << 32 {
            let batch = |from: u64, count: u32| (0..count).map(move |n| (from as u32).wrapping_add(n * step));
            if self.answered(batch(at, BATCH)) {
                let found = (0..BATCH).find(|n| self.answered([(at as u32).wrapping_add(n * step)]));
                if let Some(n) = found {
                    self.halve((at as u32).wrapping_add(n * step));
                    break;
                }
            }
            at += u64::from(BATCH) * u64::from(step);
        }
        self.outcome.reset = self.stack.close_reason(self.victim) == Some(CloseReason::Reset);
        self.outcome
    }

    /// Finds the left edge of the window, given a number inside it, and sends a RST with it.
    fn halve(&mut self, inside: u32) {
        let (mut outside, mut inside_by) = (self.window, 0);
        while outside - inside_by > 1 {
            let middle = inside_by.midpoint(outside);
            if self.answered([inside.wrapping_sub(middle)]) { inside_by = middle } else { outside = middle }
        }
        self.answered([inside.wrapping_sub(inside_by)]);
    }
}

/// Client ISNs of the rows.
const ISNS: [u32; 3] = [0x1234_5678, 0x89ab_cdef, 0xfedc_ba98];

/// The rows of `attack off-path`.
pub fn table() -> Table {
    let title = "a stranger who knows the four-tuple forges RSTs, and probes for signs that one was answered";
    let columns = ["client's ISN", "packets sent", "signs seen", "connection"];
    let mut table = Table::new(title.into(), &columns);
    for isn in ISNS {
        let Some(outcome) = Attacker::new(isn).map(Attacker::run) else { continue };
        let end = if outcome.reset { "reset" } else { "goes on" };
        table.row([format!("{isn:#010x}").into(), outcome.packets.into(), outcome.signs.into(), end.into()]);
    }
    table
}

#[cfg(test)]
mod tests;
