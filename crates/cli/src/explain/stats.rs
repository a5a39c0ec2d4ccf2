//! `explain --stats`: what TCP's handshakes cost the requests of a capture, as in Figures 1 and 2 of the Fast Open paper.

#[path = "../../../explain/src/requests/data.rs"]
mod data;
#[path = "../../../explain/src/requests/flow.rs"]
mod flow;
#[path = "../../../explain/src/requests/histogram.rs"]
mod histogram;
#[path = "../../../explain/src/requests/report.rs"]
mod report;
#[path = "../../../explain/src/requests/tally.rs"]
mod tally;

#[cfg(test)]
#[path = "../../../explain/src/requests/tests.rs"]
mod tests;

use super::capture::{Capture, Damage};
use super::frame::{Content, LinkType, Place};
use super::sightings::Seen;
use super::table::{CONNECTIONS, Ends};
use super::{Args, ExplainError, OpenError};
use crate::error::Error;
use crate::{output, picture, span};
use flow::Flow;
use indicatif::{ProgressBar, ProgressStyle};
use lru::LruCache;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tally::Tally;

/// Options of `--stats`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Draw the distributions and the servers' shares into this file
    #[arg(long, value_name = "FILE", requires = "stats")]
    svg: Option<PathBuf>,
    /// The silence after which data that is not HTTP in clear is a new request
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "stats", value_parser = span::parse)]
    silence: Duration,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let fail = |error| ExplainError(args.file.clone(), error);
    let (input, bar) = super::open(args).map_err(|error| fail(OpenError::Io(error)))?;
    // What arrives by a pipe has no length: show how much was read.
    let (input, bar): (Box<dyn Read>, _) = if args.file.as_os_str() == "-" {
        let bar = counting();
        (Box::new(bar.wrap_read(input)), bar)
    } else {
        (input, bar)
    };
    let capture = Capture::open(input).map_err(fail)?;
    // Before the reading, which takes time.
    let svg = args.stats_options.svg.as_ref().map(|path| picture::File::create(path)).transpose()?;
    let Counted { tally, damage, unread } = count(capture, CONNECTIONS, args.stats_options.silence);
    bar.finish_and_clear();
    if let Some(svg) = svg {
        svg.write(&report::svg(&tally))?;
    }
    if args.json {
        output::json(&report::record(&tally, damage.as_ref().map(ToString::to_string)));
    } else {
        output::line(&report::Text(&tally).to_string().trim_end());
    }
    let complete = unread.is_none() && damage.is_none();
    super::complain_of(&args.file, unread, damage.as_ref());
    Ok(ExitCode::from(u8::from(!complete)))
}

fn counting() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    match ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}

/// What was counted, and what could not be read.
struct Counted {
    tally: Tally,
    damage: Option<Damage>,
    unread: Option<LinkType>,
}

/// Reads a capture. Keeps at most `limit` connections at a time: of more, the longest silent one is taken as over.
fn count<R: Read>(mut capture: Capture<R>, limit: usize, silence: Duration) -> Counted {
    let mut table = Table { flows: LruCache::unbounded(), limit, silence, tally: Tally::new() };
    let mut unread = None;
    let damage = loop {
        let frame = match capture.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        };
        table.tally.frames += 1;
        if !frame.link.is_known() {
            unread = Some(frame.link);
        }
        let device = frame.device.map(Place::device);
        let place = Place::of(frame.link, frame.bytes).or(device);
        let seen = Seen { at: frame.at, place };
        if let Some(Content::Tcp(src, dst, segment)) = Content::read(frame.link, frame.bytes) {
            table.tally.segments += 1;
            table.handle(seen, src, dst, &segment);
        }
    };
    Counted { tally: table.finish(), damage, unread }
}

/// The connections that were seen recently, and the sums of all.
struct Table {
    flows: LruCache<Ends, Flow>,
    limit: usize,
    silence: Duration,
    tally: Tally,
}

impl Table {
    fn handle(
        &mut self,
        seen: Seen,
        src: super::frame::End,
        dst: super::frame::End,
        segment: &firstflight_wire::tcp::Segment<'_>,
    ) {
        let (ends, from) = Ends::of(src, dst);
        let owned = self.flows.get_mut(&ends).is_some_and(|flow| flow.owns(seen, from, segment));
        if !owned {
            let full = self.flows.len() >= self.limit && !self.flows.contains(&ends);
            let oldest = if full { self.flows.pop_lru() } else { None };
            let new = Flow::new(seen, from, segment, self.silence);
            let earlier = self.flows.put(ends, new).map(|flow| (ends, flow));
            for (ends, flow) in oldest.into_iter().chain(earlier) {
                end(&mut self.tally, &ends, flow);
            }
        }
        let Self { flows, tally, .. } = self;
        if let Some(flow) = flows.get_mut(&ends) {
            let mut over = Vec::new();
            flow.handle(seen, (&ends, from), segment, &mut |exchange| over.push(exchange));
            if !over.is_empty() {
                let server = ends.end(flow.server());
                over.iter().for_each(|exchange| tally.request(server, exchange));
            }
        }
    }

    fn finish(mut self) -> Tally {
        while let Some((ends, flow)) = self.flows.pop_lru() {
            end(&mut self.tally, &ends, flow);
        }
        self.tally
    }
}

fn end(tally: &mut Tally, ends: &Ends, mut flow: Flow) {
    let server = ends.end(flow.server());
    flow.finish(&mut |exchange| tally.request(server, &exchange));
    tally.connection(ends, &flow);
}
