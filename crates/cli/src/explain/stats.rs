//! `explain --stats`: what TCP's handshakes cost the requests of a capture, as in Figures 1 and 2 of the Fast Open paper.

use super::{Args, ExplainError, Line};
use crate::error::Error;
use crate::{output, picture, span};
use firstflight_explain::{Capture, OpenError, requests};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    let counted = requests(capture, args.stats_options.silence);
    bar.finish_and_clear();
    if let Some(svg) = svg {
        svg.write(&counted.tally.svg())?;
    }
    if args.json {
        output::json(&Line::Stats(counted.record()));
    } else {
        output::line(&counted.tally.to_string().trim_end());
    }
    Ok(super::finish(&args.file, &counted.missing))
}

fn counting() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    match ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => ProgressBar::hidden(),
    }
}
