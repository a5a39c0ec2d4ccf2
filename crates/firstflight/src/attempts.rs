//! What attempts at several addresses have in common: their order, and how all of them fail.

use firstflight_credential::Outcome;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// An attempt that failed.
#[derive(Debug)]
pub struct FailedAttempt {
    /// The address that it connected to.
    pub remote: SocketAddr,
    /// The outcome of its first flight.
    pub outcome: Outcome,
    /// Why it failed.
    pub error: io::Error,
    /// The server may have executed the data.
    pub may_have_run: bool,
}

/// Why there is no connection to any of the addresses.
#[derive(Debug)]
pub struct ConnectAnyError {
    /// All attempts, in the order in which they failed. Empty if no address was given.
    pub attempts: Vec<FailedAttempt>,
}

impl fmt::Display for ConnectAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempts.is_empty() {
            return f.write_str("no address to connect to");
        }
        // A second attempt at an address, without data, often fails as the first one did: that is one failure to tell.
        let mut told = Vec::with_capacity(self.attempts.len());
        for FailedAttempt { remote, error, .. } in &self.attempts {
            let text = format!("{remote}: {error}");
            if told.contains(&text) {
                continue;
            }
            write!(f, "{}{text}", if told.is_empty() { "" } else { "; " })?;
            told.push(text);
        }
        Ok(())
    }
}

// The text contains the errors of all attempts, so `source` returns none of them.
impl std::error::Error for ConnectAnyError {}

/// The kind is that of the first failure.
impl From<ConnectAnyError> for io::Error {
    fn from(error: ConnectAnyError) -> Self {
        let kind = error.attempts.first().map_or(io::ErrorKind::InvalidInput, |first| first.error.kind());
        Self::new(kind, error)
    }
}

/// RFC 8305 §4: alternates between the families, starting with the family of the first address. The order within a
/// family is kept. Duplicates are removed.
pub(crate) fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let leading_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut leading, mut other) = (Vec::new(), Vec::new());
    for address in addresses {
        let family = if address.is_ipv4() == leading_v4 { &mut leading } else { &mut other };
        if !family.contains(address) {
            family.push(*address);
        }
    }
    let mut order = Vec::with_capacity(leading.len() + other.len());
    let mut other = other.into_iter();
    for address in leading {
        order.push(address);
        order.extend(other.next());
    }
    order.extend(other);
    order
}

#[cfg(test)]
mod tests;
