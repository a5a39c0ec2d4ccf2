//! Messages to a verifier that shares the carrier's UDP port (`docs/spec/asap.md` §5.9). The stack only tells them from the
//! carrier's datagrams, and keeps them until they are taken.

use crate::event::Drop;
use crate::flow::FlowKey;
use crate::flows::Flows;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};
use firstflight_wire::asap::message::is_for_verifier;
use firstflight_wire::udp::Datagram;

/// Messages that wait to be taken. Further ones are dropped.
const WAITING: usize = 64;

/// A message to the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierMessage {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Our address that it came to. The answer leaves from there.
    pub local: IpAddr,
    /// The message.
    pub bytes: Box<[u8]>,
}

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct VerifierMessages(VecDeque<VerifierMessage>);

impl VerifierMessages {
    pub(crate) fn poll(&mut self) -> Option<VerifierMessage> {
        self.0.pop_front()
    }
}

impl Flows {
    /// Handles a UDP datagram that is not the carrier's.
    #[cold]
    pub(crate) fn handle_not_carried(&mut self, src: IpAddr, dst: IpAddr, datagram: &Datagram<'_>) {
        let Some(carrier) = &self.carrier else { return };
        let port = carrier.port;
        let for_verifier =
            carrier.verifier.is_some() && datagram.dst_port == port && is_for_verifier(datagram.payload);
        if !for_verifier {
            if self.env.concerns_us(src, dst) {
                self.env.journal.drop_packet(Drop::NotCarried);
            }
            return;
        }
        let key = FlowKey::of(dst, 0, src, 0).carried(port, datagram.src_port);
        if !self.env.comes_from_another(&key) {
            return;
        }
        let Some(waiting) = self.carrier.as_mut().and_then(|carrier| carrier.verifier.as_mut()) else {
            return;
        };
        if waiting.0.len() >= WAITING {
            return self.env.journal.drop_packet(Drop::VerifierQueueFull);
        }
        let client = SocketAddr::new(src, datagram.src_port);
        waiting.0.push_back(VerifierMessage { client, local: dst, bytes: datagram.payload.into() });
    }

    /// Sends the verifier's answer to `client`, from this address of ours.
    pub(crate) fn answer_as_verifier(&mut self, local: IpAddr, client: SocketAddr, answer: &[u8]) {
        let Some(port) = self.carrier.as_ref().map(|carrier| carrier.port) else { return };
        let key = FlowKey::of(local, 0, client.ip(), 0).carried(port, client.port());
        self.env.outbox.datagram(&key, answer, &mut self.env.journal);
    }
}
