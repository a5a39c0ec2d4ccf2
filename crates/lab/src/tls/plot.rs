//! The round trips of each row and way as bars (SVG).

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

const WIDTH: u32 = 960;
/// Where the bars begin.
const LEFT: i32 = 400;
/// Pixels of a round trip.
const TRIP: f64 = 150.0;
const TRIPS: i32 = 3;
const BAR: i32 = 7;
const GAP: i32 = 10;
const TOP: i32 = 34;
/// The ways and their colours.
const WAYS: [(&str, &str, RGBColor); 4] = [
    ("kernel", "kernel's TCP", RGBColor(0, 114, 178)),
    ("ip", "TCP on TUN", RGBColor(0, 130, 90)),
    ("udp", "TCP in UDP", RGBColor(230, 159, 0)),
    ("other", "other programs", RGBColor(80, 80, 80)),
];

type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// One row: its name, and the round trips of the ways that it has.
struct Row<'a> {
    name: &'a str,
    bars: Vec<(f64, RGBColor)>,
}

impl<'a> Row<'a> {
    fn read(row: &'a Value) -> Option<Self> {
        let cells = row.get("cells")?;
        let bar = |(way, _, colour): &(&str, &str, RGBColor)| {
            Some((cells.get(*way)?.get("round_trips")?.as_f64()?, *colour))
        };
        Some(Self { name: row.get("row")?.as_str()?, bars: WAYS.iter().filter_map(bar).collect() })
    }

    fn height(&self) -> i32 {
        BAR * self.bars.len() as i32 + GAP
    }
}

/// The plot.
///
/// # Errors
/// When these are no results of `tls --json`.
pub fn svg(results: &Value) -> Result<String, String> {
    let rows = results.get("rows").and_then(Value::as_array);
    let rows: Option<Vec<Row<'_>>> = rows.and_then(|rows| rows.iter().map(Row::read).collect());
    let rows = rows.ok_or("these are no results of `firstflight-lab tls --json`")?;
    let mut out = String::new();
    draw(&mut out, &rows).map_err(|error| error.to_string())?;
    Ok(out)
}

fn draw<'a>(out: &'a mut String, rows: &[Row<'_>]) -> Result<(), DrawError<'a>> {
    let height = TOP + rows.iter().map(Row::height).sum::<i32>() + GAP;
    let area = SVGBackend::with_string(out, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = ("sans-serif", 13).into_font().color(&BLACK);
    let right = text.pos(Pos::new(HPos::Right, VPos::Center));
    let x = |trips: f64| LEFT + (trips * TRIP).round() as i32;
    for trips in 0..=TRIPS {
        let at = x(f64::from(trips));
        area.draw(&PathElement::new([(at, TOP), (at, height - GAP)], BLACK.mix(0.2)))?;
        let centre = text.pos(Pos::new(HPos::Center, VPos::Bottom));
        let unit = if trips == TRIPS { " round trips" } else { "" };
        area.draw(&Text::new(format!("{trips}{unit}"), (at, TOP - 2), centre))?;
    }
    for (at, (_, name, colour)) in WAYS.iter().enumerate() {
        let left = 10 + at as i32 * 97;
        area.draw(&Rectangle::new([(left, 8), (left + 8, 16)], colour.filled()))?;
        area.draw(&Text::new(*name, (left + 11, 6), ("sans-serif", 11)))?;
    }
    let mut top = TOP + GAP / 2;
    for row in rows {
        let middle = top + (row.height() - GAP) / 2;
        area.draw(&Text::new(row.name.to_owned(), (LEFT - 8, middle), right.clone()))?;
        for (at, (trips, colour)) in row.bars.iter().enumerate() {
            let y = top + at as i32 * BAR;
            area.draw(&Rectangle::new([(LEFT, y), (x(*trips), y + BAR - 1)], colour.filled()))?;
        }
        top += row.height();
    }
    area.present()
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
