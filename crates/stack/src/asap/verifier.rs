//! Messages to a verifier that shares the encapsulation's UDP port (`docs/spec/asap.md` §5.9). The stack only tells
//! them from the encapsulation's datagrams, and keeps them until they are taken.

use crate::Stack;
use crate::asap::state::VerifierMessage;
use crate::event::PacketDrop;
use crate::flow::FlowKey;
use core::net::{IpAddr, SocketAddr};
use firstflight_wire::asap::message::is_for_verifier;
use firstflight_wire::udp::Datagram;

/// Messages that wait to be taken. Further ones are dropped.
const WAITING: usize = 64;

impl Stack {
    /// From now on messages to a verifier that come to the encapsulation's UDP port are kept for
    /// [`poll_verifier_message`](Self::poll_verifier_message). At most 64 wait. False without an encapsulation.
    pub fn keep_verifier_messages(&mut self) -> bool {
        let carried = self.flows.encapsulation.is_some();
        if carried {
            self.server.asap.messages.get_or_insert_default();
        }
        carried
    }

    /// The next message to the verifier.
    pub fn poll_verifier_message(&mut self) -> Option<VerifierMessage> {
        self.server.asap.messages.as_mut()?.pop_front()
    }

    /// Sends the verifier's answer to `client`, from this address of ours and the encapsulation's port.
    pub fn send_verifier_answer(&mut self, local: IpAddr, client: SocketAddr, answer: &[u8]) {
        let Some(port) = self.flows.encapsulation.as_ref().map(|encapsulation| encapsulation.port) else {
            return;
        };
        let key = FlowKey::of(local, 0, client.ip(), 0).carried(port, client.port());
        self.flows.env.outbox.datagram(&key, answer, &mut self.flows.env.journal);
    }

    /// Handles a UDP datagram that is not the encapsulation's, whose port is `port`.
    pub(crate) fn handle_not_carried(
        &mut self,
        src: IpAddr,
        dst: IpAddr,
        port: u16,
        datagram: &Datagram<'_>,
    ) {
        let env = &mut self.flows.env;
        let for_verifier = datagram.dst_port == port && is_for_verifier(datagram.payload);
        let Some(waiting) = self.server.asap.messages.as_mut().filter(|_| for_verifier) else {
            if env.concerns_us(src, dst) {
                env.journal.drop_packet(PacketDrop::NotCarried);
            }
            return;
        };
        let key = FlowKey::of(dst, 0, src, 0).carried(port, datagram.src_port);
        if !env.comes_from_another(&key) {
            return;
        }
        if waiting.len() >= WAITING {
            return env.journal.drop_packet(PacketDrop::VerifierQueueFull);
        }
        let client = SocketAddr::new(src, datagram.src_port);
        waiting.push_back(VerifierMessage { client, local: dst, bytes: datagram.payload.into() });
    }
}
