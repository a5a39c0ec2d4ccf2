//! A server that takes certificates, and SYNs for it, packet by packet.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::certified::{Request, certificate, policy, request};
use crate::peer::{Got, Peer, Seg, seg};
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{AsapPolicy, ClientCertificate};
use firstflight_stack::{Config, ConnId, ListenConfig, ListenerId};
use firstflight_wire::asap::{BLOCK_LEN, Hint, Reply, Status};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Segment;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;

pub(crate) const DATA: &[u8] = b"POST /pay HTTP/1.1";
/// Number of the stream's first byte when the block was accepted.
pub(crate) const BEGINS: u32 = 1 + BLOCK_LEN as u32;
/// The number after block and [`DATA`].
pub(crate) const AFTER: u32 = BEGINS + DATA.len() as u32;
/// The address of the hand-made client.
pub(crate) const CLIENT: &str = "10.0.0.2";

/// A stack with a listener that trusts verifier 1 as its own.
pub(crate) struct Server {
    pub p: Peer,
    pub listener: ListenerId,
    pub pending: Arc<PendingLimit>,
}

pub(crate) fn server() -> Server {
    server_with(|_| {}, |_| {}, |_| {})
}

pub(crate) fn trusting(tune: impl FnOnce(&mut AsapPolicy)) -> Server {
    server_with(|_| {}, tune, |_| {})
}

pub(crate) fn server_with(
    stack: impl FnOnce(&mut Config),
    asap: impl FnOnce(&mut AsapPolicy),
    listen: impl FnOnce(&mut ListenConfig),
) -> Server {
    let mut p = Peer::with(stack);
    let mut policy = policy(&[1]);
    asap(&mut policy);
    let pending = policy.pending.clone();
    let listener = p.listen_with(|config| {
        config.asap = Some(policy);
        listen(config);
    });
    Server { p, listener, pending }
}

/// The usual client's certificate.
pub(crate) fn client() -> ClientCertificate {
    certificate(1, 2, CLIENT.parse().unwrap())
}

/// Its request number `id`, made `ms` after the start.
pub(crate) fn flight_at(id: u8, ms: u64) -> Seg {
    syn(&request(&client(), id, DATA, ms))
}

/// Request number `id`, made at the start.
pub(crate) fn flight(id: u8) -> Seg {
    flight_at(id, 0)
}

/// The SYN with `request`.
pub(crate) fn syn(request: &Request) -> Seg {
    seg().syn().mss(1460).option(&request.option).data(&request.payload)
}

/// The reply in a SYN-ACK.
#[track_caller]
pub(crate) fn reply(got: &Got) -> Option<Reply> {
    let ip = Packet::parse(&got.packet).unwrap();
    let segment = Segment::parse(ip.payload).unwrap();
    segment.options.asap().map(|option| Reply::parse(option).expect("a reply that nobody can read"))
}

impl Server {
    /// Verifies together what waits. Returns the number of first flights.
    pub(crate) fn verify(&mut self) -> usize {
        let mut random = ChaCha20Rng::from_seed([9; 32]);
        let mut count = 0;
        while let Some(flights) = self.p.stack.poll_verifications() {
            count += flights.len();
            let verdicts = flights.verify(&mut random);
            self.p.stack.handle_verified(flights, &verdicts, self.p.now);
        }
        self.p.pump();
        count
    }

    /// Sends a SYN and has it verified, if needed. Returns the SYN-ACK.
    #[track_caller]
    pub(crate) fn asks(&mut self, syn: Seg) -> Got {
        self.p.send(syn);
        self.verify();
        self.p.expect().syn_ack()
    }

    /// A SYN that is accepted, with its data delivered once. Returns the SYN-ACK and the connection.
    #[track_caller]
    pub(crate) fn accepts(&mut self, syn: Seg) -> (Got, ConnId) {
        let got = self.asks(syn).ack(AFTER);
        assert_eq!(reply(&got).map(|reply| (reply.status, reply.hint)), Some((Status::Accepted, Hint::None)));
        let id = self.p.accept(self.listener);
        assert_eq!(self.p.read(id), DATA);
        self.p.nothing_to_accept(self.listener);
        (got, id)
    }

    /// A SYN that is refused with this status, with nothing delivered. Returns the reply.
    #[track_caller]
    pub(crate) fn refuses(&mut self, syn: Seg, status: Status) -> Reply {
        let got = self.asks(syn).ack(1).empty();
        let reply = reply(&got).expect("no reply");
        assert_eq!(reply.status, status);
        self.p.nothing_to_accept(self.listener);
        reply
    }

    /// Signatures verified so far.
    pub(crate) fn signatures(&self) -> u64 {
        self.p.stack.counters().signatures_verified
    }
}
