//! The round trips of each row and way as bars.

use crate::bars::{self, Colour, Row};
use serde_json::Value;

/// The ways and their colours.
const WAYS: [(&str, &str, Colour); 4] = [
    ("kernel", "kernel's TCP", bars::BLUE),
    ("ip", "TCP on TUN", bars::GREEN),
    ("udp", "TCP in UDP", bars::ORANGE),
    ("other", "other programs", bars::GREY),
];

fn read(row: &Value) -> Option<Row<'_>> {
    let cells = row.get("cells")?;
    let bar = |(way, _, colour): &(&str, &str, Colour)| {
        Some((cells.get(*way)?.get("round_trips")?.as_f64()?, *colour))
    };
    Some(Row { name: row.get("row")?.as_str()?.into(), bars: WAYS.iter().filter_map(bar).collect() })
}

/// The plot.
/// Errors: when these are no results of `tls --json`.
pub fn svg(results: &Value) -> Result<String, String> {
    let rows = results.get("rows").and_then(Value::as_array);
    let rows: Option<Vec<Row<'_>>> = rows.and_then(|rows| rows.iter().map(read).collect());
    let rows = rows.ok_or("these are no results of `firstflight-lab tls --json`")?;
    bars::svg(&rows, &WAYS.map(|(_, name, colour)| (name, colour)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bar_for_each_way_that_was_measured() {
        let cells = json!({ "kernel": { "round_trips": 2.0 }, "ip": null, "udp": { "round_trips": 1.0 } });
        let drawn = svg(&json!({ "rows": [{ "row": "sealed", "cells": cells }] })).unwrap();
        let bars = |colour: &str| drawn.matches(&format!("fill=\"{colour}\"")).count();
        // One in the legend.
        assert_eq!(["#0072B2", "#00825A", "#E69F00"].map(bars), [2, 1, 2]);
        assert!(drawn.contains("sealed"));
        assert!(svg(&json!({ "rows": [1] })).is_err());
    }
}
