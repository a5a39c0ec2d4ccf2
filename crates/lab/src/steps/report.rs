//! The measurements as text and as JSON.

use super::Times;
use crate::figure::{Figure, rounded};
use serde_json::{Value, json};
use std::fmt::Write;

fn mean(times: &Times) -> f64 {
    times.us.iter().sum::<f64>() / times.us.len() as f64
}

/// One line for each step.
pub fn table(all: &[Times]) -> String {
    let count = all.first().map_or(0, |times| times.us.len());
    let mut out = format!(
        "{count} trials of each step, CPU time of one thread on this machine, µs\n{:<48}{:>9}{:>9}{:>9}{:>9}  the thesis\n",
        "", "median", "mean", "95 %", "99 %"
    );
    for times in all {
        let figure = Figure::new(times.us.iter().copied());
        let line = format!(
            "{:<48}{:>9.1}{:>9.1}{:>9.1}{:>9.1}  {}",
            times.step.name(),
            figure.median(),
            mean(times),
            figure.quantile(0.95),
            figure.quantile(0.99),
            times.step.thesis()
        );
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push_str(
        "the thesis: RSA-1024 for certificates and RSA-512 for requests, in OpenSSL 1.0.0c on a Core 2 Quad Q9550 at \
         2.83 GHz; here Ed25519",
    );
    out
}

/// Every measurement.
pub fn json(all: &[Times]) -> String {
    let one = |times: &Times| {
        let figure = Figure::new(times.us.iter().copied());
        let us: Vec<f64> = times.us.iter().map(|us| rounded(*us, 3)).collect();
        json!({
            "step": times.step.name(), "thesis": times.step.thesis(), "median_us": rounded(figure.median(), 3),
            "mean_us": rounded(mean(times), 3), "p95_us": rounded(figure.quantile(0.95), 3), "us": us,
        })
    };
    let steps: Vec<Value> = all.iter().map(one).collect();
    json!({ "clock": "CPU time of one thread", "steps": steps }).to_string()
}
