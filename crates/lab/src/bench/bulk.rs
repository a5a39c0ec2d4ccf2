//! `bench bulk`: curl's downloads and uploads through a TUN device to the engine, in turn with the kernel's own TCP
//! between two namespaces. Each end has a core of its own.

mod place;
mod server;

use super::{BenchError, Rounds, progress};
use crate::table::Table;
use place::Place;
use serde_json::json;
use std::process::Command;

pub use server::{Server, run as run_server};

/// Bytes of a transfer.
const BYTES: u64 = 400_000_000;
/// The core of curl.
const CURL_CORE: &str = "0";

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Kernel,
    Engine,
}

/// What curl does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Download,
    Upload,
}

impl Way {
    const ALL: [Self; 2] = [Self::Download, Self::Upload];

    const fn name(self) -> &'static str {
        match self {
            Self::Download => "to curl",
            Self::Upload => "from curl",
        }
    }
}

/// One direction, bytes a second in each round.
struct Figures {
    way: Way,
    kernel: Vec<f64>,
    engine: Vec<f64>,
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let bytes = if options.quick { BYTES / 5 } else { BYTES };
    let place = Place::make(bytes)?;
    let mut all: Vec<_> =
        Way::ALL.map(|way| Figures { way, kernel: Vec::new(), engine: Vec::new() }).into_iter().collect();
    for round in 0..=options.rounds {
        for figures in &mut all {
            for (peer, rates) in [(Peer::Kernel, &mut figures.kernel), (Peer::Engine, &mut figures.engine)] {
                progress(&format!("round {round} of {}: {} {peer:?}", options.rounds, figures.way.name()));
                let rate = transfer(&place, peer, figures.way, bytes)?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
    }
    progress("");
    for rates in all.iter_mut().flat_map(|one| [&mut one.kernel, &mut one.engine]) {
        rates.sort_by(f64::total_cmp);
    }
    Ok(if options.json { as_json(&all, options, bytes) } else { as_table(&all, options, bytes) })
}

/// One transfer by curl. Returns bytes a second.
fn transfer(place: &Place, peer: Peer, way: Way, bytes: u64) -> Result<f64, BenchError> {
    let url = format!("http://{}/", place.address(peer));
    let mut curl = Command::new("ip");
    curl.args([
        "netns",
        "exec",
        place.client(),
        "taskset",
        "-c",
        CURL_CORE,
        "curl",
        "-s",
        "-f",
        "-o",
        "/dev/null",
    ]);
    match way {
        Way::Download => curl.args(["-w", "%{size_download} %{speed_download}"]),
        Way::Upload => {
            curl.args(["-H", "Expect:", "-w", "%{size_upload} %{speed_upload}", "-T"]).arg(place.file())
        }
    };
    let output = curl.arg(url).output().map_err(|error| BenchError::refused("curl", error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split(' ').filter_map(|number| number.parse::<f64>().ok());
    let (size, speed) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if !output.status.success() || size as u64 != bytes {
        return Err(BenchError::Wrong(format!("curl {}: {size} bytes, {}", way.name(), output.status)));
    }
    Ok(speed)
}

fn at(rates: &[f64], quarter: usize) -> f64 {
    rates.get((rates.len().saturating_sub(1)) * quarter / 4).copied().unwrap_or(f64::NAN)
}

fn as_table(all: &[Figures], options: &Rounds, bytes: u64) -> String {
    let title = format!(
        "{} MB over HTTP by curl, {} rounds in turn, MB/s, medians with quartiles. The kernel's server is behind a veth pair, the \
         engine's behind a TUN device; curl has core 0, the server core 1.",
        bytes / 1_000_000,
        options.rounds
    );
    let mut table = Table::new(title, &["", "the kernel", "quartiles", "the engine", "quartiles", "ratio"]);
    let mb = |rate: f64| format!("{:.0}", rate / 1e6);
    for one in all {
        let quartiles = |rates: &[f64]| format!("{}–{}", mb(at(rates, 1)), mb(at(rates, 3)));
        table.row([
            one.way.name().into(),
            mb(at(&one.kernel, 2)).into(),
            quartiles(&one.kernel).into(),
            mb(at(&one.engine, 2)).into(),
            quartiles(&one.engine).into(),
            format!("{:.2}", at(&one.engine, 2) / at(&one.kernel, 2)).into(),
        ]);
    }
    table.to_string()
}

fn as_json(all: &[Figures], options: &Rounds, bytes: u64) -> String {
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            let (kernel, engine) = (at(&one.kernel, 2), at(&one.engine, 2));
            json!({
                "way": one.way.name(), "kernel_bytes_per_s": kernel, "bytes_per_s": engine, "ratio": engine / kernel,
                "kernel_quartiles": [at(&one.kernel, 1), at(&one.kernel, 3)],
                "quartiles": [at(&one.engine, 1), at(&one.engine, 3)],
            })
        })
        .collect();
    json!({ "rounds": options.rounds, "bytes": bytes, "rows": rows }).to_string()
}
