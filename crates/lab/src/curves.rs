//! Curves in panels (SVG), in colours and dashes that also a reader who sees few colours can tell apart.

use crate::figure::Figure;
use plotters::prelude::*;
use std::io;
use std::ops::Range;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub type DrawError = DrawingAreaErrorKind<io::Error>;

/// Colours of Okabe and Ito, in an order in which neighbours also differ in brightness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(130, 130, 130),
];
/// Dash and gap of each style, pixels; 0: a whole line. Where dashed lines coincide, the gaps of each show those below.
const DASHES: [(i32, i32); 8] = [(0, 0), (12, 3), (0, 0), (3, 4), (6, 12), (9, 6), (2, 5), (0, 0)];
/// Points of a distribution.
const STEPS: u32 = 200;

/// One line.
#[derive(Debug)]
pub struct Curve {
    /// Number of its colour and dashes.
    pub style: usize,
    pub points: Vec<(f64, f64)>,
    /// Whether its points have marks.
    pub marks: bool,
}

impl Curve {
    /// The distribution of `figure`, up to the share `most` of its values.
    pub fn distribution(style: usize, figure: &Figure, most: f64) -> Self {
        let shares = (0..=STEPS).map(|n| f64::from(n) / f64::from(STEPS)).filter(|share| *share <= most);
        Self { style, points: shares.map(|share| (figure.quantile(share), share)).collect(), marks: false }
    }
}

/// Caption and axes of a panel.
#[derive(Debug)]
pub struct Frame {
    pub caption: String,
    pub x: (&'static str, Range<f64>),
    pub y: (&'static str, Range<f64>),
}

fn colour(style: usize) -> RGBColor {
    COLOURS.get(style % COLOURS.len()).copied().unwrap_or(BLACK)
}

fn dashes(style: usize) -> (i32, i32) {
    DASHES.get(style % DASHES.len()).copied().unwrap_or_default()
}

/// The label of a value on an axis.
fn tick(value: f64, axis: &Range<f64>) -> String {
    if axis.end - axis.start > 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A picture of this size on white, pixels, as `draw` draws it.
pub fn picture(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), DrawError>,
) -> Result<String, String> {
    let mut out = String::new();
    let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
    area.fill(&WHITE)
        .and_then(|()| draw(&area))
        .and_then(|()| area.present())
        .map_err(|error| error.to_string())?;
    drop(area);
    Ok(out)
}

pub fn panel(area: &Area<'_>, frame: &Frame, lines: &[Curve]) -> Result<(), DrawError> {
    let (x, y) = (frame.x.1.clone(), frame.y.1.clone());
    let mut chart = ChartBuilder::on(area)
        .caption(&frame.caption, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .x_desc(frame.x.0)
        .y_desc(frame.y.0)
        .x_label_formatter(&|value| tick(*value, &x))
        .y_label_formatter(&|value| tick(*value, &y))
        .draw()?;
    // Whole lines first, so that a dashed one over them is seen.
    let (whole, dashed): (Vec<&Curve>, Vec<&Curve>) =
        lines.iter().partition(|line| dashes(line.style).0 == 0);
    for line in whole.into_iter().chain(dashed) {
        let points = line.points.iter().copied().filter(|point| x.contains(&point.0) || point.0 == x.end);
        let style = colour(line.style).stroke_width(2);
        match dashes(line.style) {
            (0, _) => drop(chart.draw_series(LineSeries::new(points, style))?),
            (dash, gap) => drop(chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?),
        }
        if line.marks {
            let marks = line.points.iter().map(|point| Circle::new(*point, 3, colour(line.style).filled()));
            chart.draw_series(marks)?;
        }
    }
    Ok(())
}

/// Draws the names of lines, one beside the other.
pub fn legend(area: &Area<'_>, names: &[(usize, &str)]) -> Result<(), DrawError> {
    let width = area.dim_in_pixel().0 as i32 / names.len().max(1) as i32;
    for (at, (style, name)) in (0..).zip(names) {
        let (x, y) = (at * width + 20, 12);
        let line = vec![(x, y), (x + 34, y)];
        let drawn = colour(*style).stroke_width(3);
        match dashes(*style) {
            (0, _) => area.draw(&PathElement::new(line, drawn))?,
            (dash, gap) => {
                let mut from = x;
                while from < x + 34 {
                    let to = (from + dash).min(x + 34);
                    area.draw(&PathElement::new(vec![(from, y), (to, y)], drawn))?;
                    from = to + gap;
                }
            }
        }
        area.draw(&Text::new(*name, (x + 42, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}
