//! What is wrong with a zone, and where.

use super::entries::EntryFault;
use core::fmt;
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::txt::ParseError;
use std::io;
use std::path::PathBuf;

/// A line of a zone file, or of a file that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file. `None` for a text that is not from a file.
    pub file: Option<PathBuf>,
    /// The line at which the entry begins, from 1.
    pub line: usize,
}

/// A mistake in a zone. The zone's author is at fault.
#[derive(Debug)]
pub struct ZoneError {
    /// Where it is. `None` if something is missing.
    pub place: Option<Place>,
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
#[derive(Debug)]
#[non_exhaustive]
pub enum ZoneFault {
    /// The text has no entries.
    Entry(EntryFault),
    /// An entry that cannot be parsed.
    Syntax(ParseError),
    /// An entry that lacks the type of its record.
    Incomplete,
    /// An entry that begins with a space, without an entry with a name before it.
    NoName,
    /// An unknown directive, or one with wrong arguments.
    Directive,
    /// An included file that cannot be read.
    Include(PathBuf, io::Error),
    /// Files that include each other.
    Depth,
    /// No SOA record at the origin.
    NoSoa,
    /// No NS record at the origin.
    NoServers,
    /// An SOA record at another name.
    Soa(Name),
    /// A second SOA record.
    TwoSoas,
    /// A name that is not in the zone.
    Outside(Name),
    /// Another class than IN.
    Class(Name),
    /// A TTL above 2³¹ − 1 (RFC 2181 §8).
    Ttl(Name),
    /// A CNAME record together with others (RFC 1034 §3.6.2).
    Alias(Name),
    /// A type that is not served.
    Unsupported(Name, RecordType),
    /// The target of an SVCB or HTTPS record without its final dot.
    RelativeTarget(Name),
    /// A parameter of an SVCB or HTTPS record that cannot be parsed, or occurs twice.
    Parameter(Name),
    /// The zone's name leaves no room for names below it.
    NameTooLong,
}

impl ZoneFault {
    pub(super) fn at(self, place: impl Into<Option<Place>>) -> ZoneError {
        ZoneError { place: place.into(), fault: self }
    }
}

impl fmt::Display for ZoneFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(fault) => fault.fmt(f),
            Self::Syntax(error) => {
                write!(f, "an entry that cannot be read: {}", shortened(&error.to_string()))
            }
            Self::Incomplete => f.write_str("a record without a type"),
            Self::NoName => f.write_str("a record without a name: write it in front"),
            Self::Directive => f.write_str(
                "an unknown directive, or one with wrong arguments: write $ORIGIN NAME, $TTL TIME or $INCLUDE FILE [NAME]",
            ),
            Self::Include(path, error) => {
                write!(f, "an included file that cannot be read, {}: {error}", path.display())
            }
            Self::Depth => f.write_str("a file that includes itself, or more than 16 files deep"),
            Self::NoSoa => f.write_str("no SOA record at its origin"),
            Self::NoServers => f.write_str("no NS record at its origin"),
            Self::Soa(name) => write!(f, "an SOA record at {name}, which is not the zone's origin"),
            Self::TwoSoas => f.write_str("a second SOA record"),
            Self::Outside(name) => write!(f, "the name {name}, which is not in the zone"),
            Self::Class(name) => write!(f, "a record of another class than IN at {name}"),
            Self::Ttl(name) => write!(f, "a TTL above 2147483647 at {name}"),
            Self::Alias(name) => write!(f, "a CNAME record beside others at {name}"),
            Self::Unsupported(name, kind) => {
                write!(f, "a record of type {kind} at {name}, which is not served")
            }
            Self::RelativeTarget(name) => {
                write!(f, "a target without its final dot in the record at {name}: write the whole name")
            }
            Self::Parameter(name) => {
                write!(f, "a parameter that cannot be read, or that is there twice, in the record at {name}")
            }
            Self::NameTooLong => f.write_str("a name that leaves no room for names below it"),
        }
    }
}

/// A message of the library on one line, without long words of the file, which may be a key file that was
/// named by mistake.
fn shortened(message: &str) -> String {
    const LONGEST: usize = 30;
    let short = |word| if str::len(word) > LONGEST { "…" } else { word };
    message.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}
