//! How a member proves, when it starts, that it owes the store nothing.
//!
//! A member owes the store each first flight that it refused without the store's knowledge: the data comes by an
//! ordinary handshake, and a copy of the SYN must not be accepted later. These debts are kept in memory only. A member
//! that was killed has lost them, so it begins a new memory for all members, in which nothing earlier is valid.
//!
//! A member that stops and owes nothing writes a random ticket to the store and to a file. The next start
//! removes the ticket from the file, and marks it as used in the store. So the proof is made only when it is
//! true, it is valid for one start, and a file that was lost, copied or restored from a backup proves
//! nothing. Nothing is written during an outage. A refusal could not wait for that: it happens at once, in
//! several places of the engine (a deadline, a plain SYN, no room).

use crate::error::StateError;
use firstflight_files::{LockError, ReadError, StateFile};
use std::io;
use std::path::Path;

/// First line of the file.
const TITLE: &str = "firstflight shared store, version 1";
/// The longest file. A longer file is not a state file.
const LONGEST: usize = 256;

/// The state file. This process is its only user until this is dropped.
#[derive(Debug)]
pub(crate) struct ShutdownProof(StateFile);

impl ShutdownProof {
    /// Locks the file at `path`, and removes the ticket from it, if there is one.
    pub(crate) fn take(path: &Path) -> Result<(Self, Option<String>), StateError> {
        let file = StateFile::lock(path).map_err(|error| match error {
            LockError::Held => StateError::Locked,
            LockError::Io(error) => StateError::Io(error),
        })?;
        let text = file.read(LONGEST).map_err(unread)?;
        let ticket = text.map(|text| parse(&text).ok_or(StateError::Damaged)).transpose()?;
        if ticket.is_some() {
            file.remove()?;
        }
        // Fail now, and not at the end, if the file cannot be written.
        firstflight_files::check_writable(path)?;
        Ok((Self(file), ticket))
    }

    /// Whether [`ShutdownProof::take`] would do, while another process may use the file. It changes nothing.
    pub(crate) fn check(path: &Path) -> Result<(), StateError> {
        match firstflight_files::read(path, LONGEST) {
            Ok(text) => drop(parse(&text).ok_or(StateError::Damaged)?),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unread(error)),
        }
        Ok(firstflight_files::check_writable(path)?)
    }

    /// Keeps `ticket` for the next start.
    pub(crate) fn put(&self, ticket: &str) -> io::Result<()> {
        self.0.replace(format!("{TITLE}\nleft {ticket}\n").as_bytes())
    }
}

fn unread(error: ReadError) -> StateError {
    match error {
        ReadError::Io(error) => StateError::Io(error),
        ReadError::Open(_) | ReadError::Foreign(_) | ReadError::TooLong(_) | ReadError::NotText => {
            StateError::Damaged
        }
    }
}

fn parse(text: &str) -> Option<String> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let ticket = lines.next()?.strip_prefix("left ")?;
    let hex = ticket.len() == 32 && ticket.bytes().all(|digit| digit.is_ascii_hexdigit());
    (hex && lines.next().is_none()).then(|| ticket.to_owned())
}
