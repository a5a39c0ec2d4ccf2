//! An address translator in front of the client of a [`Pair`], whose mapping can change.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::pair::{End, Pair};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp;
use std::cell::Cell;
use std::rc::Rc;

/// The controls of a translator.
#[derive(Clone, Default)]
pub(crate) struct Translator {
    /// The port that the server sees.
    port: Rc<Cell<u16>>,
    /// Of the encapsulation's messages that are not segments, one in `every` is lost; 0: none.
    every: Rc<Cell<u32>>,
    seen: Rc<Cell<u32>>,
    deaf: Rc<Cell<bool>>,
    /// The client's own port, as it was last seen.
    inside: Rc<Cell<u16>>,
}

impl Translator {
    pub(crate) fn port(&self) -> u16 {
        self.port.get()
    }

    /// Changes to the next port. Nothing comes through to the previous one.
    pub(crate) fn rebind(&self) {
        self.set(self.port() + 1);
    }

    pub(crate) fn set(&self, port: u16) {
        self.port.set(port);
    }

    pub(crate) fn lose_controls(&self, every: u32) {
        self.every.set(every);
    }

    pub(crate) fn lose_from_server(&self, deaf: bool) {
        self.deaf.set(deaf);
    }

    /// Whether a packet from `end` passes; it is altered.
    pub(crate) fn pass(&self, end: End, packet: &mut [u8]) -> bool {
        let ip = Packet::parse(packet).unwrap();
        let (src, dst) = (ip.src, ip.dst);
        let at = packet.len() - ip.payload.len();
        let datagram = &mut packet[at..];
        if self.every.get() > 0 && datagram[8] == 9 {
            self.seen.set(self.seen.get() + 1);
            // Pseudo-random: a pattern would always lose the same message of a check.
            if (self.seen.get().wrapping_mul(0x9e37_79b9) >> 16).is_multiple_of(self.every.get()) {
                return false;
            }
        }
        let port = self.port().to_be_bytes();
        if end == End::Client {
            self.inside.set(u16::from_be_bytes([datagram[0], datagram[1]]));
            datagram[..2].copy_from_slice(&port);
        } else if datagram[2..4] == port && !self.deaf.get() {
            datagram[2..4].copy_from_slice(&self.inside.get().to_be_bytes());
        } else {
            // The mapping no longer exists.
            return false;
        }
        udp::fill_checksum(datagram, src, dst);
        true
    }
}

/// Puts a translator on the path.
pub(crate) fn translate(pair: &mut Pair) -> Translator {
    let translator = Translator::default();
    translator.set(61_000);
    let own = translator.clone();
    pair.middlebox = Some(Box::new(move |end, packet| own.pass(end, packet)));
    translator
}
