//! One server, and the connection to it.

use crate::error::Failure;
use crate::memory::{Anonymous, Identity, field};
use crate::quorum::{self, Quorum};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Value, from_redis_value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The sections of `INFO` that every question reads: the process and its clock, whether it is a master, and how many
/// keys it evicted.
const SECTIONS: [&str; 3] = ["server", "replication", "stats"];
/// The section that names the eviction policy.
const POLICY: &str = "memory";

/// How often the eviction policy is read. It serves only as a warning: every question reads whether keys were evicted.
const POLICY_EVERY: Duration = Duration::from_secs(1);
/// From this major version on one `INFO` takes several sections (`docs/farm-store.md` has the saving).
const SECTIONS_SINCE: u32 = 7;
/// How long the replicas have to confirm the first byte.
const LEASE_WITHIN: Duration = Duration::from_millis(500);
/// How long the key that is written for the lease is kept, milliseconds.
const BEAT_LASTS: u64 = 60_000;

/// A server, as it was when the connection was made.
pub(crate) struct Node {
    pub link: MultiplexedConnection,
    /// The process that answered, as marks and the names of keys contain it.
    pub process: String,
    /// Whether one `INFO` takes several sections.
    joined: bool,
    opened: Instant,
    /// When the policy was read last, milliseconds after `opened`.
    policy_read: AtomicU64,
    /// The lease, if replicas may replace this master.
    quorum: Option<Mutex<Quorum>>,
    /// It failed. All that use it learn of it, without a question of their own.
    failed: AtomicBool,
}

/// A server's reply to a question.
pub(crate) struct Reply<T = String> {
    pub value: Option<T>,
    /// Redis' own Unix time, milliseconds.
    pub store_ms: Option<u64>,
}

impl Node {
    /// Checks which process answers on `link`, and whether it keeps all keys. `replicas` is the number
    /// of its replicas, if one of them may replace it. Then [`Self::take_lease`] comes next.
    pub(crate) async fn open(
        mut link: MultiplexedConnection,
        replicas: Option<usize>,
    ) -> Result<Self, Failure> {
        let mut all = String::new();
        // Send them one by one, because an error of a pipeline does not say which right is missing.
        for section in SECTIONS.into_iter().chain([POLICY]) {
            let info: String = redis::cmd("INFO").arg(section).query_async(&mut link).await?;
            all += &info;
        }
        let process = process(&all, replicas.is_some())?;
        check_policy(&all)?;
        let quorum = match replicas {
            Some(replicas) => Some(Mutex::new(read_quorum(&mut link, replicas).await?)),
            None => None,
        };
        Ok(Self {
            link,
            process,
            joined: major_version(&all).is_some_and(|major| major >= SECTIONS_SINCE),
            opened: Instant::now(),
            policy_read: AtomicU64::new(0),
            quorum,
            failed: AtomicBool::new(false),
        })
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Has the replicas confirm a byte at once, so that the first questions need not wait for that.
    pub(crate) async fn take_lease(&self, scope: &str) -> Result<(), Failure> {
        let Some(quorum) = &self.quorum else { return Ok(()) };
        let needed = quorum.lock().unwrap_or_else(PoisonError::into_inner).needed();
        match self.beat(scope).await {
            Ok(()) | Err(Failure::NoLease) => {}
            Err(failure) => return Err(failure),
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(needed).arg(millis(LEASE_WITHIN));
        let _: usize = wait.query_async(&mut self.link.clone()).await?;
        self.beat(scope).await
    }

    /// Writes a key that begins with `scope`, so that the replicas have something to confirm, and looks at what they have
    /// confirmed.
    pub(crate) async fn beat(&self, scope: &str) -> Result<(), Failure> {
        let key = format!("{scope}:{}:beat", self.process);
        self.ask::<String>(None, &set(key, "1", BEAT_LASTS)).await.map(drop)
    }

    /// The reply to `command`, if the process is still the same and has lost nothing, and the key of a `mark` has this
    /// value. Everything is one transaction, because a server can be replaced, or evict keys, between two commands.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        mark: Option<(&str, &str)>,
        command: &Cmd,
    ) -> Result<Reply<T>, Failure> {
        let sent = Instant::now();
        let policy = self.policy_is_due();
        let mut question = redis::pipe();
        question.atomic();
        let sections = SECTIONS.into_iter().chain(policy.then_some(POLICY));
        if self.joined {
            question.cmd("INFO").arg(sections.collect::<Vec<_>>());
        } else {
            for section in sections {
                question.cmd("INFO").arg(section);
            }
        }
        if let Some((key, _)) = mark {
            question.cmd("GET").arg(key);
        }
        question.add_command(command.clone());
        let mut replies: Vec<Value> = question.query_async(&mut self.link.clone()).await?;
        let value: Option<T> = read(replies.pop().ok_or(Failure::NoInfo)?)?;
        if let Some((_, expected)) = mark {
            let found: Option<String> = read(replies.pop().ok_or(Failure::NoInfo)?)?;
            if found.as_deref() != Some(expected) {
                return Err(Failure::OtherMark);
            }
        }
        let mut info = String::new();
        for section in replies {
            info += &read::<String>(section)?;
        }
        if policy {
            check_policy(&info)?;
        }
        let mut quorum =
            self.quorum.as_ref().map(|quorum| quorum.lock().unwrap_or_else(PoisonError::into_inner));
        let store_ms = check(&info, &self.process, quorum.as_deref_mut(), sent, Instant::now())?;
        Ok(Reply { value, store_ms })
    }

    /// Whether this question reads the policy too: one in each [`POLICY_EVERY`].
    fn policy_is_due(&self) -> bool {
        let now = millis(self.opened.elapsed());
        let due = now.saturating_sub(self.policy_read.load(Ordering::Relaxed)) >= millis(POLICY_EVERY);
        if due {
            self.policy_read.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// Checks the answer `info` to a question that was sent at `sent`: the process is still `expected`, and its replicas follow it.
/// Returns Redis' clock, Unix milliseconds.
pub(crate) fn check(
    info: &str,
    expected: &str,
    quorum: Option<&mut Quorum>,
    sent: Instant,
    now: Instant,
) -> Result<Option<u64>, Failure> {
    if expected != process(info, quorum.is_some())? {
        return Err(Failure::OtherMemory);
    }
    if let Some(quorum) = quorum {
        quorum.heard(info, sent, now)?;
    }
    let time_us = field(info, "server_time_usec").and_then(|us| us.parse::<u64>().ok());
    Ok(time_us.map(|us| us / 1000))
}

/// The process that answered. If replicas may replace it, it is another one after a replica began to follow it.
pub(crate) fn process(info: &str, with_joins: bool) -> Result<String, Failure> {
    let mut process = Identity::process(info)?;
    if with_joins {
        process += &quorum::joins(info).ok_or(Failure::NoInfo)?;
    }
    Ok(process)
}

/// What the master is configured to do without its replicas.
async fn read_quorum(link: &mut MultiplexedConnection, replicas: usize) -> Result<Quorum, Failure> {
    let mut values = [0; 2];
    for (value, name) in values.iter_mut().zip(["min-replicas-to-write", "min-replicas-max-lag"]) {
        let found: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query_async(link).await?;
        *value = found.get(1).and_then(|value| value.parse::<u64>().ok()).ok_or(Failure::NoInfo)?;
    }
    let [to_write, max_lag] = values;
    Quorum::new(to_write, max_lag, replicas)
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, Failure> {
    Ok(from_redis_value(value).map_err(redis::RedisError::from)?)
}

fn major_version(server: &str) -> Option<u32> {
    field(server, "redis_version")?.split('.').next()?.parse().ok()
}

/// Refuses a Redis that may evict keys, or does not report its policy.
fn check_policy(memory: &str) -> Result<(), Failure> {
    match field(memory, "maxmemory_policy") {
        Some("noeviction") => Ok(()),
        Some(other) => Err(Failure::Evicts(other.to_owned())),
        None => Err(Failure::NoInfo),
    }
}

impl From<Anonymous> for Failure {
    fn from(error: Anonymous) -> Self {
        match error {
            Anonymous::Replica => Self::Replica,
            Anonymous::Incomplete => Self::NoInfo,
        }
    }
}

/// A `SET` of a key that expires.
pub(crate) fn set(key: String, value: &str, lasts_ms: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("PX").arg(lasts_ms.max(1));
    command
}

pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_be_read_is_refused() {
        assert!(check_policy("# Memory\r\nmaxmemory_policy:noeviction\r\n").is_ok());
        assert!(matches!(check_policy("# Memory\r\nused_memory:1\r\n"), Err(Failure::NoInfo)));
        let evicts = check_policy("maxmemory_policy:volatile-ttl\r\n");
        assert!(matches!(evicts, Err(Failure::Evicts(policy)) if policy == "volatile-ttl"));
    }

    #[test]
    fn several_sections_at_once_since_version_7() {
        assert_eq!(major_version("redis_version:6.2.14\r\n"), Some(6));
        assert_eq!(major_version("redis_version:7.0.15\r\n"), Some(7));
        assert_eq!(major_version("redis_version:255.255.255\r\n"), Some(255));
        assert_eq!(major_version("run_id:x\r\n"), None);
    }
}
