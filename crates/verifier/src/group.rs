//! Group files: the vantage points of an issuer. The issuer and its clients use the same file. The secrets
//! are in the key files that it names, and clients do not read those.
//!
//! ```text
//! # number name addresses (a comma between)            key file of the issuer
//! 1 amsterdam  192.0.2.1:4433,[2001:db8:1::1]:4433     amsterdam.token
//! 2 nairobi    198.51.100.1:4433,[2001:db8:2::1]:4433  nairobi.token
//! ```

use crate::key_file::read_token_keys;
use crate::token::GroupMember;
use firstflight_files::lines::{KeyFileError, lines};
use firstflight_wire::asap::message::{Tokens, VantageId};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A vantage point as clients know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VantageAddress {
    /// Its number in the group.
    pub id: VantageId,
    /// Its name, for people.
    pub name: String,
    /// Where it answers. A client asks at most one address of a family.
    pub addresses: Vec<SocketAddr>,
}

/// A group file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    members: Vec<(VantageAddress, Option<PathBuf>)>,
}

impl Group {
    /// Reads a file. The names of key files in it are relative to its directory.
    ///
    /// # Errors
    /// When it cannot be read or is not a group file.
    pub fn read(path: &Path) -> Result<Self, GroupError> {
        let text = std::fs::read_to_string(path).map_err(GroupError::Read)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// When it is not a group file.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, GroupError> {
        let mut group = Self::default();
        for (number, words) in lines(text) {
            let (member, key) = member(&words).ok_or(GroupError::Line(number))?;
            if group.members.iter().any(|(other, _)| other.id == member.id) {
                return Err(GroupError::Twice { line: number, id: member.id });
            }
            group.members.push((member, key.map(|key| directory.join(key))));
        }
        match group.members.len() {
            0 => Err(GroupError::Empty),
            count if count > Tokens::MAX => Err(GroupError::TooMany(count)),
            _ => Ok(group),
        }
    }

    /// The vantage points that clients ask.
    #[must_use]
    pub fn addresses(&self) -> Vec<VantageAddress> {
        self.members.iter().map(|(member, _)| member.clone()).collect()
    }

    /// The members with the keys that check their tokens, read from the key files.
    ///
    /// # Errors
    /// When a member has no key file, or it cannot be used.
    pub fn members(&self) -> Result<Vec<GroupMember>, GroupError> {
        let read = |(member, key): &(VantageAddress, Option<PathBuf>)| {
            let path = key.as_ref().ok_or(GroupError::NoKeyFile(member.id))?;
            let keys = read_token_keys(path).map_err(|error| GroupError::KeyFile(path.clone(), error))?;
            Ok(GroupMember { id: member.id, name: member.name.clone(), keys })
        };
        self.members.iter().map(read).collect()
    }
}

fn member(words: &[&str]) -> Option<(VantageAddress, Option<PathBuf>)> {
    let (id, name, addresses, key) = match *words {
        [id, name, addresses] => (id, name, addresses, None),
        [id, name, addresses, key] => (id, name, addresses, Some(PathBuf::from(key))),
        _ => return None,
    };
    let id = VantageId::new(id.parse().ok()?)?;
    let addresses = addresses.split(',').map(|one| one.parse().ok()).collect::<Option<_>>()?;
    Some((VantageAddress { id, name: name.to_owned(), addresses }, key))
}

/// Why a group file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// This line is not an entry.
    #[error(
        "line {0}: write number, name, address:port (several with commas) and, for the issuer, the key file"
    )]
    Line(usize),
    /// Two vantage points have the same number.
    #[error("line {line}: vantage point {id} is there already")]
    Twice {
        /// The second one's line.
        line: usize,
        /// The number.
        id: VantageId,
    },
    /// There is no vantage point.
    #[error("has no vantage point: write one a line")]
    Empty,
    /// More vantage points than a certificate can count.
    #[error("has {} vantage points: a certificate can count {} at most", .0, Tokens::MAX)]
    TooMany(usize),
    /// The issuer needs a key file of every vantage point.
    #[error("names no key file of vantage point {0}: the issuer needs it")]
    NoKeyFile(VantageId),
    /// A key file cannot be used.
    #[error("key file {0} {1}")]
    KeyFile(PathBuf, KeyFileError),
}

#[cfg(test)]
mod tests;
