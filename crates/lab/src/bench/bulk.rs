//! `bench bulk`: curl's downloads and uploads through a TUN device to the engine, and by a network card to the engine, in turn
//! with the kernel's own TCP between two namespaces. Each end has a core of its own.

mod server;
mod testbed;

use super::{BenchError, Rounds, progress};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use serde_json::json;
use std::process::Command;
use testbed::BulkTestbed;

pub use server::{Server, run as run_server};

/// Bytes of a transfer.
const BYTES: u64 = 400_000_000;
const CURL_CORE: &str = "0";

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Kernel,
    /// On a TUN device.
    Engine,
    /// On a network card.
    Card,
}

impl Peer {
    const ALL: [Self; 3] = [Self::Kernel, Self::Engine, Self::Card];
}

/// What curl does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BulkWay {
    Download,
    Upload,
}

impl BulkWay {
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
    way: BulkWay,
    /// For each of [`Peer::ALL`].
    rates: [Vec<f64>; 3],
}

impl Figures {
    /// MB/s.
    fn rate(&self, peer: Peer) -> Figure {
        let [kernel, engine, card] = &self.rates;
        let rates = match peer {
            Peer::Kernel => kernel,
            Peer::Engine => engine,
            Peer::Card => card,
        };
        Figure::of(rates, |rate| rate / 1e6)
    }

    /// The rate of the engine's `peer`, in those of the kernel.
    fn ratio(&self, peer: Peer) -> Cell {
        Cell::Median(
            Figure::ratios(self.rate(peer).rounds(), self.rate(Peer::Kernel).rounds(), |rate| *rate),
            2,
        )
    }
}

const COLUMNS: [Column<(), Figures>; 6] = [
    Column::new("", "way", |(), one| one.way.name().into()),
    Column::new("the kernel", "kernel_mb_per_s", |(), one| Cell::Quartiles(one.rate(Peer::Kernel), 0)),
    Column::new("the engine", "mb_per_s", |(), one| Cell::Quartiles(one.rate(Peer::Engine), 0)),
    Column::new("ratio", "ratio", |(), one| one.ratio(Peer::Engine)),
    Column::new("on a card", "card_mb_per_s", |(), one| Cell::Quartiles(one.rate(Peer::Card), 0)),
    Column::new("ratio", "card_ratio", |(), one| one.ratio(Peer::Card)),
];

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let bytes = if options.quick { BYTES / 5 } else { BYTES };
    let place = BulkTestbed::make(bytes)?;
    let mut all: Vec<_> =
        BulkWay::ALL.map(|way| Figures { way, rates: Default::default() }).into_iter().collect();
    for round in 0..=options.rounds {
        for figures in &mut all {
            for (peer, rates) in Peer::ALL.into_iter().zip(&mut figures.rates) {
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
    let title = format!(
        "{} MB over HTTP by curl, {} rounds in turn, MB/s, medians (quartiles). The kernel's server is behind a veth pair, the \
         engine's behind a TUN device, or behind a veth pair as a network card; curl has core 0, the server core 1.",
        bytes / 1_000_000,
        options.rounds
    );
    let facts = json!({ "rounds": options.rounds, "bytes": bytes });
    Ok(Report::new(facts).table("rows", Table::of(title, &COLUMNS, &(), &all)).print(options.json))
}

/// One transfer by curl. Returns bytes a second.
fn transfer(place: &BulkTestbed, peer: Peer, way: BulkWay, bytes: u64) -> Result<f64, BenchError> {
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
        BulkWay::Download => curl.args(["-w", "%{size_download} %{speed_download}"]),
        BulkWay::Upload => {
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
