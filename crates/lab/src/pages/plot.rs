//! The drawings (SVG).

use super::RTTS;
use super::measure::{Results, TableCell};
use super::options::Window;
use super::report::{paper, saved};
use super::way::{self, FAST_OPEN, HANDSHAKE};
use crate::curves::{self, Area, Curve, DrawError, Frame};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const PANEL: (u32, u32) = (400, 290);
const LEGEND: u32 = 34;
/// The lines of the first drawing, with their styles.
const LINES: [(usize, &str); 3] =
    [(7, "the paper"), (3, "ours, initial window 3"), (5, "ours, initial window 10")];
/// One for each round-trip time.
const SHADES: [RGBColor; 3] = [RGBColor(86, 180, 233), RGBColor(0, 114, 178), RGBColor(0, 60, 100)];

/// What Fast Open saves of each page: the paper's and ours.
pub fn gains(results: &Results) -> Result<String, String> {
    curves::picture((2 * PANEL.0, 2 * PANEL.1 + LEGEND), |root| {
        let (panels, legend) = root.split_vertically(2 * PANEL.1);
        for (page, panel) in panels.split_evenly((2, 2)).iter().enumerate() {
            draw_page(panel, results, page)?;
        }
        curves::legend(&legend, &LINES)?;
        Ok(())
    })
}

fn draw_page(area: &Area<'_>, results: &Results, page: usize) -> Result<(), DrawError> {
    let Some(described) = results.pages.get(page) else { return Ok(()) };
    let frame = Frame {
        caption: format!("{} ({})", described.name, described.stands_for.unwrap_or("not in the paper")),
        x: ("round-trip time, ms", 0.0..220.0),
        y: ("% of the load time saved", -5.0..45.0),
    };
    let theirs = |rtt| paper(described.stands_for, rtt).map(saved);
    let ours = |window, rtt| results.gain(TableCell { page, rtt, window, way: FAST_OPEN }, HANDSHAKE);
    let gains = RTTS.map(|rtt| [theirs(rtt), ours(Window::THEN, rtt), ours(Window::NOW, rtt)]);
    let lines = LINES.iter().enumerate().map(|(line, (style, _))| {
        let points = RTTS.iter().zip(&gains).filter_map(|(rtt, gains)| Some((*rtt as f64, gains[line]?)));
        Curve { style: *style, points: points.collect(), marks: true }
    });
    curves::panel(area, &frame, &lines.collect::<Vec<_>>())
}

const BAR: u32 = 14;
const NAMES: u32 = 230;
const BARS: u32 = 560;

/// The load time of the first page by every way.
pub fn ways(results: &Results) -> Result<String, String> {
    let ways = way::all();
    let group = BAR * RTTS.len() as u32 + 10;
    let (width, top) = (NAMES + BARS + 70, 44);
    let height = top + group * ways.len() as u32 + 12;
    curves::picture((width, height), |root| {
        let seconds =
            |way, rtt| results.seconds(TableCell { page: 0, rtt, window: Window::NOW, way }).unwrap_or(0.0);
        let most = ways.iter().flat_map(|way| RTTS.map(|rtt| seconds(*way, rtt))).fold(0.1, f64::max);
        let title = format!("load time of the page \"{}\", seconds; round-trip time:", results.pages[0].name);
        root.draw(&Text::new(title, (12, 12), ("sans-serif", 15)))?;
        for (at, (rtt, colour)) in RTTS.iter().zip(SHADES).enumerate() {
            let x = 470 + at as i32 * 100;
            root.draw(&Rectangle::new([(x, 12), (x + 16, 26)], colour.filled()))?;
            root.draw(&Text::new(format!("{rtt} ms"), (x + 22, 12), ("sans-serif", 15)))?;
        }
        let right = TextStyle::from(("sans-serif", 14)).pos(Pos::new(HPos::Right, VPos::Center));
        for (at, way) in ways.iter().enumerate() {
            let y = (top + at as u32 * group) as i32;
            root.draw(&Text::new(way.name, (NAMES as i32 - 10, y + group as i32 / 2 - 5), right.clone()))?;
            for (n, (rtt, colour)) in RTTS.iter().zip(SHADES).enumerate() {
                let (top, value) = (y + n as i32 * BAR as i32, seconds(*way, *rtt));
                let end = NAMES as i32 + (value / most * f64::from(BARS)) as i32;
                let corners = [(NAMES as i32, top), (end, top + BAR as i32 - 2)];
                root.draw(&Rectangle::new(corners, colour.filled()))?;
                root.draw(&Text::new(format!("{value:.2}"), (end + 6, top), ("sans-serif", 12)))?;
            }
        }
        Ok(())
    })
}
