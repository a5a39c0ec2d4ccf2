//! A client's UDP port changes because an address translator has forgotten its mapping. The server checks the new
//! path, and the connection moves to it (`docs/udp-encapsulation.md`).
//!
//! This concerns only connections that clients opened in UDP. A segment of a known flow does not run this code.

use crate::encapsulation::paths::{
    AGAIN, Check, GAP, PREVIOUS_PORTS, PathAnswer, PreviousPort, RETURN, ROUNDS, SETTLE, TURN, TURNS_APART,
};
use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::Slot;
use crate::output::Reply;
use alloc::vec::Vec;
use firstflight_tcp::{StateName, TimeWaitAction};
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::{Control, PathProof};
use firstflight_wire::tcp::{Flags, Segment};

impl Flows {
    /// Whether a segment in UDP of no flow belongs to a connection whose client had another UDP port. If so, the
    /// segment is dropped, and the new port is checked.
    ///
    /// A segment that belongs to a connection between its own ports is not part of a search for numbers: one in TIME-WAIT,
    /// or one that it opens, because it acknowledges a SYN cookie (`opens`).
    pub(crate) fn comes_from_new_port(
        &mut self,
        key: &FlowKey,
        segment: &Segment<'_>,
        now: Instant,
        opens: impl FnOnce(&Self) -> bool,
    ) -> bool {
        let others = Flags::SYN.union(Flags::RST);
        if !segment.flags.contains(Flags::ACK) || segment.flags.intersects(others) {
            return false;
        }
        let fits = |slot: &Slot| slot.conn.fits(segment, now);
        let nearest = self.alike(key).map(|(i, slot)| (fits(slot).ok_or(()), i));
        // A connection that the segment does not fit comes last.
        let Some((distance, index)) = nearest.min_by_key(|(fit, _)| fit.unwrap_or(u32::MAX)) else {
            return self.repeats_last_ack(key, segment, now);
        };
        let misses = distance.is_err();
        if misses && (self.table.remembered(self.table.hasher.hash(key)).is_some() || opens(self)) {
            return false;
        }
        let (hash, port) = (self.table.hash_anywhere(key), key.outer_remote());
        let searched = self.encapsulation.as_mut().is_some_and(|encapsulation| {
            // Who had the connection a moment ago knows the numbers, and may want it back.
            let knows = encapsulation.paths.checks.get_mut(&index).is_some_and(|check| {
                check.expire(now);
                check.previous(port).is_some()
            });
            encapsulation.paths.is_searched(hash, index, misses, now) && !knows
        });
        if !searched && misses {
            return self.repeats_last_ack(key, segment, now);
        }
        let taken = searched || self.check_port(index, key.outer_remote(), true, now);
        if taken {
            self.env.journal.drop_packet(PacketDrop::UncheckedPath);
        }
        taken
    }

    /// The connections that a segment with this key may belong to, if its client's UDP port has changed.
    pub(crate) fn alike(&self, key: &FlowKey) -> impl Iterator<Item = (u32, &Slot)> {
        let (hash, key) = (self.table.hash_anywhere(key), key.anywhere());
        let indices =
            self.encapsulation.iter().flat_map(move |encapsulation| encapsulation.paths.alike(hash));
        indices.filter_map(move |index| {
            let slot = self.table.slots.get(index)?;
            (slot.key.anywhere() == key).then_some((index, slot))
        })
    }

    /// Challenges connection `index` at another UDP port of its client, and at the ports that can contradict that
    /// port: the connection's own port, and the previous one if the connection has just moved. False if challenges
    /// were unanswered for long enough. `answers`: the challenge answers a segment from that port. Other challenges
    /// do not count, because the client may not have sent anything yet.
    fn check_port(&mut self, index: u32, port: u16, answers: bool, now: Instant) -> bool {
        let bits = [self.env.random.next_u64(), self.env.random.next_u64()];
        let (Some(slot), Some(encapsulation)) = (self.table.slots.get(index), &mut self.encapsulation) else {
            return true;
        };
        let (key, current) = (slot.key, slot.key.outer_remote());
        let gap = slot.conn.rtt().map_or(GAP, |(srtt, _)| srtt.max(GAP));
        let check = encapsulation.paths.checks.entry(index).or_insert_with(|| Check::new(bits[0], now));
        check.expire(now);
        if let Some(previous) = check.previous.iter_mut().find(|previous| previous.port == port) {
            // Its answer counts, whatever the port says that the connection has.
            if previous.sent.is_none_or(|sent| now - sent >= gap) {
                previous.sent = Some(now);
                let previous = *previous;
                self.env.journal.counters.encapsulation_paths_checked += 1;
                self.challenge_at(&key, port, previous.bits);
            }
            return true;
        }
        if check.stays.is_some_and(|until| now < until) {
            return true;
        }
        if check.asked.is_some_and(|(asked, _)| asked == port) && check.has_given_up(now) {
            return false;
        }
        let room = self.env.outbox.has_room(3);
        if check.sent.is_some_and(|sent| now - sent < gap) || !room {
            // Not without those that contradict it.
            return true;
        }
        if check.asked.is_none_or(|(asked, _)| asked != port) {
            check.ask(port, bits[1], now);
        }
        check.sent = Some(now);
        if answers {
            if check.count == 0 {
                check.began = now;
            }
            check.count = check.count.saturating_add(1);
        }
        let oldest = check.previous.first().map(|previous| (previous.port, previous.bits));
        let to = [check.asked, Some((current, check.own)), oldest];
        self.env.journal.counters.encapsulation_paths_checked += 1;
        for (port, bits) in to.into_iter().flatten() {
            self.challenge_at(&key, port, bits);
        }
        true
    }

    /// Whether connection `index` has this port, or is being checked for it. A neighbour with the same inner ports may have
    /// got a port that another connection had, and would answer for its own connection.
    fn may_have(&self, index: u32, slot: &Slot, port: u16) -> bool {
        let check =
            self.encapsulation.as_ref().and_then(|encapsulation| encapsulation.paths.checks.get(&index));
        let asked = check.and_then(|check| check.asked);
        slot.key.outer_remote() == port || asked.is_some_and(|(asked, _)| asked == port)
    }

    /// Sends a challenge for the connection of `key` to this UDP port of its client.
    fn challenge_at(&mut self, key: &FlowKey, port: u16, bits: u64) {
        let to = key.carried(key.outer_local(), port);
        self.env.reply(Reply::Control(to, Control::PathChallenge(proof(key, bits))));
    }

    /// Asks the ports again that connections had before they moved.
    fn ask_previous(&mut self, now: Instant) {
        loop {
            let Some(paths) = self.encapsulation.as_mut().map(|encapsulation| &mut encapsulation.paths)
            else {
                return;
            };
            let Some(at) = paths.again.iter().position(|again| again.at <= now) else { return };
            let Some(mut again) = paths.again.remove(at) else { return };
            let Some(check) = paths.checks.get_mut(&again.index) else { continue };
            check.expire(now);
            let Some(oldest) = check.previous.first().copied() else { continue };
            again.round += 1;
            let index = again.index;
            if let Some(after) = AGAIN.get(again.round) {
                again.at = again.moved + *after;
                paths.again.push_back(again);
            }
            let Some(key) = self.table.slots.get(index).map(|slot| slot.key) else { continue };
            if !self
                .alike(&key)
                .any(|(other, slot)| other != index && self.may_have(other, slot, oldest.port))
            {
                self.challenge_at(&key, oldest.port, oldest.bits);
            }
        }
    }

    /// A challenge: answered if it names a connection that we opened. What the server has not taken, because it came from
    /// an unknown port, goes again behind the response.
    pub(crate) fn path_challenged(&mut self, key: &FlowKey, bits: u64, now: Instant) {
        let Some(index) = self.table.find(key) else { return };
        let Some(slot) = self.table.slots.get_mut(index) else { return };
        if !slot.is_client() || slot.conn.state() == StateName::SynSent {
            return;
        }
        slot.conn.unheard(now);
        let pair = slot.pair;
        if let (Some(pair), Some(encapsulation)) = (pair, &mut self.encapsulation) {
            encapsulation.doubt(pair, now);
        }
        let response = Control::PathResponse(proof(key, bits));
        self.env.reply(Reply::Control(key.outer(), response));
        self.touched(index);
    }

    /// Handles a response from the UDP port of `key`.
    pub(crate) fn path_answered(&mut self, key: &FlowKey, bits: u64, now: Instant) {
        let port = key.outer_remote();
        let alike: Vec<_> = self.alike(key).map(|(index, slot)| (index, slot.key.outer_remote())).collect();
        let Some(encapsulation) = &mut self.encapsulation else { return };
        let judged = alike.into_iter().find_map(|(index, current)| {
            let check = encapsulation.paths.checks.get_mut(&index)?;
            check.expire(now);
            Some((index, current, check.judge(port, bits, current)?))
        });
        let Some((index, current, answer)) = judged else { return };
        // Another connection has this four-tuple already.
        if port != current && self.table.find(key).is_some() {
            return;
        }
        // The bits are valid once.
        let spent = self.env.random.next_u64();
        let Some(check) = self.encapsulation.as_mut().and_then(|c| c.paths.checks.get_mut(&index)) else {
            return;
        };
        match answer {
            // Previous ports are still believed: the connection's own port may be an attacker's.
            PathAnswer::Stays => (check.asked, check.stays) = (None, Some(now + SETTLE)),
            PathAnswer::Returns(before) => {
                (check.asked, check.stays) = (None, Some(now + SETTLE));
                check.previous.truncate(before);
            }
            PathAnswer::Moves => {
                // The older ones stay: the newer may all be a thief's.
                check.previous.truncate(PREVIOUS_PORTS - 1);
                check.previous.push(PreviousPort {
                    port: current,
                    bits: check.own,
                    until: now + RETURN,
                    sent: None,
                });
                (check.asked, check.stays) = (None, None);
            }
        }
        check.own = spent;
        if port != current {
            let returns = matches!(answer, PathAnswer::Returns(_));
            self.move_connection(index, key, returns, now);
        }
    }

    /// The client of connection `index` is at the UDP port of `key`.
    fn move_connection(&mut self, index: u32, key: &FlowKey, returns: bool, now: Instant) {
        let before = self.table.slots.get(index).and_then(|slot| slot.pair);
        let left_port = self.table.slots.get(index).map_or(0, |slot| slot.key.outer_remote());
        let left = before.and_then(|pair| self.encapsulation.as_ref()?.has_accepted_others(pair, index));
        self.rekey(index, key, false, now);
        self.env.journal.counters.encapsulation_paths_moved += 1;
        if let Some(slot) = self.table.slots.get_mut(index) {
            slot.conn.moved(now);
        }
        self.touched(index);
        let Some(encapsulation) = &mut self.encapsulation else { return };
        let (client, port) = (key.remote_ip(), key.outer_remote());
        if returns {
            // What was told the others of the port that is left was wrong, too.
            encapsulation.paths.turns.retain(|turns| (turns.client, turns.port) != (client, left_port));
        } else {
            encapsulation.paths.redirect(client, left_port, port, now);
            encapsulation.paths.ask_again(index, now);
        }
        if let Some(pair) = left {
            encapsulation.paths.take_turns(pair, client, port, now);
        }
    }

    /// Challenges the connections whose turn it is.
    pub(crate) fn take_turns(&mut self, now: Instant) {
        self.ask_previous(now);
        loop {
            let Some(encapsulation) = &mut self.encapsulation else { return };
            let Some(at) = encapsulation.paths.turns.iter().position(|turns| turns.at <= now) else { return };
            let Some(mut turns) = encapsulation.paths.turns.remove(at) else { return };
            let Some(accepted) = encapsulation.accepted(turns.pair) else { continue };
            let members: Vec<u32> = accepted.range(turns.next..).take(TURN).copied().collect();
            turns.at = now + TURNS_APART;
            match members.last() {
                Some(last) if members.len() == TURN => turns.next = last + 1,
                _ => {
                    turns.at = now + TURNS_APART * (1 << turns.round);
                    (turns.next, turns.round) = (0, turns.round + 1);
                }
            }
            let port = turns.port;
            if turns.round < ROUNDS {
                encapsulation.paths.turns.push_back(turns);
            }
            for index in members {
                // A challenge names the inner ports only. The client may know another connection by them, from a SYN that
                // it repeated from another port. A segment shows that it knows a half-open one.
                let half_open = |slot: &Slot| slot.conn.state() == StateName::SynRcvd;
                if !self.table.slots.get(index).is_some_and(half_open) {
                    self.check_port(index, port, false, now);
                }
            }
        }
    }

    /// Connection `index` in UDP is over. If it is in TIME-WAIT and a client opened it, its end is remembered.
    pub(crate) fn note_closed(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.table.slots.get(index) else { return };
        if slot.is_client() || slot.conn.state() != StateName::TimeWait {
            return;
        }
        let (hash, record) = (self.table.hash_anywhere(&slot.key), slot.conn.time_wait());
        if let Some(encapsulation) = &mut self.encapsulation {
            encapsulation.paths.closed.insert(hash, record, now, self.env.tcp.time_wait_lasts());
        }
    }

    /// Handles a repetition of the FIN that brought a connection into TIME-WAIT. If its numbers are exactly right,
    /// it is acknowledged to the port that it came from. The offset of our timestamps belongs to the port with
    /// which the connection began, so the acknowledgement carries the newest timestamp that the client has seen.
    fn repeats_last_ack(&mut self, key: &FlowKey, segment: &Segment<'_>, now: Instant) -> bool {
        let hash = self.table.hash_anywhere(key);
        let Some(encapsulation) = &mut self.encapsulation else { return false };
        let Some(record) = encapsulation.paths.closed.find(hash) else { return false };
        if record.judge(segment) != (TimeWaitAction::Acknowledge { restart: true })
            || segment.ack != record.snd_nxt
        {
            return false;
        }
        let lasts = self.env.tcp.time_wait_lasts();
        encapsulation.paths.closed.restart(hash, now, lasts);
        self.table.time_wait.restart(self.table.hasher.hash(key), now, lasts);
        let echo = segment.options.timestamps.map(|ts| ts.echo);
        let value = echo.unwrap_or_else(|| self.env.isn.timestamp(key, now));
        self.env.reply(Reply::time_wait(*key, &record, value));
        true
    }
}

fn proof(key: &FlowKey, bits: u64) -> PathProof {
    PathProof { src_port: key.local_port(), dst_port: key.remote_port(), bits }
}
