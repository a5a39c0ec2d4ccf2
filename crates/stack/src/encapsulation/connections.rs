//! TCP in UDP: messages of the encapsulation, and connections that begin and end between two UDP ports.

use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::Slot;
use crate::output::Reply;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use firstflight_tcp::StateName;
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::Control;

impl Flows {
    pub(crate) fn handle_control(&mut self, key: FlowKey, control: Control, now: Instant) {
        let hash = self.table.hasher.hash(&key);
        let Some(encapsulation) = &mut self.encapsulation else { return };
        match (control, encapsulation.find(hash, &key)) {
            (Control::KeepAlive, None) => {
                self.env.journal.counters.encapsulation_resets_sent += 1;
                self.env.reply(Reply::Control(key, Control::Reset));
            }
            (Control::Reset, Some(pair)) => {
                let suspects = encapsulation.reset(pair);
                self.env.journal.counters.encapsulation_resets_believed += u64::from(!suspects.is_empty());
                self.probe_all(&suspects);
            }
            (Control::PathChallenge(path), _) => {
                self.path_challenged(&key.with_inner(path.dst_port, path.src_port), path.bits, now);
            }
            (Control::PathResponse(path), _) => {
                self.path_answered(&key.with_inner(path.dst_port, path.src_port), path.bits, now);
            }
            (Control::KeepAlive, Some(_)) | (Control::Reset, None) => {}
        }
    }

    /// See [`Stack::keep_alive`](crate::Stack::keep_alive).
    pub(crate) fn keep_alive(&mut self, to: SocketAddr) {
        let same = |ip: &&IpAddr| ip.is_ipv4() == to.is_ipv4();
        let Some(local) = self.env.config.addresses.iter().find(same).copied() else { return };
        if let Some(encapsulation) = self.encapsulation.as_ref().filter(|_| to.port() != 0) {
            let key = FlowKey::of(local, 0, to.ip(), 0).carried(encapsulation.port, to.port());
            self.env.reply(Reply::Control(key, Control::KeepAlive));
        }
    }

    /// Adds connection `index` in UDP, which begins. `opened` says whether this stack opened it.
    pub(crate) fn join_pair(&mut self, key: &FlowKey, index: u32, opened: bool, now: Instant) {
        let outer = key.outer();
        let (hash, anywhere) = (self.table.hasher.hash(&outer), self.table.hash_anywhere(key));
        let Some(encapsulation) = &mut self.encapsulation else { return };
        let pair = encapsulation.join(outer, hash, index, opened, now);
        if !opened {
            let slots = &self.table.slots;
            let ours = key.anywhere();
            let alike = |other| slots.get(other).is_some_and(|slot| slot.key.anywhere() == ours);
            // A half-open connection does not replace another one, because its SYN may be forged.
            let open = |index| slots.get(index).is_some_and(|slot| slot.conn.state() != StateName::SynRcvd);
            encapsulation.paths.add(anywhere, index, alike, |other| open(index) && !open(other));
        }
        if let Some(slot) = self.table.slots.get_mut(index) {
            slot.pair = pair;
        }
    }

    /// The handshake of child `index` in UDP is complete. From now on the child can be found without the client's
    /// UDP port, even if half-open connections prevented that before.
    pub(crate) fn carried_opened(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.table.slots.get(index) else { return };
        let (Some(pair), Some(encapsulation)) = (slot.pair, &mut self.encapsulation) else { return };
        if slot.is_client() {
            let suspects = encapsulation.opened(pair, index, &self.table.slots, now);
            return self.probe_all(&suspects);
        }
        let ours = slot.key.anywhere();
        let (hash, slots) = (self.table.hasher.hash(&ours), &self.table.slots);
        let alike = |other| slots.get(other).is_some_and(|slot| slot.key.anywhere() == ours);
        let half_open = |other| slots.get(other).is_some_and(|slot| slot.conn.state() == StateName::SynRcvd);
        encapsulation.paths.add(hash, index, alike, half_open);
        self.end_rivals(index);
    }

    /// The client repeated its SYN from another port, and the handshake of child `index` is complete: the children of the
    /// other copies end. They would take the client's segments if it had their port again, and answer them with a RST.
    fn end_rivals(&mut self, index: u32) {
        let Some(slot) = self.table.slots.get(index) else { return };
        let rival = |(other, its): (u32, &Slot)| {
            (other != index && !its.is_client() && its.conn.is_rival_of(&slot.conn)).then_some(other)
        };
        let rivals: Vec<u32> = self.alike(&slot.key).filter_map(rival).collect();
        for rival in rivals {
            if let Some(slot) = self.table.slots.get_mut(rival) {
                slot.conn.left_for_rival(&mut self.env.pool);
                self.touched(rival);
            }
        }
    }

    /// Removes connection `index`, if it is in UDP, from its pair of ports.
    pub(crate) fn leave_pair(&mut self, index: u32) {
        let Some(slot) = self.table.slots.get_mut(index) else { return };
        let Some(pair) = slot.pair.take() else { return };
        let anywhere = self.table.hasher.hash(&slot.key.anywhere());
        if let Some(encapsulation) = &mut self.encapsulation
            && encapsulation.leave(pair, index)
        {
            encapsulation.paths.remove(anywhere, index);
        }
    }

    /// Connection `index` in UDP is over. If a client opened it, its end can be found without the client's UDP port.
    pub(crate) fn carried_ended(&mut self, index: u32, now: Instant) {
        self.leave_pair(index);
        if let Some(encapsulation) = &mut self.encapsulation {
            encapsulation.paths.forget(index);
        }
        self.note_closed(index, now);
    }

    /// Does what is due for the encapsulation at `now`.
    pub(crate) fn handle_encapsulation_timeout(&mut self, now: Instant) {
        if let Some(encapsulation) = &mut self.encapsulation {
            let suspects = encapsulation.handle_timeout(&self.table.slots, now);
            self.probe_all(&suspects);
        }
        self.take_turns(now);
    }

    /// Asks the peers of these connections (index) for an ACK. A peer that knows a connection at another port of ours
    /// checks the new port.
    fn probe_all(&mut self, suspects: &[u32]) {
        for index in suspects {
            if let Some(slot) = self.table.slots.get_mut(*index) {
                slot.conn.probe();
                self.touched(*index);
            }
        }
    }
}
