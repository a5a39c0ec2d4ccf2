//! What a stack reports: counts, events for the application, and trace records.

pub(crate) mod counters;

use crate::event::{ConnId, PacketDrop, Trace};
use crate::journal::counters::Counters;
use crate::queue::Queue;
use alloc::collections::VecDeque;
use firstflight_wire::hint::likely;

/// The reports of a stack. Every other part writes here, and this part knows none of them.
#[derive(Debug)]
pub(crate) struct Journal {
    pub counters: Counters,
    events: Queue<Announced>,
    traces: VecDeque<Trace>,
    /// Number of trace records that are kept; 0 keeps none.
    most_traces: usize,
}

/// A pending notification, of a connection or of a listener. It has two numbers, so it travels in registers.
#[derive(Debug, Clone, Copy, Default)]
struct Announced {
    /// Index in its slab, with [`Self::LISTENER`] set if it is a listener's.
    index: u32,
    /// Generation of the connection.
    generation: u32,
}

impl Announced {
    /// The flag of a listener. No slab has as many entries.
    const LISTENER: u32 = 1 << 31;
}

/// Who has an event: a connection, or the listener at this index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    Connection(ConnId),
    Listener(u32),
}

impl Journal {
    pub(crate) fn new(most_traces: usize) -> Self {
        Self { counters: Counters::default(), events: Queue::default(), traces: VecDeque::new(), most_traces }
    }

    /// Queues an event of a connection.
    #[inline]
    pub(crate) fn announce(&mut self, index: u32, generation: u32) {
        self.events.push_back(Announced { index, generation });
    }

    /// Queues an event of the listener at `index`.
    pub(crate) fn announce_listener(&mut self, index: u32) {
        self.events.push_back(Announced { index: index | Announced::LISTENER, generation: 0 });
    }

    /// Takes the next event's subject.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Subject> {
        let Announced { index, generation } = self.events.pop_front()?;
        Some(if index & Announced::LISTENER != 0 {
            Subject::Listener(index & !Announced::LISTENER)
        } else {
            Subject::Connection(ConnId { index, generation })
        })
    }

    /// Whether trace records are kept.
    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        self.most_traces > 0
    }

    /// Keeps a trace record, if any are kept.
    pub(crate) fn trace(&mut self, record: Trace) {
        if likely(self.most_traces == 0) {
            return;
        }
        if self.traces.len() >= self.most_traces {
            self.traces.pop_front();
        }
        self.traces.push_back(record);
    }

    /// Takes the next trace record.
    pub(crate) fn poll_trace(&mut self) -> Option<Trace> {
        self.traces.pop_front()
    }

    /// Counts a packet that is dropped.
    pub(crate) fn drop_packet(&mut self, reason: PacketDrop) {
        self.counters.drop(reason);
        self.trace(Trace::Dropped(reason));
    }
}
