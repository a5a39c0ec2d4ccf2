//! Policies that choose the server for a first flight (thesis §5.3).

use core::net::{IpAddr, SocketAddr};
use ipnet::IpNet;
use std::collections::HashMap;

/// Chooses a server.
pub trait Policy: Send {
    /// The index in `servers`, which is not empty, of the server for a first flight of `client` that came
    /// through `resolver`. An index that is too large means the last server.
    fn choose(&mut self, client: IpAddr, resolver: IpAddr, servers: &[SocketAddr]) -> usize;
}

/// Chooses one server after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    fn choose(&mut self, _client: IpAddr, _resolver: IpAddr, servers: &[SocketAddr]) -> usize {
        let place = self.next.checked_rem(servers.len()).unwrap_or(0);
        self.next = place + 1;
        place
    }
}

/// Chooses by a table of prefixes: the server of the longest prefix that contains the client, and one server
/// after the other for clients that no prefix contains.
///
/// A line of its text is a prefix and a server, `192.0.2.0/24 198.51.100.7:4444`. Lines that begin with `#`
/// are ignored.
#[derive(Debug, Clone, Default)]
pub struct Nearest {
    servers: HashMap<IpNet, SocketAddr>,
    /// Lengths of the prefixes, longest first.
    lengths: Vec<u8>,
    others: RoundRobin,
}

impl Nearest {
    /// The most prefixes.
    pub const MAX: usize = 65_536;

    /// Parses a table. All its servers must be in `servers`.
    ///
    /// # Errors
    /// [`NearestError`], with the number of the line. The table is at fault.
    pub fn parse(text: &str, servers: &[SocketAddr]) -> Result<Self, NearestError> {
        let mut table = Self::default();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let (Some(prefix), Some(server), None) = (words.next(), words.next(), words.next()) else {
                return Err(NearestError::Line(number));
            };
            let prefix: IpNet = prefix.parse().map_err(|_| NearestError::Line(number))?;
            let server: SocketAddr = server.parse().map_err(|_| NearestError::Line(number))?;
            if !servers.contains(&server) {
                return Err(NearestError::Server(number, server));
            }
            if table.servers.len() == Self::MAX {
                return Err(NearestError::TooMany);
            }
            if table.servers.insert(prefix.trunc(), server).is_some() {
                return Err(NearestError::Twice(number));
            }
            if !table.lengths.contains(&prefix.prefix_len()) {
                table.lengths.push(prefix.prefix_len());
            }
        }
        table.lengths.sort_unstable_by(|a, b| b.cmp(a));
        Ok(table)
    }

    fn server(&self, client: IpAddr) -> Option<SocketAddr> {
        let prefixes = self.lengths.iter().filter_map(|len| IpNet::new(client, *len).ok());
        prefixes.filter_map(|prefix| self.servers.get(&prefix.trunc())).next().copied()
    }
}

impl Policy for Nearest {
    fn choose(&mut self, client: IpAddr, resolver: IpAddr, servers: &[SocketAddr]) -> usize {
        let server = self.server(client.to_canonical());
        let place = server.and_then(|server| servers.iter().position(|other| *other == server));
        place.unwrap_or_else(|| self.others.choose(client, resolver, servers))
    }
}

/// What is wrong with a table of prefixes. The table is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NearestError {
    /// This line is not a prefix and a server.
    #[error("line {0} is no prefix and server, as in: 192.0.2.0/24 198.51.100.7:4444")]
    Line(usize),
    /// This line names a server that first flights are not relayed to.
    #[error("line {0} names {1}, which no --relay does")]
    Server(usize, SocketAddr),
    /// The prefix of this line occurred before.
    #[error("line {0} has a prefix that was there before")]
    Twice(usize),
    /// More than [`Nearest::MAX`] prefixes.
    #[error("has more than {} prefixes", Nearest::MAX)]
    TooMany,
}

#[cfg(test)]
mod tests;
