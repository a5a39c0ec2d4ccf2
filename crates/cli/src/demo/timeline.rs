//! `--timeline`: the packets of the first flights, as they were sent and received, drawn side by side.

mod label;
mod picture;
mod record;
mod watched;

#[cfg(test)]
mod tests;

pub use label::LabelPart;
pub use record::{Log, PacketPlace};

use super::DemoError;
use super::world::Visit;
use crate::output;
use firstflight::Time;
use firstflight::link::Link;
use picture::{Column, Picture};
use record::TimelineHop;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use watched::WatchedPath;

/// A column of the picture.
struct TimelineColumn {
    /// The label of its visit.
    mode: &'static str,
    title: &'static str,
    /// The visit that does the same after a lookup of the server's name.
    after_lookup: Option<&'static str>,
}

/// The columns, from left to right.
const SHOWN: [TimelineColumn; 4] = [
    TimelineColumn { mode: "handshake", title: "Ordinary handshake", after_lookup: Some("near-handshake") },
    TimelineColumn {
        mode: "fast-open-next",
        title: "Fast Open, next visit",
        after_lookup: Some("near-fast-open"),
    },
    TimelineColumn { mode: "asap-first", title: "ASAP, first contact", after_lookup: Some("near-asap") },
    TimelineColumn { mode: "near-inside", title: "ASAP inside the DNS lookup", after_lookup: None },
];

/// The picture that a demonstration draws, or none.
pub struct Timeline(Option<Drawing>);

struct Drawing {
    path: PathBuf,
    file: File,
    rtt: Duration,
    log: Log,
    /// The packets of each visit that is shown.
    visits: Vec<(&'static str, Vec<TimelineHop>)>,
}

impl Timeline {
    /// A picture in `file`, if a file is given. `rtt` is the round-trip time between client and server.
    pub fn create(file: Option<&Path>, rtt: Duration, time: &Time) -> Result<Self, DemoError> {
        let Some(path) = file else {
            return Ok(Self(None));
        };
        let file = File::create(path).map_err(|error| DemoError::Timeline(path.to_owned(), error))?;
        let log = Log::new(time.clone(), rtt);
        Ok(Self(Some(Drawing { path: path.to_owned(), file, rtt, log, visits: Vec::new() })))
    }

    /// Where packets are recorded; records nothing without a picture.
    pub fn log(&self) -> Log {
        self.0.as_ref().map_or_else(Log::default, |drawing| drawing.log.clone())
    }

    /// Returns the link at `place`, wrapped so that its packets are recorded if a picture is wanted.
    pub fn watch<L: Link + 'static>(&self, place: PacketPlace, link: L) -> Box<dyn Link> {
        match &self.0 {
            Some(drawing) => Box::new(WatchedPath::new(link, place, drawing.log.clone())),
            None => Box::new(link),
        }
    }

    /// The visit `mode` begins.
    pub fn begin(&self, mode: &str) {
        if let Some(drawing) = &self.0 {
            drawing.log.begin(SHOWN.iter().any(|shown| shown.mode == mode));
        }
    }

    /// The visit `mode` is over.
    pub fn end(&mut self, mode: &'static str) {
        if let Some(drawing) = &mut self.0 {
            let hops = drawing.log.end();
            if SHOWN.iter().any(|shown| shown.mode == mode) {
                drawing.visits.push((mode, hops));
            }
        }
    }

    /// Draws the picture.
    pub fn finish(self, visits: &[Visit]) -> Result<(), DemoError> {
        let Some(Drawing { path, mut file, rtt, visits: packets, .. }) = self.0 else {
            return Ok(());
        };
        let picture = Picture { rtt, columns: columns(rtt, visits, packets) };
        let written = write!(file, "{picture}").and_then(|()| file.flush());
        written.map_err(|error: io::Error| DemoError::Timeline(path, error))
    }
}

/// The columns of the visits that were made.
fn columns(rtt: Duration, visits: &[Visit], packets: Vec<(&'static str, Vec<TimelineHop>)>) -> Vec<Column> {
    let visit = |label: &str| visits.iter().find(|visit| visit.mode == label);
    let column = |(mode, hops): (&'static str, Vec<TimelineHop>)| {
        let (shown, made) = (SHOWN.iter().find(|shown| shown.mode == mode)?, visit(mode)?);
        Some(Column {
            title: shown.title,
            first_byte: made.first_byte_rtts,
            total: made.total_ms / output::millis(rtt),
            after_lookup: shown.after_lookup.and_then(visit).map(|visit| visit.first_byte_rtts),
            hops,
        })
    };
    packets.into_iter().filter_map(column).collect()
}
