//! Identifies the memory that answers, and since when it is known.

use std::fmt;
use tokio::time::Instant;

/// The identity of a memory: the mark among its data, which is the process that it began in, and a random number. It is lost
/// together with the data (`FLUSHALL`). While it stays the same in the same process, no acknowledged command was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    mark: String,
}

/// Why an answer of `INFO` does not identify a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anonymous {
    /// It follows another Redis, and may be behind.
    Replica,
    /// A field is missing.
    Incomplete,
}

impl Identity {
    /// The process that answered, by the sections `server`, `replication` and `stats` of its `INFO`. A
    /// process counts as another one after it evicted keys.
    pub(crate) fn process(info: &str) -> Result<String, Anonymous> {
        if field(info, "role").ok_or(Anonymous::Incomplete)? != "master" {
            return Err(Anonymous::Replica);
        }
        let run = field(info, "run_id").ok_or(Anonymous::Incomplete)?;
        // This id changes when a replica is promoted, or when the process starts to follow another.
        let line = field(info, "master_replid").ok_or(Anonymous::Incomplete)?;
        let evicted = field(info, "evicted_keys").and_then(|keys| keys.parse::<u64>().ok());
        // Both ids are random. Take 64 bits of each.
        let short = |id: &str| id.chars().take(16).collect::<String>();
        let name = short(run) + &short(line);
        match evicted.ok_or(Anonymous::Incomplete)? {
            0 => Ok(name),
            keys => Ok(format!("{name}-{keys:x}")),
        }
    }

    pub(crate) fn new(mark: String) -> Self {
        Self { mark }
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Whether a memory with this mark began in `process`.
    pub(crate) fn is_of(mark: &str, process: &str) -> bool {
        mark.strip_prefix(process).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The random number alone is unique, and shorter.
        f.write_str(self.mark.rsplit_once('/').map_or(&*self.mark, |(_, random)| random))
    }
}

/// The value of a field of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The memory that answers at present.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    current: Option<(Identity, Instant)>,
}

impl Memories {
    /// Returns since when the memory `identity`, which answers now, is known to remember everything. A memory
    /// that returns after another one may lack what the other one accepted.
    pub(crate) fn met(&mut self, identity: &Identity, now: Instant) -> Instant {
        match &self.current {
            Some((known, since)) if known == identity => *since,
            _ => {
                self.current = Some((identity.clone(), now));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests;
