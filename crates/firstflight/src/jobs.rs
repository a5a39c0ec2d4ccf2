//! Questions of the stack to the shared store, and the answers' way back.

use crate::credential::{JobRequest, JobResult, Reason};
use crate::shared::Inner;
use crate::store::{SharedStore, StoreCounters, StoreError};
use firstflight_stack::{Job, JobId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Questions that are open at once; and as many more that wait.
const OPEN: usize = 512;

/// The driver's end. The other one is a task, so that no store is polled under the endpoint's lock; it ends
/// with the driver.
pub(crate) struct Jobs {
    store: Option<Store>,
    within: Duration,
}

struct Store {
    ask: Arc<dyn SharedStore>,
    questions: mpsc::Sender<(Job, Instant)>,
    answers: mpsc::Receiver<(Job, Result<JobResult, StoreError>)>,
}

impl Jobs {
    /// Asks `store`, each time at most `within`. Without a store everything is refused.
    pub fn new(store: Option<Arc<dyn SharedStore>>, within: Duration) -> Self {
        let store = store.map(|store| {
            let (questions, asked) = mpsc::channel(OPEN);
            let (answered, answers) = mpsc::channel(OPEN);
            tokio::spawn(ask(Arc::clone(&store), asked, answered));
            Store { ask: store, questions, answers }
        });
        Self { store, within }
    }

    /// Gives the stack what was answered, and takes what it asks.
    pub fn exchange(&mut self, inner: &mut Inner, cx: &mut Context<'_>) {
        if let Some(store) = &mut self.store {
            while let Poll::Ready(Some((job, answer))) = store.answers.poll_recv(cx) {
                count(&mut inner.store, &job.request, answer);
                let result = answer.unwrap_or(JobResult::Refuse(Reason::StoreUnavailable));
                give(inner, job.id, result);
            }
        }
        while let Some(job) = inner.stack.poll_job() {
            let id = job.id;
            if let Err(reason) = self.ask(job, &mut inner.store) {
                give(inner, id, JobResult::Refuse(reason));
            }
        }
    }

    fn ask(&self, job: Job, counters: &mut StoreCounters) -> Result<(), Reason> {
        let store = self.store.as_ref().ok_or(Reason::StoreUnavailable)?;
        match store.questions.try_send((job, Instant::now() + self.within)) {
            Ok(()) => {
                counters.asked += 1;
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full((job, _))) => {
                store.ask.missed(job.request);
                counters.turned_away += 1;
                Err(Reason::Overloaded)
            }
            // The store's code panicked.
            Err(mpsc::error::TrySendError::Closed(_)) => {
                counters.failed += 1;
                Err(Reason::StoreUnavailable)
            }
        }
    }
}

fn give(inner: &mut Inner, id: JobId, result: JobResult) {
    let now = inner.now();
    inner.stack.handle_job(id, result, now);
}

fn count(counters: &mut StoreCounters, request: &JobRequest, answer: Result<JobResult, StoreError>) {
    let counter = match (answer, request) {
        (Ok(JobResult::Accept), JobRequest::Activate { .. }) => &mut counters.activated,
        (Ok(JobResult::Accept), _) => &mut counters.accepted,
        (Ok(JobResult::Refuse(_)), _) => &mut counters.refused,
        (Err(StoreError::TimedOut), _) => &mut counters.timed_out,
        (Err(_), _) => &mut counters.failed,
    };
    *counter += 1;
}

/// Asks until the driver is gone. Questions are begun in their order: an activation goes out before the use
/// of what it activates.
async fn ask(
    store: Arc<dyn SharedStore>,
    mut questions: mpsc::Receiver<(Job, Instant)>,
    answers: mpsc::Sender<(Job, Result<JobResult, StoreError>)>,
) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(answered) = open.next(), if !open.is_empty() => {
                if answers.send(answered).await.is_err() {
                    return;
                }
            }
            question = questions.recv(), if open.len() < OPEN => {
                let Some((job, deadline)) = question else { return };
                let store = &store;
                open.push(async move {
                    let answer = timeout_at(deadline, store.ask(job.request)).await;
                    (job, answer.unwrap_or(Err(StoreError::TimedOut)))
                });
            }
        }
    }
}
