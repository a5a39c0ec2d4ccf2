//! `firstflight explain`: reports the outcome of the first flight of each connection in a capture, with the reason.

#[path = "../../explain/src/capture.rs"]
mod capture;
#[path = "../../explain/src/conversation.rs"]
mod conversation;
#[path = "../../explain/src/frame.rs"]
mod frame;
#[path = "../../explain/src/note.rs"]
mod note;
#[path = "../../explain/src/offered.rs"]
mod offered;
#[path = "../../explain/src/report.rs"]
mod report;
#[path = "../../explain/src/sealed.rs"]
mod sealed;
#[path = "../../explain/src/sightings.rs"]
mod sightings;
mod stats;
#[path = "../../explain/src/summary.rs"]
mod summary;
#[path = "../../explain/src/table.rs"]
mod table;
#[path = "../../explain/src/verdict.rs"]
mod verdict;

#[cfg(test)]
#[path = "../../explain/src/asap_tests.rs"]
mod asap_tests;
#[cfg(test)]
#[path = "../../explain/src/capture_tests.rs"]
mod capture_tests;
#[cfg(test)]
#[path = "../../explain/src/fixtures.rs"]
mod fixtures;
#[cfg(test)]
#[path = "../../explain/src/instead_tests.rs"]
mod instead_tests;
#[cfg(test)]
#[path = "../../explain/src/places_tests.rs"]
mod places_tests;
#[cfg(test)]
#[path = "../../explain/src/tests.rs"]
mod tests;
#[cfg(test)]
#[path = "../../explain/src/udp_tests.rs"]
mod udp_tests;
#[cfg(test)]
#[path = "../../explain/src/verdict_tests.rs"]
mod verdict_tests;

pub use capture::OpenError;

use crate::error::Error;
use crate::output;
use capture::{Capture, Damage};
use firstflight_wire::Instant;
use frame::{Content, LinkType, Place};
use indicatif::{ProgressBar, ProgressStyle};
use report::Report;
use serde::Serialize;
use sightings::Seen;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use summary::{Subject, Summary};
use table::{CONNECTIONS, Done, Table};

/// Explain what TCP Fast Open and certificates (ASAP) did in a capture, and why
///
/// Reads pcapng and pcap files (Ethernet, raw IP, Linux cooked, loopback). Reports for each TCP connection, on IP or
/// in firstflight's UDP datagrams, the outcome of its first flight, as far as the packets show it. Times are seconds
/// from the beginning of the capture. The time and the round trips to the first byte are those of the client,
/// wherever the capture was made. Connections are reported in the order in which they began; of more than 65,536, the
/// longest silent ones first. If a capture shows a packet on several devices (`-i any` on a router), it counts once.
/// A connection that was captured on both sides of an address translator counts as two.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight explain trace.pcapng
  firstflight explain trace.pcap --json
  firstflight explain trace.pcap --stats --svg shares.svg
  sudo tcpdump -i any -c 1000 -w - tcp | firstflight explain -

--stats counts as requests: those of HTTP/1.x in clear; on any other connection each burst of the client's data after
--silence in which neither end sent data, if the burst before it was answered. docs/papers-traffic.md says more.

Exit codes: 0 all was read, 1 a part of it could not be read (the rest is told), 2 it is no capture.")]
pub struct Args {
    /// The capture; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object for each connection, then one for all; with --stats one object
    #[arg(long)]
    json: bool,
    /// Instead of the connections, show what TCP's handshakes cost the requests: how many are on new connections, the
    /// handshakes' share of their time, and the distribution of the times
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    stats_options: stats::Options,
}

/// A file of this size takes long enough to read that a progress bar is shown, bytes.
const LARGE: u64 = 64 << 20;

/// Why `explain` stopped: the file is not a capture.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct ExplainError(PathBuf, OpenError);

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    if args.stats {
        return stats::run(args);
    }
    let (input, bar) = open(args).map_err(|error| ExplainError(args.file.clone(), OpenError::Io(error)))?;
    let capture = Capture::open(input).map_err(|error| ExplainError(args.file.clone(), error))?;
    let mut printer = Printer { json: args.json, bar, any: false };
    let explained = explain(capture, CONNECTIONS, |report| printer.connection(report));
    printer.bar.finish_and_clear();
    let Explained { summary, damage, unread } = explained;
    if args.json {
        output::json(&Line::Summary(summary.record(damage.as_ref().map(ToString::to_string))));
    } else {
        output::line(&format_args!("{}{summary}", if printer.any { "\n" } else { "" }));
    }
    let complete = unread.is_none() && damage.is_none();
    complain_of(&args.file, unread, damage.as_ref());
    Ok(ExitCode::from(u8::from(!complete)))
}

/// Says what could not be read.
fn complain_of(file: &Path, unread: Option<LinkType>, damage: Option<&Damage>) {
    let file = file.display();
    if let Some(link) = unread {
        output::complain(&format_args!(
            "{file}: packets of link type {link} were left out: capture Ethernet, raw IP, Linux cooked or loopback"
        ));
    }
    if let Some(damage) = damage {
        output::complain(&format_args!("{file}: damaged: {damage}; only what comes before is told"));
    }
}

fn open(args: &Args) -> std::io::Result<(Box<dyn Read>, ProgressBar)> {
    if args.file.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), ProgressBar::hidden()));
    }
    let file = File::open(&args.file)?;
    let length = file.metadata()?.len();
    let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) if length >= LARGE => ProgressBar::new(length).with_style(style),
        _ => ProgressBar::hidden(),
    };
    Ok((Box::new(bar.wrap_read(file)), bar))
}

/// A line of the JSON output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line {
    Connection(report::Record),
    Summary(summary::Record),
}

struct Printer {
    json: bool,
    bar: ProgressBar,
    /// Whether a line was printed.
    any: bool,
}

impl Printer {
    fn connection(&mut self, report: &Report<'_>) {
        if !self.any && std::io::stdout().is_terminal() {
            // From here on the printed lines show the progress.
            self.bar.finish_and_clear();
        }
        self.any = true;
        if self.json {
            output::json(&Line::Connection(report.record()));
        } else {
            output::line(report);
        }
    }
}

/// What remains to be reported after all connections.
struct Explained {
    summary: Summary,
    damage: Option<Damage>,
    /// A link type that is not supported.
    unread: Option<LinkType>,
}

/// Reads a capture and reports each connection once. Keeps at most `limit` connections at a time.
fn explain<R: Read>(mut capture: Capture<R>, limit: usize, mut tell: impl FnMut(&Report<'_>)) -> Explained {
    let mut table = Table::new(limit);
    let mut summary = Summary::new();
    let mut origin = None;
    let mut unread = None;
    let damage = loop {
        let frame = match capture.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        };
        let at = frame.at;
        // The header of a cooked frame has more information than the file.
        let device = frame.device.map(Place::device);
        let place = Place::of(frame.link, frame.bytes).or(device);
        let origin = *origin.get_or_insert(at);
        if !frame.link.is_known() {
            unread = Some(frame.link);
        }
        if let Some(content) = Content::read(frame.link, frame.bytes)
            && let Some(done) = table.handle(Seen { at, place }, &content)
        {
            conclude(origin, &done, &mut summary, &mut tell);
        }
    };
    for done in table.finish() {
        conclude(origin.unwrap_or_default(), &done, &mut summary, &mut tell);
    }
    Explained { summary, damage, unread }
}

fn conclude(
    origin: Instant,
    (ends, conversation): &Done,
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
