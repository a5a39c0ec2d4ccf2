//! What the shards of one endpoint hand to each other: packets that came to the wrong one, what was learnt of servers, and
//! that the endpoint ends.

use crate::credential::Learnt;
use crate::shared::Inner;
use crate::workers::Workers;
use firstflight_stack::Visits;
use firstflight_wire::Instant;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The most bytes of packets that wait for one shard. Further ones are lost, as in the queue of a network card.
const MOST_BYTES: usize = 1 << 20;
/// The most records of servers that wait for one shard. Further ones are lost; the shard learns them by its own visits.
const MOST_LEARNT: usize = 4096;
/// What a packet takes besides its bytes: its visits, and its length.
const HEAD: usize = size_of::<(Visits, usize)>();

/// The boxes of all shards of one endpoint.
#[derive(Debug)]
pub(crate) struct Mail {
    boxes: Vec<Mailbox>,
    /// Shards that have no handles and no connections left.
    alone: AtomicUsize,
    /// The error of a shard that has stopped. The others stop, too.
    failed: Mutex<Option<io::ErrorKind>>,
    has_failed: AtomicBool,
}

/// What waits for one shard.
#[derive(Debug, Default)]
struct Mailbox {
    /// Whether there may be something. Set after it was put in.
    any: AtomicBool,
    content: Mutex<Content>,
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug, Default)]
struct Content {
    packets: Vec<(Visits, usize)>,
    /// Of all packets.
    bytes: Vec<u8>,
    learnt: Vec<Learnt>,
}

/// A panic leaves neither content nor waker in an invalid state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// Tells the shard that there is something.
    fn ring(&self) {
        if !self.any.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = lock(&self.waker).clone();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts a packet in. False if there is no room.
    fn put(&self, visits: Visits, packet: &[u8]) -> bool {
        let mut content = lock(&self.content);
        if content.bytes.len() + packet.len() + (content.packets.len() + 1) * HEAD > MOST_BYTES {
            return false;
        }
        content.packets.push((visits, packet.len()));
        content.bytes.extend_from_slice(packet);
        drop(content);
        self.ring();
        true
    }

    fn tell(&self, learnt: Learnt) {
        let mut content = lock(&self.content);
        if content.learnt.len() < MOST_LEARNT {
            content.learnt.push(learnt);
        }
        drop(content);
        self.ring();
    }
}

impl Mail {
    pub(crate) fn new(shards: usize) -> Arc<Self> {
        Arc::new(Self {
            boxes: (0..shards).map(|_| Mailbox::default()).collect(),
            alone: AtomicUsize::new(0),
            failed: Mutex::new(None),
            has_failed: AtomicBool::new(false),
        })
    }
}

/// One shard's access to the mail. Its driver owns it.
pub(crate) struct Post {
    index: usize,
    mail: Arc<Mail>,
    /// Memory of an earlier content, for the next one.
    spare: Content,
    waker: Option<Waker>,
    alone: bool,
    /// The threads last as long as the engine.
    _workers: Workers,
}

impl Post {
    pub(crate) fn new(index: usize, mail: &Arc<Mail>, workers: &Workers) -> Self {
        let mail = Arc::clone(mail);
        Self { index, mail, spare: Content::default(), waker: None, alone: false, _workers: workers.clone() }
    }

    /// Hands out what the stack has for other shards, and gives it what they had for this one.
    pub(crate) fn exchange(&mut self, inner: &mut Inner, now: Instant, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            if let Some(mailbox) = self.mail.boxes.get(self.index) {
                *lock(&mailbox.waker) = Some(cx.waker().clone());
            }
        }
        self.hand_out(inner);
        if self.take_in(inner, now) {
            // Some messages go from shard to shard.
            self.hand_out(inner);
        }
    }

    fn hand_out(&self, inner: &mut Inner) {
        let mut lost = 0;
        while let Some(packet) = inner.stack.poll_misdirected() {
            let mailbox = self.mail.boxes.get(packet.shard);
            lost += u32::from(!mailbox.is_some_and(|mailbox| mailbox.put(packet.visits, packet.packet)));
        }
        for _ in 0..lost {
            inner.stack.count_undelivered();
        }
        while let Some(learnt) = inner.stack.poll_learnt() {
            for (index, mailbox) in self.mail.boxes.iter().enumerate() {
                if index != self.index {
                    mailbox.tell(learnt.clone());
                }
            }
        }
    }

    fn take_in(&mut self, inner: &mut Inner, now: Instant) -> bool {
        let Some(mailbox) = self.mail.boxes.get(self.index) else { return false };
        if !mailbox.any.load(Ordering::Relaxed) || !mailbox.any.swap(false, Ordering::AcqRel) {
            return false;
        }
        std::mem::swap(&mut *lock(&mailbox.content), &mut self.spare);
        let mut rest = self.spare.bytes.as_slice();
        for (visits, len) in self.spare.packets.drain(..) {
            let Some((packet, behind)) = rest.split_at_checked(len) else { break };
            inner.stack.handle_misdirected(now, visits, packet);
            rest = behind;
        }
        self.spare.bytes.clear();
        for learnt in self.spare.learnt.drain(..) {
            inner.stack.handle_learnt(learnt);
        }
        true
    }

    /// This shard has no handles and no connections left. Returns whether all are in that state: until then the others
    /// need the packets that come here.
    pub(crate) fn all_alone(&mut self) -> bool {
        let all = self.mail.boxes.len();
        if !self.alone {
            self.alone = true;
            if self.mail.alone.fetch_add(1, Ordering::AcqRel) + 1 == all {
                self.mail.boxes.iter().for_each(Mailbox::wake);
            }
        }
        self.mail.alone.load(Ordering::Acquire) >= all
    }

    /// The error of another shard that has stopped.
    pub(crate) fn failed(&self) -> Option<io::ErrorKind> {
        if self.mail.has_failed.load(Ordering::Acquire) { *lock(&self.mail.failed) } else { None }
    }

    /// This shard stops with an error.
    pub(crate) fn fail(&self, error: io::ErrorKind) {
        lock(&self.mail.failed).get_or_insert(error);
        self.mail.has_failed.store(true, Ordering::Release);
        self.mail.boxes.iter().for_each(Mailbox::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_box_takes_no_more_and_has_room_again() {
        let mailbox = Mailbox::default();
        let packet = [7; 1500];
        let put = (0..10_000).filter(|_| mailbox.put(Visits::default(), &packet)).count();
        assert_eq!(put, MOST_BYTES / (packet.len() + HEAD));
        *lock(&mailbox.content) = Content::default();
        assert!(mailbox.put(Visits::default(), &packet));
    }
}
