//! What TCP's handshakes cost the requests of a capture, as in Figures 1 and 2 of the Fast Open paper.

mod data;
mod flow;
mod histogram;
mod report;
mod tally;

#[cfg(test)]
mod tests;

pub use histogram::Histogram;
pub use tally::Tally;

use crate::capture::{Capture, Missing};
use crate::frame::{Content, FrameEnd};
use crate::record;
use crate::sightings::Sighting;
use crate::table::{CONNECTIONS, FlowEnds};
use firstflight_wire::tcp::Segment;
use flow::Flow;
use lru::LruCache;
use std::io::Read;
use std::time::Duration;

/// What was counted.
#[derive(Debug)]
pub struct RequestCounts {
    /// The numbers.
    pub tally: Tally,
    /// What could not be read.
    pub missing: Missing,
}

impl RequestCounts {
    /// The numbers as fields.
    #[must_use]
    pub fn record(&self) -> record::Requests {
        report::record(&self.tally, self.missing.damage.as_ref().map(ToString::to_string))
    }
}

/// Reads a capture to its end, and counts its requests with their times at the clients.
///
/// Requests are those of HTTP/1.x in clear; on any other connection each burst of the client's data after a `silence` in which
/// neither end sent data, if the burst before it was answered. 10 ms are a good value.
///
/// Keeps at most 65,536 connections at a time: of more, the longest silent one is taken as over.
pub fn requests<R: Read>(capture: Capture<R>, silence: Duration) -> RequestCounts {
    count(CONNECTIONS, capture, silence)
}

/// Like [`requests`], with another limit of connections.
fn count<R: Read>(limit: usize, capture: Capture<R>, silence: Duration) -> RequestCounts {
    let mut table = Table { flows: LruCache::unbounded(), limit, silence, tally: Tally::new() };
    let missing = capture.each(|seen, content| {
        table.tally.frames += 1;
        if let Some(Content::Tcp(src, dst, segment)) = content {
            table.tally.segments += 1;
            table.handle(seen, src, dst, &segment);
        }
    });
    RequestCounts { tally: table.finish(), missing }
}

/// The connections that were seen recently, and the sums of all.
struct Table {
    flows: LruCache<FlowEnds, Flow>,
    limit: usize,
    silence: Duration,
    tally: Tally,
}

impl Table {
    fn handle(&mut self, seen: Sighting, src: FrameEnd, dst: FrameEnd, segment: &Segment<'_>) {
        let (ends, from) = FlowEnds::of(src, dst);
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

fn end(tally: &mut Tally, ends: &FlowEnds, mut flow: Flow) {
    let server = ends.end(flow.server());
    flow.finish(&mut |exchange| tally.request(server, &exchange));
    tally.connection(ends, &flow);
}
