//! TCPCT (RFC 6013) as a small model: a server that keeps nothing until the third packet. It must answer the data of a
//! SYN at once, in the SYN-ACK, with one packet at most (the Fast Open paper, 8).

use super::{Base, Numbers, REQUEST, RESPONSE};
use std::collections::VecDeque;
use std::time::Duration;

/// IP and TCP headers with MSS and a cookie of 8 bytes as an option of 10 (RFC 6013, 6.2), padded: both SYNs.
const SYN: usize = 20 + 20 + 4 + 12;
/// A packet on the path.
const MTU: usize = 1500;

/// Packets between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packet {
    /// With a request.
    Syn,
    /// With the beginning of the response.
    SynAck(usize),
    /// With the cookie pair, and the request again, since the server remembers nothing.
    Ack,
    Data(usize),
}

/// The server. It has connections only for those who sent the third packet.
#[derive(Debug, Default)]
struct Server {
    connections: u32,
    executed: u32,
}

impl Server {
    fn handle(&mut self, packet: Packet) -> Vec<Packet> {
        match packet {
            Packet::Syn => {
                self.executed += 1;
                vec![Packet::SynAck((MTU - SYN).min(RESPONSE))]
            }
            // The cookie proves that a SYN was answered, so the request does not run again.
            Packet::Ack => {
                self.connections += 1;
                vec![Packet::Data((MTU - 40).min(RESPONSE))]
            }
            Packet::SynAck(_) | Packet::Data(_) => Vec::new(),
        }
    }
}

/// A visit: the times of the first byte and of the first byte that was not in the SYN-ACK.
fn visit(server: &mut Server, base: Base) -> (Option<Duration>, Option<Duration>) {
    let mut wire = VecDeque::from([(base.rtt / 2, true, Packet::Syn)]);
    let (mut first, mut rest) = (None, None);
    while let Some((at, to_server, packet)) = wire.pop_front() {
        if to_server {
            wire.extend(server.handle(packet).into_iter().map(|packet| (at + base.rtt / 2, false, packet)));
            continue;
        }
        match packet {
            Packet::SynAck(len) => {
                first = first.or((len > 0).then_some(at));
                wire.push_back((at + base.rtt / 2, true, Packet::Ack));
            }
            Packet::Data(_) => rest = rest.or(Some(at)),
            Packet::Syn | Packet::Ack => {}
        }
    }
    (first, rest)
}

/// All numbers of the row.
pub fn numbers(base: Base) -> Numbers {
    let mut server = Server::default();
    let (first, later, moved) = {
        let mut visit = || visit(&mut server, base).0.map(|time| base.trips(time));
        (visit(), visit(), visit())
    };
    // A copy of a SYN, soon and late: the server has no memory of either.
    let before = server.executed;
    for _ in 0..2 {
        server.handle(Packet::Syn);
    }
    let replayed = server.executed - before;
    // A spoofed SYN: one answer, and no timer that would repeat it.
    let connections = server.connections;
    let answers = server.handle(Packet::Syn);
    let bytes = |answer: &Packet| if let Packet::SynAck(len) = answer { SYN + len } else { 0 };
    let reflected: usize = answers.iter().map(bytes).sum();
    Numbers {
        first,
        later,
        blind: Some(reflected as f64 / (SYN + REQUEST.len()) as f64),
        stolen: None,
        memory: Some(f64::from(server.connections - connections)),
        replayed: Some(replayed),
        moved,
    }
}

/// Round trips until what did not fit into the SYN-ACK begins to arrive.
pub fn rest(base: Base) -> Option<f64> {
    visit(&mut Server::default(), base).1.map(|time| base.trips(time))
}
