//! A preface of HTTP/2 that waits for a request, which rides along.

use super::{Connect, MOST, PREFACE_WAITS, Task, http2};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// A task connects when the request is whole, or has not come in time: also if nobody polls the stream.
pub(super) struct Preface<S> {
    /// What was written; `None` once the task has taken it.
    first: Arc<Mutex<Option<Zeroizing<Vec<u8>>>>>,
    whole: Arc<Notify>,
    /// Nothing more is taken.
    full: bool,
    task: Task<S>,
}

impl<S: Send + 'static> Preface<S> {
    /// Begins to wait with `first`.
    pub(super) fn new(connect: Connect<S>, first: Zeroizing<Vec<u8>>) -> Self {
        let (first, whole) = (Arc::new(Mutex::new(Some(first))), Arc::new(Notify::new()));
        let (taken, notified) = (Arc::clone(&first), Arc::clone(&whole));
        let task = tokio::spawn(async move {
            // Either the request is there, or it comes later.
            let _ = timeout(PREFACE_WAITS, notified.notified()).await;
            let first = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            connect(first.map(|mut first| std::mem::take(&mut *first)).unwrap_or_default()).await
        });
        Self { first, whole, full: false, task: Task(task) }
    }

    /// Takes a further write; `None` if the connect has begun.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.full {
            return None;
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = first.as_mut()?;
        let room = MOST.saturating_sub(first.len());
        let part = bytes.get(..room).unwrap_or(bytes);
        // What grows in place could leave a copy of a secret behind.
        *first = Zeroizing::new([&first[..], part].concat());
        if !http2::awaits_request(first) || part.len() < bytes.len() {
            self.full = true;
            self.whole.notify_one();
        }
        (!part.is_empty() || bytes.is_empty()).then_some(part.len())
    }

    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<S>> {
        self.task.poll(cx)
    }
}
