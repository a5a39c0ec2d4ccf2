//! What the shards of one endpoint hand to each other: packets that came to the wrong one, what was learnt of servers, and
//! that the endpoint ends.

mod mail;

use crate::credential::LearntOfServer;
use crate::workers::Workers;
use firstflight_stack::{Stack, Visits};
use firstflight_wire::Instant;
use std::io;
use std::sync::Arc;
use std::task::{Context, Waker};

/// What [`mail`] is made of here. The tests of its orders have their own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// The most bytes of packets that wait for one shard. Further ones are lost, as in the queue of a network card.
const MOST_BYTES: usize = 1 << 20;
/// The most records of servers that wait for one shard. Further ones are lost; the shard learns them by its own visits.
const MOST_LEARNT: usize = 4096;
/// What a packet takes besides its bytes: its visits, and its length.
const HEAD: usize = size_of::<(Visits, usize)>();

/// The boxes of all shards of one endpoint.
pub(crate) type Mail = mail::Mail<Content>;

/// What waits for one shard.
#[derive(Debug, Default)]
pub(crate) struct Content {
    packets: Vec<(Visits, usize)>,
    /// Of all packets.
    bytes: Vec<u8>,
    learnt: Vec<LearntOfServer>,
}

impl Content {
    /// Puts a packet in. False if there is no room.
    fn put(&mut self, visits: Visits, packet: &[u8]) -> bool {
        if self.bytes.len() + packet.len() + (self.packets.len() + 1) * HEAD > MOST_BYTES {
            return false;
        }
        self.packets.push((visits, packet.len()));
        self.bytes.extend_from_slice(packet);
        true
    }

    /// The same for what was learnt.
    fn tell(&mut self, learnt: &LearntOfServer) -> bool {
        let has_room = self.learnt.len() < MOST_LEARNT;
        if has_room {
            self.learnt.push(learnt.clone());
        }
        has_room
    }
}

/// One shard's access to the mail. Its driver owns it.
pub(crate) struct Mailboxes {
    index: usize,
    mail: Arc<Mail>,
    /// Memory of an earlier content, for the next one.
    spare: Content,
    /// Packets and bytes of it that were handled.
    taken: (usize, usize),
    /// It was there before this turn.
    is_rest: bool,
    waker: Option<Waker>,
    alone: bool,
    /// The threads last as long as the engine.
    _workers: Workers,
}

impl Mailboxes {
    pub(crate) fn new(index: usize, mail: &Arc<Mail>, workers: &Workers) -> Self {
        let mail = Arc::clone(mail);
        Self {
            index,
            mail,
            spare: Content::default(),
            taken: (0, 0),
            is_rest: false,
            waker: None,
            alone: false,
            _workers: workers.clone(),
        }
    }

    /// Takes what waits for this shard out of its box, if nothing of an earlier content is left. Whether something waits to be
    /// [exchanged](Self::exchange).
    pub(crate) fn open(&mut self, cx: &Context<'_>) -> bool {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            self.mail.register(self.index, cx.waker());
        }
        self.is_rest = self.has_left();
        if self.is_rest {
            return true;
        }
        self.taken = (0, 0);
        self.spare.packets.clear();
        self.spare.bytes.clear();
        self.mail.take(self.index, &mut self.spare)
    }

    /// Hands out what the stack has for other shards, and gives it what [`open`](Self::open) took. If it `sends`, it gets no more
    /// than it can answer. Returns whether another turn is needed: something is left, or may wait in the box.
    pub(crate) fn exchange(&mut self, stack: &mut Stack, now: Instant, sends: bool) -> bool {
        self.hand_out(stack);
        for learnt in self.spare.learnt.drain(..) {
            stack.handle_learnt(learnt);
        }
        if self.has_left() {
            self.handle(stack, now, sends);
            // Some messages go from shard to shard.
            self.hand_out(stack);
        }
        // What came beside a rest has rung already, and rings no more.
        self.is_rest || self.has_left()
    }

    /// Whether packets of the last content wait.
    fn has_left(&self) -> bool {
        self.taken.0 < self.spare.packets.len()
    }

    fn hand_out(&self, stack: &mut Stack) {
        let mut lost = 0;
        while let Some(packet) = stack.poll_misdirected() {
            let put = |content: &mut Content| content.put(packet.visits, packet.packet);
            lost += u32::from(!self.mail.put(packet.shard, put));
        }
        for _ in 0..lost {
            stack.count_undelivered();
        }
        while let Some(learnt) = stack.poll_learnt() {
            for index in (0..self.mail.shards()).filter(|index| *index != self.index) {
                self.mail.put(index, |content| content.tell(&learnt));
            }
        }
    }

    /// Gives the stack what is left of the last content, as far as it can answer.
    fn handle(&mut self, stack: &mut Stack, now: Instant, sends: bool) {
        let (mut packets, mut bytes) = self.taken;
        while !(sends && stack.is_full_of_answers())
            && let Some((visits, len)) = self.spare.packets.get(packets)
        {
            let packet = self.spare.bytes.get(bytes..bytes + len).unwrap_or_default();
            stack.handle_misdirected(now, *visits, packet);
            (packets, bytes) = (packets + 1, bytes + len);
        }
        self.taken = (packets, bytes);
    }

    /// This shard has no handles and no connections left. Returns whether all are in that state: until then the others
    /// need the packets that come here.
    pub(crate) fn all_alone(&mut self) -> bool {
        if !std::mem::replace(&mut self.alone, true) {
            self.mail.leave();
        }
        self.mail.all_left()
    }

    /// The error of another shard that has stopped.
    pub(crate) fn failed(&self) -> Option<io::ErrorKind> {
        self.mail.failed()
    }

    /// This shard stops with an error.
    pub(crate) fn fail(&self, error: io::ErrorKind) {
        self.mail.fail(error);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;
    use firstflight_stack::ConnectConfig;
    use std::net::{IpAddr, SocketAddr};
    use tokio::runtime::Handle;

    #[test]
    fn a_full_box_takes_no_more_and_has_room_again() {
        let mail = Mail::new(1);
        let packet = [7; 1500];
        let put = || mail.put(0, |content| content.put(Visits::default(), &packet));
        assert_eq!((0..10_000).filter(|_| put()).count(), MOST_BYTES / (packet.len() + HEAD));
        let mut taken = Content::default();
        assert!(mail.take(0, &mut taken) && !taken.bytes.is_empty());
        assert!(put());
        assert!(!mail.put(1, |_| true), "there is no such shard");
    }

    /// A shard that lives on its mail has no other reason to look again.
    #[tokio::test]
    async fn what_comes_while_a_rest_waits_is_not_forgotten() {
        let ips: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let [mut stack, mut client] =
            ips.map(|ip| Stack::new(firstflight_stack::Config::new(vec![ip], [0; 32]), Instant::ZERO));
        let mut out = [0; 1500];
        client.connect(SocketAddr::new(ips[0], 80), b"", &ConnectConfig::default(), Instant::ZERO).unwrap();
        let len = client.poll_transmit(Instant::ZERO, &mut out).unwrap();
        let syn = out[..len].to_vec();
        let mut answers =
            |stack: &mut Stack| std::iter::from_fn(|| stack.poll_transmit(Instant::ZERO, &mut out)).count();

        let (mail, workers) = (Arc::new(Mail::new(1)), Workers::on(vec![Handle::current()]).unwrap());
        let mut mailboxes = Mailboxes::new(0, &mail, &workers);
        let put = || assert!(mail.put(0, |content| content.put(Visits::default(), &syn)));
        let mut exchange = |stack: &mut Stack| {
            mailboxes.open(&Context::from_waker(Waker::noop()));
            mailboxes.exchange(stack, Instant::ZERO, true)
        };
        let mut put_in = 0;
        while !exchange(&mut stack) {
            (0..300).for_each(|_| put());
            put_in += 300;
        }
        let mut answered = answers(&mut stack);
        put();
        while exchange(&mut stack) {
            answered += answers(&mut stack);
        }
        answered += answers(&mut stack);
        assert_eq!(answered, put_in + 1);
    }
}
