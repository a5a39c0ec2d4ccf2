//! `firstflight explain`: reports the outcome of the first flight of each connection in a capture, with the reason.

mod stats;

use crate::error::{CommandError, Error};
use crate::output;
use firstflight_explain::{Capture, Missing, OpenError, Report, explain, record};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

impl CommandError for ExplainError {}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    if args.stats {
        return stats::run(args);
    }
    let (input, bar) = open(args).map_err(|error| ExplainError(args.file.clone(), OpenError::Io(error)))?;
    let capture = Capture::open(input).map_err(|error| ExplainError(args.file.clone(), error))?;
    let mut printer = Printer { json: args.json, bar, any: false };
    let explained = explain(capture, |report| printer.connection(report));
    printer.bar.finish_and_clear();
    if args.json {
        output::json(&Line::Summary(explained.record()));
    } else {
        output::line(&format_args!("{}{}", if printer.any { "\n" } else { "" }, explained.summary));
    }
    Ok(finish(&args.file, &explained.missing))
}

/// Says what could not be read, and by what the command ends.
fn finish(file: &Path, missing: &Missing) -> ExitCode {
    let file = file.display();
    if let Some(link) = missing.unread {
        output::complain(&format_args!(
            "{file}: packets of link type {link} were left out: capture Ethernet, raw IP, Linux cooked or loopback"
        ));
    }
    if let Some(damage) = &missing.damage {
        output::complain(&format_args!("{file}: damaged: {damage}; only what comes before is told"));
    }
    ExitCode::from(u8::from(!missing.is_nothing()))
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
    Connection(record::Connection),
    Summary(record::Summary),
    Stats(record::Requests),
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
