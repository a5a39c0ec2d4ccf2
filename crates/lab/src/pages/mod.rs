//! How long whole pages take with and without Fast Open: Table 1 of the Fast Open paper, in virtual time, with a model
//! of a browser; and with what the paper could not have.

mod browser;
mod inside;
mod measure;
mod page;
mod plot;
mod report;
mod server;
#[cfg(test)]
mod tests;
mod way;
mod world;

use crate::line::Line;
use clap::Args;
use firstflight_tcp::congestion::InitialWindow;
use measure::Results;
use std::fs;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

/// Load whole pages with and without Fast Open, in virtual time: Table 1 of the Fast Open paper, and rows beyond it.
///
/// The engine is on both ends of an access line of 4 Mbit/s down, 256 kbit/s up and 128 KB buffers, under a model of a
/// browser with an empty cache. Lookups are included. The same seed gives the same output.
#[derive(Debug, Args)]
pub struct Pages {
    /// As in the paper: 20 loads of each page, and every row for every page
    #[arg(long)]
    full: bool,
    /// Chooses the jitter of servers and scripts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Rate of the uplink, kbit/s
    #[arg(long, value_name = "KBIT", default_value_t = 256, value_parser = clap::value_parser!(u64).range(8..=1_000_000))]
    up: u64,
    /// Mean time that a server thinks about a resource, up to 1s; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = think)]
    think: Duration,
    /// Write the tables into docs/papers-pages.md and the drawings into docs/figures, in the source tree
    #[arg(long)]
    write: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the pages as JSON, and load nothing
    #[arg(long, conflicts_with_all = ["full", "write", "json"])]
    describe: bool,
}

fn think(text: &str) -> Result<Duration, &'static str> {
    let time = match text.parse() {
        Ok(ms) => Some(Duration::from_millis(ms)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    time.filter(|time| *time <= Duration::from_secs(1)).ok_or("write a time up to 1s, as 3ms")
}

impl Pages {
    /// Loads of each page in each way.
    const fn loads(&self) -> u32 {
        if self.full { 20 } else { 3 }
    }

    fn setting(&self, rtt: u64, window: Window) -> world::Setting {
        let line = Line {
            rtt: Duration::from_millis(rtt),
            down: 4_000_000,
            up: self.up * 1000,
            buffer: 128 * 1024,
            mtu: 1500,
        };
        world::Setting { line, window: window.setting(), think: self.think }
    }
}

/// Round-trip times, ms.
const RTTS: [u64; 3] = [20, 100, 200];

/// The initial windows of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Three segments, as the paper's kernels had.
    Then,
    /// Ten segments.
    Now,
}

impl Window {
    const fn setting(self) -> InitialWindow {
        const THREE: NonZeroU16 = NonZeroU16::MIN.saturating_add(2);
        match self {
            Self::Then => InitialWindow::Segments(THREE),
            Self::Now => InitialWindow::Standard,
        }
    }
}

/// Runs the loads. Returns the text to print.
pub fn run(options: &Pages) -> Result<String, String> {
    let pages = page::all();
    if options.describe {
        return Ok(serde_json::Value::from_iter(pages.iter().map(page::Page::json)).to_string());
    }
    let results = measure::measure(options, &pages)?;
    if options.write {
        write(options, &results)?;
    }
    Ok(if options.json {
        report::json(options, &results).to_string()
    } else {
        report::text(options, &results)
    })
}

const MARKS: [&str; 2] = ["<!-- pages -->", "<!-- /pages -->"];

/// Puts tables and drawings into the documentation.
fn write(options: &Pages, results: &Results) -> Result<(), String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let put = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    put(&docs.join("figures/pages.svg"), &plot::gains(results)?)?;
    put(&docs.join("figures/pages-ways.svg"), &plot::ways(results)?)?;
    let page = docs.join("papers-pages.md");
    let text =
        fs::read_to_string(&page).map_err(|error| format!("cannot read {}: {error}", page.display()))?;
    let parts = text.split_once(MARKS[0]).zip(text.split_once(MARKS[1]));
    let Some(((before, _), (_, after))) = parts else {
        return Err(format!("{} has no line {} for the tables", page.display(), MARKS[0]));
    };
    let tables = report::text(options, results);
    put(&page, &format!("{before}{}\n\n```text\n{}\n```\n\n{}{after}", MARKS[0], tables.trim_end(), MARKS[1]))
}
