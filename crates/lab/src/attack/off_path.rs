//! An attacker who knows a connection's four-tuple but sees none of its packets tries to reset it (RFC 5961): he
//! forges RSTs in the client's name, and looks at the answers to probes of his own for a sign that a challenge ACK left
//! in between.

use super::report::Table;
use super::world::{PORT, address, packet};
use firstflight_stack::{CloseReason, Config, ConnId, ListenConfig, Stack};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Header, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where nobody listens: a SYN to it brings a RST, whose IP header is looked at.
const CLOSED: u16 = 9;
const CLIENT_PORT: u16 = 40_000;
/// RSTs between two probes.
const BATCH: u32 = 64;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that the attacker sent.
    pub packets: u64,
    /// Probes whose answers told that something else had left.
    pub signs: u64,
    /// The connection was reset.
    pub reset: bool,
}

struct Attacker {
    stack: Stack,
    now: Instant,
    victim: ConnId,
    /// The server's window.
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
    /// A client, whose ISN this is, is connected to the server.
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

    /// Sends RSTs with these numbers, then a probe: whether anything but its answer has left since the last one.
    fn answered(&mut self, numbers: impl IntoIterator<Item = u32>) -> bool {
        // A connection challenges five times in a second.
        self.now += Duration::from_millis(250);
        for number in numbers {
            let forged = segment(address(2), CLIENT_PORT, PORT, number, None, Flags::RST);
            self.stack.handle_packet(self.now, &forged);
            self.outcome.packets += 1;
        }
        let probe = segment(address(3), 50_000, CLOSED, 1, None, Flags::SYN);
        let mut out = vec![0; 2048];
        // What the forged ones brought out leaves before the probe comes.
        while self.stack.poll_transmit(self.now, &mut out).is_some() {}
        self.stack.handle_packet(self.now, &probe);
        self.outcome.packets += 1;
        let seen = self.stack.poll_transmit(self.now, &mut out).map(|_| u16::from_be_bytes([out[4], out[5]]));
        let last = std::mem::replace(&mut self.identification, seen);
        let sign = matches!((last, seen), (Some(last), Some(seen)) if seen.wrapping_sub(last) > 1);
        self.outcome.signs += u64::from(sign);
        sign
    }

    /// Goes through the numbers a window at a time, and by halving to the left edge of the window.
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

    /// `inside` lies in the window: its left edge is the number that resets.
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
mod tests {
    use super::*;

    #[test]
    fn a_stranger_sees_no_sign_of_challenge_acks_and_resets_nothing() {
        for isn in ISNS {
            let outcome = Attacker::new(isn).map(Attacker::run).unwrap();
            println!("{isn:#x}: {outcome:?}");
            assert_eq!((outcome.signs, outcome.reset), (0, false), "{outcome:?}");
            assert!(outcome.packets > 60_000, "every window was tried: {outcome:?}");
        }
    }

    /// The edge alone resets: the attack is one that works where there are signs.
    #[test]
    fn the_number_it_looks_for_resets() {
        let mut attacker = Attacker::new(5).unwrap();
        attacker.answered([7]);
        assert_eq!(attacker.stack.close_reason(attacker.victim), None);
        attacker.answered([6]);
        assert_eq!(attacker.stack.close_reason(attacker.victim), Some(CloseReason::Reset));
    }
}
