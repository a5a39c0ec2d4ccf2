//! The options of `pages`.

use super::browser::Overhead;
use super::line::Line;
use super::page::{self, Page};
use super::way::{self, FAST_OPEN, HANDSHAKE, LoadWay, sizes};
use super::{file, world};
use crate::span::time;
use clap::Args;
use firstflight_tcp::congestion::{Algorithm, InitialWindow};
use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

/// Load whole pages with and without Fast Open, in virtual time: Table 1 of the Fast Open paper, and rows beyond it.
///
/// The engine is on both ends of an access line, by default of 4 Mbit/s down, 256 kbit/s up and 128 KB buffers, under a
/// model of a browser with an empty cache. Lookups are included. The same seed gives the same output.
#[derive(Debug, Clone, Args)]
pub struct Pages {
    /// As in the paper: 20 loads of each page, and every row for every page
    #[arg(long)]
    pub full: bool,
    /// Chooses the jitter of servers and scripts, and what is lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Load the pages of this file: a HAR file, or what `record` and `--describe` print
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Only pages with this in their name
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Only this row, and the row that it is compared with, as "sealed + ASAP"; may be given several times
    #[arg(long, value_name = "NAME", value_parser = row)]
    pub row: Vec<LoadWay>,
    /// Round-trip times of the line, 1 ms to 10 s; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "20,100,200", value_delimiter = ',', value_parser = rtt)]
    pub rtt: Vec<u64>,
    /// Rate of the downlink, kbit/s
    #[arg(long, value_name = "KBIT", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(8..=10_000_000))]
    pub down: u64,
    /// Rate of the uplink, kbit/s
    #[arg(long, value_name = "KBIT", default_value_t = 256, value_parser = clap::value_parser!(u64).range(8..=1_000_000))]
    pub up: u64,
    /// Buffer of the line in each direction, units of 1,024 bytes
    #[arg(long, value_name = "KB", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub buffer: u32,
    /// Largest packet of the line, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1280..=9000))]
    pub mtu: u16,
    /// Share of the packets that are lost at random in each direction, per cent, up to 50
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = loss)]
    pub loss: f64,
    /// Initial windows of both ends, segments; the rows beyond the paper have the last
    #[arg(long, value_name = "SEGMENTS", default_value = "3,10", value_delimiter = ',', value_parser = window)]
    pub initial_window: Vec<Window>,
    /// Share of the hosts that PRECONNECT guesses, from 0 to 1; it opens a useless connection for each of the others
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = share)]
    pub hits: f64,
    /// Congestion control of both ends: newreno, cubic or bbr
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::Cubic)]
    pub congestion: Algorithm,
    /// Mean time that a server thinks about a resource, up to 1s; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = think)]
    pub think: Duration,
    /// Time of the browser before its first packet, up to 1s; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = think)]
    pub setup: Duration,
    /// Time of the browser from the document's first byte until it scans the document, up to 1s
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = think)]
    pub commit: Duration,
    /// Length of a request, bytes; in HTTP/2 of the first
    #[arg(long, value_name = "BYTES", default_value_t = sizes::REQUEST, value_parser = length)]
    pub request: usize,
    /// Length of what is in front of a response's body, bytes; in HTTP/2 it is 100
    #[arg(long, value_name = "BYTES", default_value_t = sizes::FIELDS, value_parser = length)]
    pub fields: usize,
    /// Draw each request of the first load into this file: SVG, or JSON if its name ends so. It needs one page, one --row
    /// and one --rtt
    #[arg(long, value_name = "FILE", requires = "row")]
    pub waterfall: Option<PathBuf>,
    /// Write the tables into docs/data/pages.txt and the drawings into docs/figures, in the source tree
    #[arg(long, conflicts_with_all = ["page", "only", "row", "rtt", "down", "up", "buffer", "mtu", "loss", "initial_window", "congestion"])]
    pub write: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the pages as JSON, and load nothing
    #[arg(long, conflicts_with_all = ["full", "write", "json", "waterfall"])]
    pub describe: bool,
}

/// The value of `--think`.
pub fn think(text: &str) -> Result<Duration, &'static str> {
    time(text).ok().filter(|time| *time <= Duration::from_secs(1)).ok_or("write a time up to 1s, as 3ms")
}

/// The value of `--rtt`, ms.
pub fn rtt(text: &str) -> Result<u64, &'static str> {
    let whole = |time: &Duration| time.subsec_nanos().is_multiple_of(1_000_000);
    let ms = time(text).ok().filter(whole).map(|time| time.as_millis());
    ms.filter(|ms| (1..=10_000).contains(ms))
        .map(|ms| ms as u64)
        .ok_or("write whole milliseconds from 1ms to 10s, as 40 or 40ms")
}

fn length(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|bytes| (100..=1400).contains(bytes)).ok_or("a number of bytes from 100 to 1400")
}

fn loss(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|share| (0.0..=50.0).contains(share)).ok_or("a percentage from 0 to 50")
}

fn share(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("a share from 0 to 1")
}

fn window(text: &str) -> Result<Window, &'static str> {
    let segments = text.parse().ok().filter(|segments: &NonZeroU16| segments.get() <= 1000);
    segments.map(Window).ok_or("a number of segments from 1 to 1000")
}

/// The row of this name.
pub fn row(text: &str) -> Result<LoadWay, String> {
    let found = way::all().into_iter().find(|way| way.name.eq_ignore_ascii_case(text.trim()));
    found.ok_or_else(|| {
        let names: Vec<&str> = way::all().iter().map(|way| way.name).collect();
        format!("no row has this name; there are: {}", names.join("; "))
    })
}

/// The initial window of both ends, segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub NonZeroU16);

impl Window {
    /// Three segments, as the paper's kernels had.
    pub const THEN: Self = Self(NonZeroU16::MIN.saturating_add(2));
    /// Ten segments, as today.
    pub const NOW: Self = Self(NonZeroU16::MIN.saturating_add(9));

    /// The setting of the stack.
    pub const fn setting(self) -> InitialWindow {
        match self.0.get() {
            10 => InitialWindow::Standard,
            _ => InitialWindow::Segments(self.0),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.0.get() == 1 { "" } else { "s" };
        write!(f, "{} segment{s}", self.0)
    }
}

impl Pages {
    /// Loads of each page in each way.
    pub const fn loads(&self) -> u32 {
        if self.full { 20 } else { 3 }
    }

    /// What one load depends on.
    pub fn setting(&self, rtt: u64, window: Window) -> world::Setting {
        let line = Line {
            rtt: Duration::from_millis(rtt),
            down: self.down * 1000,
            up: self.up * 1000,
            buffer: self.buffer as usize * 1024,
            mtu: self.mtu.into(),
            loss: self.loss / 100.0,
        };
        let window = window.setting();
        let (request, fields) = (self.request, self.fields);
        let overhead = Overhead { request, fields, setup: self.setup, commit: self.commit };
        world::Setting {
            line,
            window,
            congestion: self.congestion,
            hits: self.hits,
            think: self.think,
            overhead,
        }
    }

    /// The pages to load.
    /// Errors: one line: the file cannot be read, or has no such page.
    pub fn pages(&self) -> Result<Vec<Page>, String> {
        let mut pages = match &self.page {
            Some(file) => file::read(file)?,
            None => page::all(),
        };
        if let Some(text) = &self.only {
            pages.retain(|page| page.name.contains(text));
            if pages.is_empty() {
                return Err(format!("--only: no page has {text:?} in its name"));
            }
        }
        Ok(pages)
    }

    /// The rows for a page, in the order of the table, each with the row that it is compared with.
    pub fn rows(&self, page: usize) -> Vec<(LoadWay, LoadWay)> {
        if self.row.is_empty() {
            return if self.full || page == 0 { way::BEYOND.to_vec() } else { Vec::new() };
        }
        self.row.iter().map(|row| (*row, way::compared(*row))).collect()
    }

    /// The ways of the first table.
    pub const fn columns(&self) -> &'static [LoadWay] {
        if self.row.is_empty() { &[HANDSHAKE, FAST_OPEN] } else { &[] }
    }

    /// The line, for the head of the output.
    pub fn line(&self) -> String {
        let rate = |kbit: u64| match kbit {
            1000.. if kbit.is_multiple_of(1000) => format!("{} Mbit/s", kbit / 1000),
            _ => format!("{kbit} kbit/s"),
        };
        let mut out = format!(
            "{} down, {} up, {} KB buffers, MTU {}",
            rate(self.down),
            rate(self.up),
            self.buffer,
            self.mtu
        );
        if self.loss > 0.0 {
            out.push_str(&format!(", {} % lost each way", self.loss));
        }
        out
    }
}
