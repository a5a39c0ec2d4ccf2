//! Every connection of a capture, with its verdict.

use crate::capture::{Capture, Missing};
use crate::record;
use crate::report::Report;
use crate::summary::{Subject, Summary};
use crate::table::{CONNECTIONS, DoneConnection, Table};
use crate::verdict;
use firstflight_wire::Instant;
use std::io::Read;

/// What remains to be told after all connections.
#[derive(Debug)]
pub struct Explained {
    /// Counts, and a hint.
    pub summary: Summary,
    /// What could not be read.
    pub missing: Missing,
}

impl Explained {
    /// The summary as fields.
    #[must_use]
    pub fn record(&self) -> record::Summary {
        self.summary.record(self.missing.damage.as_ref().map(ToString::to_string))
    }
}

/// Reads a capture to its end, and reports each connection once to `tell`, in the order in which they began.
///
/// Keeps at most 65,536 connections at a time, which take about 50 MB: of more, the longest silent ones are reported first. A
/// packet that a capture shows on several devices counts once; a connection that was captured on both sides of an address
/// translator counts as two.
pub fn explain<R: Read>(capture: Capture<R>, tell: impl FnMut(&Report<'_>)) -> Explained {
    explain_within(CONNECTIONS, capture, tell)
}

/// Like [`explain`], with another limit of connections.
pub(crate) fn explain_within<R: Read>(
    limit: usize,
    capture: Capture<R>,
    mut tell: impl FnMut(&Report<'_>),
) -> Explained {
    let mut table = Table::new(limit);
    let mut summary = Summary::new();
    let mut origin = None;
    let missing = capture.each(|seen, content| {
        let origin = *origin.get_or_insert(seen.at);
        if let Some(done) = content.and_then(|content| table.handle(seen, &content)) {
            conclude(origin, &done, &mut summary, &mut tell);
        }
    });
    for done in table.finish() {
        conclude(origin.unwrap_or_default(), &done, &mut summary, &mut tell);
    }
    Explained { summary, missing }
}

fn conclude(
    origin: Instant,
    (ends, conversation): &DoneConnection,
    summary: &mut Summary,
    tell: &mut impl FnMut(&Report<'_>),
) {
    let Some((client_side, verdict)) = conversation.client().zip(verdict::judge(conversation, ends.in_udp()))
    else {
        summary.add_begun_before();
        return;
    };
    let (client, server) = (ends.end(client_side), ends.end(client_side.other()));
    let isn = conversation.half(client_side).syn.map(|syn| syn.isn);
    let subject =
        Subject { server: server.address.ip(), in_udp: ends.in_udp(), began: (conversation.began(), isn) };
    summary.add(subject, &verdict);
    tell(&Report { origin, began: conversation.began(), client, server, verdict: &verdict });
}
