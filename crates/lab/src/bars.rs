//! Round trips as bars (SVG).

use crate::curves;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::borrow::Cow;

pub type Colour = RGBColor;
pub const BLUE: Colour = RGBColor(0, 114, 178);
pub const GREEN: Colour = RGBColor(0, 130, 90);
pub const ORANGE: Colour = RGBColor(230, 159, 0);
pub const GREY: Colour = RGBColor(80, 80, 80);

const WIDTH: u32 = 960;
/// Where the bars begin, and the room for them.
const LEFT: i32 = 400;
const ROOM: f64 = 450.0;
/// Least number of round trips on the axis.
const LEAST: f64 = 3.0;
const BAR: i32 = 7;
const GAP: i32 = 10;
const TOP: i32 = 34;

/// One row: its name, and its bars, in round trips.
pub struct Row<'a> {
    pub name: Cow<'a, str>,
    pub bars: Vec<(f64, Colour)>,
}

impl Row<'_> {
    fn height(&self) -> i32 {
        BAR * self.bars.len() as i32 + GAP
    }
}

/// The plot. `legend` names the colours.
pub fn svg(rows: &[Row<'_>], legend: &[(&str, Colour)]) -> Result<String, String> {
    let height = TOP + rows.iter().map(Row::height).sum::<i32>() + GAP;
    curves::picture((WIDTH, height as u32), |area| {
        let text = ("sans-serif", 13).into_font().color(&BLACK);
        let right = text.pos(Pos::new(HPos::Right, VPos::Center));
        let most = rows.iter().flat_map(|row| &row.bars).map(|(trips, _)| trips.ceil()).fold(LEAST, f64::max);
        let x = |trips: f64| LEFT + (trips * ROOM / most).round() as i32;
        for trips in 0..=most as i32 {
            let at = x(f64::from(trips));
            area.draw(&PathElement::new([(at, TOP), (at, height - GAP)], BLACK.mix(0.2)))?;
            let centre = text.pos(Pos::new(HPos::Center, VPos::Bottom));
            let unit = if f64::from(trips) == most { " round trips" } else { "" };
            area.draw(&Text::new(format!("{trips}{unit}"), (at, TOP - 2), centre))?;
        }
        for (at, (name, colour)) in legend.iter().enumerate() {
            let left = 10 + at as i32 * 97;
            area.draw(&Rectangle::new([(left, 8), (left + 8, 16)], colour.filled()))?;
            area.draw(&Text::new((*name).to_owned(), (left + 11, 6), ("sans-serif", 11)))?;
        }
        let mut top = TOP + GAP / 2;
        for row in rows {
            let middle = top + (row.height() - GAP) / 2;
            area.draw(&Text::new(row.name.clone().into_owned(), (LEFT - 8, middle), right.clone()))?;
            for (at, (trips, colour)) in row.bars.iter().enumerate() {
                let y = top + at as i32 * BAR;
                area.draw(&Rectangle::new([(LEFT, y), (x(*trips), y + BAR - 1)], colour.filled()))?;
            }
            top += row.height();
        }
        Ok(())
    })
}
