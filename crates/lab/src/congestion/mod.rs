//! How the congestion control algorithms behave at a bottleneck, in virtual time.

mod flows;

use crate::table::Table;
use clap::Args;
use firstflight_link::path::PathConfig;
use firstflight_tcp::congestion::Algorithm;
use flows::{Flows, SpanMeasurements};
use std::time::Duration;

/// NewReno, CUBIC and BBR on a bottleneck: throughput, queueing delay, repetitions, and how two flows share.
///
/// One flow runs alone on each path, then two of a kind, then two algorithms side by side. Everything is in virtual
/// time and follows from the seeds.
#[derive(Debug, Args)]
pub struct Congestion {
    /// Rate of the bottleneck, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rate: u64,
    /// How long each flow alone is measured, virtual seconds; two flows twice as long
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=600))]
    seconds: u64,
    /// Number of seeds; their mean is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Also use pacing with NewReno and CUBIC
    #[arg(long)]
    pacing: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

struct BottleneckPlace {
    name: &'static str,
    /// Round-trip time, ms.
    rtt: u64,
    /// Size of the buffer in quarters of the bandwidth-delay product.
    quarters: u64,
    /// Probability that a packet is lost.
    loss: f64,
}

const PLACES: [BottleneckPlace; 5] = [
    BottleneckPlace { name: "clean, buffer 1 BDP", rtt: 40, quarters: 4, loss: 0.0 },
    BottleneckPlace { name: "shallow, buffer 1/4 BDP", rtt: 40, quarters: 1, loss: 0.0 },
    BottleneckPlace { name: "deep, buffer 4 BDP", rtt: 40, quarters: 16, loss: 0.0 },
    BottleneckPlace { name: "1 % random loss", rtt: 40, quarters: 4, loss: 0.01 },
    BottleneckPlace { name: "100 ms RTT", rtt: 100, quarters: 4, loss: 0.0 },
];

impl BottleneckPlace {
    fn path(&self, mbit: u64) -> PathConfig {
        let rate = mbit * 1_000_000;
        let product = rate / 8 * self.rtt / 1000;
        PathConfig::default()
            .delay(Duration::from_millis(self.rtt / 2))
            .rate_bits_per_s(Some(rate))
            .queue_bytes((product * self.quarters / 4) as usize)
            .loss(self.loss)
    }
}

/// Means over seeds.
#[derive(Debug, Default)]
struct Mean {
    rates: Vec<f64>,
    queue_ms: f64,
    again: f64,
    fairness: f64,
}

impl Mean {
    fn of(seen: &[SpanMeasurements]) -> Self {
        let n = seen.len().max(1) as f64;
        let flows = seen.first().map_or(0, |s| s.rates.len());
        let rate = |flow: usize| seen.iter().filter_map(|s| s.rates.get(flow)).sum::<f64>() / n;
        Self {
            rates: (0..flows).map(rate).collect(),
            queue_ms: seen.iter().map(|s| s.queue.as_secs_f64() * 1e3).sum::<f64>() / n,
            again: seen.iter().map(|s| s.again * 100.0).sum::<f64>() / n,
            fairness: seen.iter().map(SpanMeasurements::fairness).sum::<f64>() / n,
        }
    }
}

/// Runs the measurements. Returns the text to print.
pub fn run(options: &Congestion) -> Result<String, flows::MeasureFailed> {
    let tables = [alone(options)?, together(options)?, mixed(options)?];
    if options.json {
        return Ok(serde_json::Value::from_iter(tables.iter().map(Table::json)).to_string());
    }
    Ok(tables.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Flows of these algorithms on `place`. Each starts two seconds after the previous one.
fn measure(
    options: &Congestion,
    place: &BottleneckPlace,
    algorithms: &[Algorithm],
) -> Result<Mean, flows::MeasureFailed> {
    let span = options.seconds * algorithms.len() as u64;
    let mut seen = Vec::new();
    for seed in 1..=options.seeds {
        let mut flows = Flows::new(place.path(options.rate), seed, options.pacing)?;
        for algorithm in algorithms {
            flows.start(*algorithm)?;
            // If the path has no randomness, the seed still changes when the second flow starts.
            flows.run(Duration::from_millis(2000 + 35 * (seed - 1)));
        }
        flows.run(Duration::from_secs(if algorithms.len() > 1 { 15 } else { 3 }));
        seen.push(flows.run(Duration::from_secs(span)));
    }
    Ok(Mean::of(&seen))
}

fn alone(options: &Congestion) -> Result<Table, flows::MeasureFailed> {
    let title =
        format!("One flow, {} Mbit/s, {} s, mean of {} seeds", options.rate, options.seconds, options.seeds);
    let mut table = Table::new(title, &["path", "algorithm", "Mbit/s", "queue ms", "again %"]);
    for place in &PLACES {
        for algorithm in Algorithm::ALL {
            let mean = measure(options, place, &[algorithm])?;
            let rate: f64 = mean.rates.iter().sum();
            table.row([
                place.name.into(),
                algorithm.name().into(),
                rate.into(),
                mean.queue_ms.into(),
                mean.again.into(),
            ]);
        }
    }
    Ok(table)
}

const TWO: [&str; 7] = ["path", "flows", "first Mbit/s", "second Mbit/s", "fairness", "queue ms", "again %"];

fn together(options: &Congestion) -> Result<Table, flows::MeasureFailed> {
    let title = "Two flows of a kind, the second two seconds later; fairness is Jain's index".to_owned();
    let mut table = Table::new(title, &TWO);
    for place in &PLACES {
        for algorithm in Algorithm::ALL {
            pair(options, place, [algorithm; 2], &mut table)?;
        }
    }
    Ok(table)
}

fn mixed(options: &Congestion) -> Result<Table, flows::MeasureFailed> {
    let mut table = Table::new("Side by side".to_owned(), &TWO);
    let [newreno, cubic, bbr] = Algorithm::ALL;
    for place in &PLACES {
        for kinds in [[newreno, cubic], [newreno, bbr], [cubic, bbr]] {
            pair(options, place, kinds, &mut table)?;
        }
    }
    Ok(table)
}

fn pair(
    options: &Congestion,
    place: &BottleneckPlace,
    kinds: [Algorithm; 2],
    table: &mut Table,
) -> Result<(), flows::MeasureFailed> {
    let mean = measure(options, place, &kinds)?;
    let rate = |flow: usize| mean.rates.get(flow).copied().unwrap_or_default();
    table.row([
        place.name.into(),
        format!("{}, {}", kinds[0], kinds[1]).into(),
        rate(0).into(),
        rate(1).into(),
        mean.fairness.into(),
        mean.queue_ms.into(),
        mean.again.into(),
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_a_row_for_every_case() {
        let options = Congestion { rate: 10, seconds: 10, seeds: 1, pacing: false, json: false };
        let text = run(&options).unwrap();
        assert_eq!(text.matches("1 % random loss").count(), 9, "{text}");
        assert_eq!(text.matches("bbr, bbr").count(), PLACES.len());
        let json = run(&Congestion { json: true, ..options }).unwrap();
        let tables: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(tables[0]["rows"].as_array().unwrap().len(), 15);
        assert!(tables[0]["rows"][2]["Mbit/s"].as_f64().unwrap() > 8.5, "BBR on the clean path: {json}");
    }
}
