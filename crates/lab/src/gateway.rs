//! Unmodified programs through proxy and gateway: `gateway` runs `tests/gateway/run.py` of the source tree, and
//! `gateway-plot` draws its results.

use crate::bars::{self, Colour, Row};
use crate::networks::script;
use clap::Args;
use serde_json::Value;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// The tables of unmodified programs through proxy, wire and gateway; needs root. All arguments are those of
/// tests/gateway/run.py (`-- --help` shows them). It runs the commands in the directory of this one.
#[derive(Debug, Args)]
pub struct Gateway {
    /// For tests/gateway/run.py
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Draw the results (JSON of `gateway --json`) as SVG.
#[derive(Debug, Args)]
pub struct Plot {
    results: PathBuf,
    svg: PathBuf,
}

/// Visits through proxy and gateway, and one without both: the visit, the side, its name, its colour.
const BARS: [(&str, &str, &str, Colour); 3] = [
    ("second", "ours", "second visit", bars::BLUE),
    ("later", "ours", "fourth visit", bars::GREEN),
    ("second", "plain", "plain", bars::GREY),
];

/// Replaces this process by the script.
/// Errors: when the source tree that this command was built from is missing, or Python is.
pub fn run(options: &Gateway) -> Result<String, Box<dyn Error>> {
    script("tests/gateway/run.py", &options.arguments)
}

/// Draws the results.
/// Errors: when a file cannot be read or written, or these are no results.
pub fn plot(options: &Plot) -> Result<String, Box<dyn Error>> {
    let results: Value = serde_json::from_slice(&fs::read(&options.results)?)?;
    fs::write(&options.svg, svg(&results)?)?;
    Ok(String::new())
}

/// The medians of the first byte, in round trips.
fn read(cell: &Value) -> Option<Row<'_>> {
    let (rtt, visits) = (cell.get("rtt_ms")?.as_f64()?, cell.get("visits")?);
    let bar = |(visit, side, _, colour): &(&str, &str, &str, Colour)| {
        let first = visits.get(*visit)?.get(*side)?.get("first")?;
        Some((first.get("median_ms")?.as_f64()? / rtt, *colour))
    };
    let name = format!("{}, {rtt} ms, {} %", cell.get("path")?.as_str()?, cell.get("loss")?);
    Some(Row { name: name.into(), bars: BARS.iter().filter_map(bar).collect() })
}

fn svg(results: &Value) -> Result<String, String> {
    let cells = results.get("cells").and_then(Value::as_array);
    let rows: Option<Vec<Row<'_>>> = cells.and_then(|cells| cells.iter().map(read).collect());
    let rows = rows.ok_or("these are no results of `firstflight-lab gateway --json`")?;
    bars::svg(&rows, &BARS.map(|(_, _, name, colour)| (name, colour)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bar_for_each_visit_that_was_measured() {
        let side = |ms: f64| json!({ "first": { "median_ms": ms } });
        let cell = |later: Value| {
            let visits = json!({ "second": { "ours": side(200.0), "plain": side(500.0) }, "later": later });
            json!({ "path": "nothing", "rtt_ms": 100, "loss": 2, "visits": visits })
        };
        let cells = json!({ "cells": [cell(json!({ "ours": side(210.0) })), cell(Value::Null)] });
        let drawn = svg(&cells).unwrap();
        let bars = |colour: &str| drawn.matches(&format!("fill=\"{colour}\"")).count();
        // One in the legend.
        assert_eq!(["#0072B2", "#00825A", "#505050"].map(bars), [3, 2, 3]);
        assert!(drawn.contains("nothing, 100 ms, 2 %") && drawn.contains("5 round trips"));
        assert!(svg(&json!({ "cells": [1] })).is_err());
    }
}
