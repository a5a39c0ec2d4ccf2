//! Questions as Redis commands.

use crate::connection::Names;
use crate::node::{Reply, millis, set};
use firstflight::credential::{FlightId, JobRequest, JobResult, Reason, RemoteGuard, Serial};
use redis::Cmd;
use std::time::Duration;
use tokio::time::Instant;

/// How long a used cookie is remembered. This is longer than a client or a slow network can delay its
/// activation, which is at most the duration of a handshake.
const USED_LIVES: Duration = Duration::from_secs(3600);

/// A question's command, and the meaning of its reply.
pub(crate) struct Question {
    pub command: Cmd,
    about: QuestionSubject,
    /// The first flight's stamp, if a memory that has just begun must not accept it.
    stamp: Option<Stamp>,
    /// How long the store keeps the id or the used cookie from now on, if it was new.
    keeps: Option<Duration>,
}

/// What a question is about, and thus what its reply means.
#[derive(Clone, Copy)]
enum QuestionSubject {
    /// The id of a guard.
    Id,
    /// The use of a cookie, by this first flight.
    Use(Option<FlightId>),
    /// The activation of a cookie.
    Activation,
}

/// The value of a cookie that can be used, and of one that was used.
const ACTIVE: &str = "active";
const USED: &str = "used";

/// The value of a cookie that this first flight uses.
fn used(flight: Option<FlightId>) -> String {
    flight.map_or(USED.to_owned(), |flight| format!("{USED}:{:016x}", flight.get()))
}

/// See [`JobRequest::GuardSet`].
struct Stamp {
    ahead_ms: i64,
    reach_ms: u64,
    unix_ms: Option<u64>,
}

impl Question {
    /// `None` if the store cannot answer such a question.
    pub(crate) fn new(request: JobRequest, names: &Names, cookie_lifetime: Duration) -> Option<Self> {
        Some(match request {
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, .. } => {
                let overlap_ms = if reach_ms > 0 { millis(names.overlap) } else { 0 };
                let reach_ms = reach_ms.saturating_add(overlap_ms);
                let key = names.seen(key);
                let mut command = match unix_ms {
                    // The key expires by Redis' clock, so the time does not depend on the member that asks.
                    Some(unix_ms) => until(key, "1", unix_ms.saturating_add(keep_ms)),
                    None => set(key, "1", keep_ms),
                };
                command.arg("NX");
                let stamp = Some(Stamp { ahead_ms, reach_ms, unix_ms });
                Self {
                    command,
                    about: QuestionSubject::Id,
                    stamp,
                    keeps: Some(Duration::from_millis(keep_ms)),
                }
            }
            JobRequest::Redeem { serial, flight } => {
                // Use it up whatever the value was: see the rules of `SharedStore`.
                let mut command = use_up(names, serial, &used(flight));
                command.arg("GET");
                Self { command, about: QuestionSubject::Use(flight), stamp: None, keeps: Some(USED_LIVES) }
            }
            JobRequest::Activate { serial } => {
                let mut command = set(names.cookie(serial.get()), ACTIVE, millis(cookie_lifetime));
                command.arg("NX");
                Self { command, about: QuestionSubject::Activation, stamp: None, keeps: None }
            }
            _ => return None,
        })
    }

    /// The meaning of a reply's value, whatever the memory's age is.
    fn read(&self, value: Option<&str>) -> JobResult {
        match (self.about, value) {
            (QuestionSubject::Id, Some(_))
            | (QuestionSubject::Use(_), Some(ACTIVE))
            | (QuestionSubject::Activation, _) => JobResult::Accept,
            (QuestionSubject::Id, None) => JobResult::Repeat,
            (QuestionSubject::Use(Some(flight)), Some(value)) if value == used(Some(flight)) => {
                JobResult::Repeat
            }
            (QuestionSubject::Use(_), Some(_)) => JobResult::Refuse(Reason::Replay),
            (QuestionSubject::Use(_), None) => JobResult::Refuse(Reason::NotActive),
        }
    }

    /// The first flight that a reply names as the one that used the cookie, if it is known: this one or another.
    pub(crate) fn used_by(&self, reply: &Reply) -> Option<FlightId> {
        let QuestionSubject::Use(flight) = self.about else { return None };
        match reply.value.as_deref()? {
            ACTIVE => flight,
            value => {
                let name = value.strip_prefix(USED)?.strip_prefix(':')?;
                u64::from_str_radix(name, 16).ok().map(FlightId::new)
            }
        }
    }

    /// The command that corrects what this question wrote, if its first flight was refused: the cookie was used by another
    /// one, whose name must stay, or by none. Until it has arrived, others see the wrong name, and may write it again.
    pub(crate) fn correction(&self, request: &JobRequest, reply: &Reply, names: &Names) -> Option<Cmd> {
        let JobRequest::Redeem { serial, flight } = *request else { return None };
        let value = reply.value.as_deref().unwrap_or(USED);
        let wrong = value != ACTIVE && value != used(flight);
        wrong.then(|| use_up(names, serial, value))
    }

    /// The meaning of `reply` from a memory that remembers everything since `since`. `None` if the clocks
    /// must be compared and Redis does not report its time.
    ///
    /// An id that is refused here was still set, because the data is sent by the ordinary handshake and
    /// copies of the SYN may arrive later.
    pub(crate) fn answer(&self, reply: &Reply, asked: Instant, since: Instant) -> Option<JobResult> {
        let said = self.read(reply.value.as_deref());
        let Some(stamp) = &self.stamp else { return Some(said) };
        if said == JobResult::Repeat {
            // Whatever the clocks and the memory's age are: another member may have run the data, and the client must learn that.
            return Some(said);
        }
        if stamp.unix_ms.is_some() && !stamp.is_of_clock(reply.store_ms?) {
            return Some(JobResult::Refuse(Reason::ClockSkew));
        }
        if stamp.is_below_floor(asked, since) {
            return Some(JobResult::Refuse(Reason::GuardFloor));
        }
        Some(said)
    }
}

impl Question {
    /// For how long after the question it is certain from `reply` that the memory refuses the same id or cookie.
    pub(crate) fn is_used_up_for(&self, reply: &Reply) -> Option<Duration> {
        match &self.stamp {
            // Set by this question. Redis' clock must not have passed the end already.
            Some(stamp) if Self::was_new(reply) => self.keeps.filter(|_| {
                stamp.unix_ms.is_none() || reply.store_ms.is_some_and(|ms| stamp.is_of_clock(ms))
            }),
            // Set by another one. Without a signed stamp it may end sooner than if this one had set it.
            Some(stamp) => self.keeps.filter(|_| reply.store_ms.is_some_and(|ms| stamp.is_of_clock(ms))),
            None => self.keeps,
        }
    }

    /// Whether a cookie was not valid in this memory.
    pub(crate) fn was_not_active(&self, reply: &Reply) -> bool {
        self.stamp.is_none() && self.keeps.is_some() && reply.value.is_none()
    }

    /// Whether the id of a guard question was not there before.
    pub(crate) fn was_new(reply: &Reply) -> bool {
        reply.value.is_some()
    }

    /// Whether a memory that remembers everything since `since` may have forgotten this question's stamp.
    pub(crate) fn is_below_floor(&self, asked: Instant, since: Instant) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.is_below_floor(asked, since))
    }
}

impl Stamp {
    /// Whether the stamp was compared with a clock that agrees with Redis' own.
    fn is_of_clock(&self, store_ms: u64) -> bool {
        self.unix_ms.is_some_and(|unix_ms| store_ms.abs_diff(unix_ms) <= millis(RemoteGuard::CLOCKS_APART))
    }

    fn is_below_floor(&self, asked: Instant, since: Instant) -> bool {
        let age_ms = millis(asked.saturating_duration_since(since)) as i64;
        self.reach_ms > 0 && age_ms.saturating_add(self.ahead_ms) <= self.reach_ms as i64
    }
}

/// A `SET` of a cookie that was used.
fn use_up(names: &Names, serial: Serial, value: &str) -> Cmd {
    set(names.cookie(serial.get()), value, millis(USED_LIVES))
}

/// A `SET` of a key that expires when Redis' clock shows `unix_ms`.
fn until(key: String, value: &str, unix_ms: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("PXAT").arg(unix_ms.max(1));
    command
}
