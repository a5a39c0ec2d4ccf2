//! How long a transfer takes from connect to last byte: the experiments of the thesis' Figure 7.2, in virtual time.

mod plot;
mod report;
#[cfg(test)]
mod tests;
mod trial;

use crate::bench::progress;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Transfers by handshake, Fast Open, ASAP, and a transport like UDT: the thesis' Figure 7.2, in virtual time.
///
/// (a) the distribution of the times of one size, with loss and jitter; (b) medians for sizes from 1 to 500 KB.
/// Everything follows from the seed.
#[derive(Debug, Args)]
pub struct Transfer {
    /// As many trials as in the thesis: 1,000 for (a), 200 for (b); otherwise a tenth
    #[arg(long)]
    full: bool,
    /// Chooses what is lost and late
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Round-trip time
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = crate::span::time)]
    rtt: Duration,
    /// Longest extra delay of a packet, each way; the order of packets is kept
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = crate::span::time)]
    jitter: Duration,
    /// Bytes of (a): the thesis' 11.18 KB
    #[arg(long, value_name = "BYTES", default_value_t = 11_448)]
    size: usize,
    /// Initial window of TCP, segments: 3 as the thesis' kernel (RFC 3390), 10 today (RFC 6928)
    #[arg(long, value_name = "SEGMENTS", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    initial_window: u16,
    /// First timeout of TCP before a round trip was measured: 3 s as the thesis' kernel (RFC 2988), 1s today (RFC 6298)
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    initial_rto: Duration,
    /// Write the curves into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How a transfer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferWay {
    /// TCP's handshake, then the request.
    Handshake,
    /// The request in the SYN, with a cookie.
    FastOpen,
    /// The request in the SYN, with a certificate.
    Asap,
    /// In UDP: a round trip for a cookie, one for the handshake, then the request; 16 packets at first.
    UdtLike,
}

impl TransferWay {
    pub const ALL: [Self; 4] = [Self::Handshake, Self::FastOpen, Self::Asap, Self::UdtLike];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::FastOpen => "Fast Open",
            Self::Asap => "ASAP",
            Self::UdtLike => "like UDT",
        }
    }
}

/// Losses of (a), per cent of the packets each way.
const LOSSES: [u32; 3] = [0, 1, 2];
/// Sizes of (b), KB.
const SIZES: [usize; 10] = [1, 5, 10, 20, 50, 100, 200, 300, 400, 500];
/// Trials of the thesis.
const TRIALS: (u32, u32) = (1000, 200);

/// Times of one way in one setting, ms. A transfer that did not end within its patience is not among them.
#[derive(Debug, Clone)]
pub struct Times {
    pub way: TransferWay,
    pub ms: Vec<f64>,
    pub failed: u32,
}

/// Everything measured.
#[derive(Debug)]
pub struct Results {
    /// (a): for each loss, each way.
    pub losses: Vec<(u32, Vec<Times>)>,
    /// (b): for each size in KB, each way.
    pub sizes: Vec<(usize, Vec<Times>)>,
}

/// Runs the transfers. Returns the text to print.
pub fn run(options: &Transfer) -> Result<String, String> {
    if options.initial_rto.is_zero() || options.rtt > Duration::from_secs(10) {
        return Err("--initial-rto is more than zero, and --rtt at most 10s".into());
    }
    if options.jitter > options.rtt || !(1..=100_000_000).contains(&options.size) {
        return Err("--jitter is at most --rtt, and --size is 1 to 100000000 bytes".into());
    }
    let results = measure(options)?;
    if let Some(path) = &options.plot {
        let svg = plot::svg(&results, options)?;
        std::fs::write(path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(report::report(&results, options).print(options.json))
}

fn trials(options: &Transfer) -> (u32, u32) {
    if options.full { TRIALS } else { (TRIALS.0 / 10, TRIALS.1 / 10) }
}

fn measure(options: &Transfer) -> Result<Results, String> {
    let (many, few) = trials(options);
    let mut losses = Vec::new();
    for loss in LOSSES {
        let mut ways = Vec::new();
        for way in TransferWay::ALL {
            progress(&format!("(a) {loss} % loss: {}", way.name()));
            ways.push(times(options, way, options.size, loss, many)?);
        }
        losses.push((loss, ways));
    }
    let mut sizes = Vec::new();
    for kb in SIZES {
        let mut ways = Vec::new();
        for way in TransferWay::ALL {
            progress(&format!("(b) {kb} KB: {}", way.name()));
            ways.push(times(options, way, kb * 1024, 0, few)?);
        }
        sizes.push((kb, ways));
    }
    progress("");
    Ok(Results { losses, sizes })
}

fn times(options: &Transfer, way: TransferWay, size: usize, loss: u32, trials: u32) -> Result<Times, String> {
    let mut all = Times { way, ms: Vec::new(), failed: 0 };
    for trial in 0..trials {
        match trial::transfer(options, way, size, loss, trial).map_err(|error| error.to_string())? {
            Some(took) => all.ms.push(took.as_secs_f64() * 1e3),
            None => all.failed += 1,
        }
    }
    Ok(all)
}
