//! The browser's lookups.

use super::connection::Connection;
use super::{Browser, ResourceStage};
use crate::pages::way::sizes;
use crate::pair::{End, Pair};
use firstflight_wire::Instant;
use std::time::Duration;

/// Until a lookup is sent again; it doubles.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// The lookup of a host's address.
#[derive(Debug, Clone, Copy)]
pub enum Lookup {
    None,
    Asked { again: Instant, waits: Duration },
    Known,
}

impl Browser<'_> {
    /// PRECONNECT: guesses hosts from earlier visits, one for each host but the document's, and looks them up. Of the
    /// guesses this share is right; each of the others is a host that nothing needs.
    pub fn guess(&mut self, hits: f64, net: &mut Pair) {
        for host in 1..self.page.hosts {
            let right = self.jitter.guess.get(host).is_some_and(|guess| *guess < hits);
            let guess = if right { host } else { self.page.hosts + host };
            self.guessed[guess] = true;
            self.send_lookup(guess, LOOKUP_TIMEOUT, net);
        }
    }

    /// Whether the host's address is known.
    pub(super) fn is_resolved(&self, host: usize) -> bool {
        matches!(self.lookups[host], Lookup::Known)
    }

    /// Asks for the address that request `number` needs, if nothing has asked for it.
    pub(super) fn look_up(&mut self, number: usize, host: usize, net: &mut Pair) {
        if matches!(self.lookups[host], Lookup::None) {
            self.send_lookup(host, LOOKUP_TIMEOUT, net);
            self.send_inside(number, host, net);
        }
    }

    /// Sends the first line of the request inside the lookup. The other lines leave when the server has answered.
    fn send_inside(&mut self, number: usize, host: usize, net: &mut Pair) {
        let Some(mut sealer) = self.sealer.take() else { return };
        let question = self.question(number, sizes::LINE);
        let (line, rest) = question.split_at(sizes::LINE.min(question.len()));
        let config = (self.connect)(net.now);
        let id = sealer.send(net, (host, self.addresses[host].port()), line, &config);
        self.sealer = Some(sealer);
        // Without a port or memory the request waits for the address.
        let Some(id) = id else { return };
        self.stages[number] = ResourceStage::Asked;
        self.counts.connections += 1;
        let mut connection = Connection::in_lookup(net, host, id, number, rest);
        connection.number = self.trace.connect(host, net.now);
        self.trace.ask(number, connection.number, net.now);
        self.connections.push(connection);
    }

    pub(super) fn look_up_again(&mut self, net: &mut Pair) {
        for host in 0..self.lookups.len() {
            if let Lookup::Asked { again, waits } = self.lookups[host]
                && again <= net.now
            {
                self.send_lookup(host, waits * 2, net);
            }
        }
    }

    fn send_lookup(&mut self, host: usize, waits: Duration, net: &mut Pair) {
        self.counts.lookups += 1;
        self.trace.look_up(host, net.now);
        self.lookups[host] = Lookup::Asked { again: net.now + waits, waits };
        net.tell(End::Client, &(host as u32).to_be_bytes(), sizes::LOOKUP.0);
    }
}
