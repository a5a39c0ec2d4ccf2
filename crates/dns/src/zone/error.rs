//! What is wrong with a zone, and where.

use super::entries::EntryFault;
use core::fmt;
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::txt::ParseError;
use std::io;
use std::path::PathBuf;

/// A line of a zone file, or of a file that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZonePlace {
    /// The file. `None` for a text that is not from a file.
    pub file: Option<PathBuf>,
    /// The line at which the entry begins, from 1.
    pub line: usize,
}

/// A mistake in a zone. The zone's author is at fault.
#[derive(Debug)]
pub struct ZoneError {
    /// Where it is. `None` if something is missing.
    pub place: Option<ZonePlace>,
    /// The kind of mistake.
    pub fault: ZoneFault,
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "line {}: {}", place.line, self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl std::error::Error for ZoneError {}

/// A kind of mistake in a zone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneFault {
    /// The text has no entries.
    #[error("{0}")]
    Entry(EntryFault),
    /// An entry that cannot be parsed.
    #[error("an entry that cannot be read: {}", shortened(&.0.to_string()))]
    Syntax(ParseError),
    /// An entry that lacks the type of its record.
    #[error("a record without a type")]
    Incomplete,
    /// An entry that begins with a space, without an entry with a name before it.
    #[error("a record without a name: write it in front")]
    NoName,
    /// An unknown directive, or one with wrong arguments.
    #[error(
        "an unknown directive, or one with wrong arguments: write $ORIGIN NAME, $TTL TIME or $INCLUDE FILE [NAME]"
    )]
    Directive,
    /// An included file that cannot be read.
    #[error("an included file that cannot be read, {0}: {1}")]
    Include(PathBuf, io::Error),
    /// Files that include each other.
    #[error("a file that includes itself, or more than 16 files deep")]
    Depth,
    /// No SOA record at the origin.
    #[error("no SOA record at its origin")]
    NoSoa,
    /// No NS record at the origin.
    #[error("no NS record at its origin")]
    NoServers,
    /// An SOA record at another name.
    #[error("an SOA record at {0}, which is not the zone's origin")]
    Soa(Name),
    /// A second SOA record.
    #[error("a second SOA record")]
    TwoSoas,
    /// A name that is not in the zone.
    #[error("the name {0}, which is not in the zone")]
    Outside(Name),
    /// Another class than IN.
    #[error("a record of another class than IN at {0}")]
    Class(Name),
    /// A TTL above 2³¹ − 1 (RFC 2181 §8).
    #[error("a TTL above 2147483647 at {0}")]
    Ttl(Name),
    /// A CNAME record together with others (RFC 1034 §3.6.2).
    #[error("a CNAME record beside others at {0}")]
    Alias(Name),
    /// A type that is not served.
    #[error("a record of type {1} at {0}, which is not served")]
    Unsupported(Name, RecordType),
    /// The target of an SVCB or HTTPS record without its final dot.
    #[error("a target without its final dot in the record at {0}: write the whole name")]
    RelativeTarget(Name),
    /// A parameter of an SVCB or HTTPS record that cannot be parsed, or occurs twice.
    #[error("a parameter that cannot be read, or that is there twice, in the record at {0}")]
    Parameter(Name),
    /// The zone's name leaves no room for names below it.
    #[error("a name that leaves no room for names below it")]
    NameTooLong,
}

impl ZoneFault {
    pub(super) fn at(self, place: impl Into<Option<ZonePlace>>) -> ZoneError {
        ZoneError { place: place.into(), fault: self }
    }
}

/// A message of the library on one line, without long words of the file, which may be a key file that was
/// named by mistake.
fn shortened(message: &str) -> String {
    const LONGEST: usize = 30;
    let short = |word| if str::len(word) > LONGEST { "…" } else { word };
    message.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}

/// An alias (CNAME) that leads back to itself, in one or more steps. It has no address anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasLoop {
    /// The place of the first of its records.
    pub place: ZonePlace,
    /// The name of that record.
    pub name: Name,
}

impl fmt::Display for AliasLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: the CNAME record at {} leads back to itself", self.place.line, self.name)
    }
}
