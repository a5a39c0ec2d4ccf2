//! Sends the stack's questions to the shared store, and returns the answers.

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

/// Limit of questions asked at the same time. As many again may wait in the queue.
const OPEN: usize = 512;

/// The driver's side. The other side is a task, so that the store is never polled under the endpoint's lock. The task
/// ends with the driver.
pub(crate) struct Jobs {
    store: Option<Store>,
    within: Duration,
}

struct Store {
    ask: Arc<dyn SharedStore>,
    questions: mpsc::Sender<Question>,
    answers: mpsc::Receiver<(Job, Result<JobResult, StoreError>)>,
}

/// A question to the store. If it is dropped without an answer, it is reported to the store as missed. That happens at
/// the deadline, when the asking task ends, or when there is no room for more questions.
struct Question {
    job: Job,
    deadline: Instant,
    store: Arc<dyn SharedStore>,
    answered: bool,
}

impl Question {
    async fn ask(mut self) -> (Job, Result<JobResult, StoreError>) {
        let answer = timeout_at(self.deadline, self.store.ask(self.job.request)).await;
        // An error counts as an answer, because the store itself returned it.
        self.answered = answer.is_ok();
        (self.job.clone(), answer.unwrap_or(Err(StoreError::TimedOut)))
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // After a panic the store's state cannot be trusted.
        if !self.answered && !std::thread::panicking() {
            self.store.missed(self.job.request);
        }
    }
}

impl Jobs {
    /// Asks `store`, and waits at most `within` for each answer. Without a store every question is refused.
    pub(crate) fn new(store: Option<Arc<dyn SharedStore>>, within: Duration) -> Self {
        let store = store.map(|store| {
            let (questions, asked) = mpsc::channel(OPEN);
            let (answered, answers) = mpsc::channel(OPEN);
            tokio::spawn(ask(asked, answered));
            Store { ask: store, questions, answers }
        });
        Self { store, within }
    }

    /// Passes answers to the stack, and takes the stack's new questions.
    pub(crate) fn exchange(&mut self, inner: &mut Inner, cx: &mut Context<'_>) {
        if let Some(store) = &mut self.store {
            while let Poll::Ready(Some((job, answer))) = store.answers.poll_recv(cx) {
                count(&mut inner.store, &job.request, answer);
                if answer == Ok(JobResult::Refuse(Reason::ClockSkew)) {
                    let now = inner.now();
                    inner.desk.clock_was_refused(now);
                }
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
        let deadline = Instant::now() + self.within;
        let question = Question { job, deadline, store: Arc::clone(&store.ask), answered: false };
        match store.questions.try_send(question) {
            Ok(()) => {
                counters.asked += 1;
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                counters.turned_away += 1;
                Err(Reason::Overloaded)
            }
            // The task is gone because the store's code panicked.
            Err(mpsc::error::TrySendError::Closed(mut question)) => {
                question.answered = true;
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
        (Ok(JobResult::Repeat | JobResult::Refuse(_)), _) => &mut counters.refused,
        (Err(StoreError::TimedOut), _) => &mut counters.timed_out,
        (Err(_), _) => &mut counters.failed,
    };
    *counter += 1;
}

/// Asks until the driver is gone and every question has ended. Questions begin in order, so an activation is sent
/// before the use of the cookie that it activates.
async fn ask(
    mut questions: mpsc::Receiver<Question>,
    answers: mpsc::Sender<(Job, Result<JobResult, StoreError>)>,
) {
    let mut open = FuturesUnordered::new();
    let mut more = true;
    while more || !open.is_empty() {
        tokio::select! {
            biased;
            Some(answered) = open.next(), if !open.is_empty() => {
                // If the driver is gone, the answer is not needed.
                let _ = answers.send(answered).await;
            }
            question = questions.recv(), if more && open.len() < OPEN => match question {
                Some(question) => open.push(question.ask()),
                None => more = false,
            },
        }
    }
}
