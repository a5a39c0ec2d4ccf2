//! The distributions of the ratios (SVG), in the form of the thesis' Figure 7.1, with one panel for each case.

use super::report::ratios;
use super::{Case, FIRST_BYTE, Time, Trial, WHOLE, Way};
use plotters::prelude::*;

const PANEL: (u32, u32) = (520, 360);
const LEGEND: u32 = 30;
/// Colours of all ways except today's.
const COLOURS: [RGBColor; 4] =
    [RGBColor(86, 180, 233), RGBColor(0, 130, 90), RGBColor(230, 159, 0), RGBColor(213, 94, 0)];

/// Number of points of a line.
const STEPS: u32 = 100;

/// Rows of panels.
const TIMES: [(&str, Time); 2] = [("first byte", FIRST_BYTE), ("whole page", WHOLE)];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn ways() -> impl Iterator<Item = (Way, RGBColor)> {
    Way::ALL.into_iter().filter(|way| *way != Way::Today).zip(COLOURS)
}

/// The plot.
pub fn svg(trials: &[Trial]) -> Result<String, String> {
    let mut out = String::new();
    draw(&mut out, trials).map_err(|error| error.to_string())?;
    Ok(out)
}

fn draw<'a>(out: &'a mut String, trials: &[Trial]) -> Result<(), DrawError<'a>> {
    let columns = Case::ALL.len();
    let (width, height) = (PANEL.0 * columns as u32, PANEL.1 * TIMES.len() as u32);
    let root = SVGBackend::with_string(out, (width, height + LEGEND)).into_drawing_area();
    root.fill(&WHITE)?;
    let (panels, legend) = root.split_vertically(height);
    let shown = TIMES.iter().flat_map(|time| Case::ALL.map(|case| (time, case)));
    for (panel, (time, case)) in panels.split_evenly((TIMES.len(), columns)).iter().zip(shown) {
        draw_panel(panel, trials, case, time)?;
    }
    let width = legend.dim_in_pixel().0 as i32 / COLOURS.len() as i32;
    for (at, (way, colour)) in ways().enumerate() {
        let (x, y) = (at as i32 * width + 20, 12);
        legend.draw(&PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3)))?;
        legend.draw(&Text::new(way.as_str(), (x + 32, y - 7), ("sans-serif", 14)))?;
    }
    root.present()
}

fn draw_panel<'a>(
    area: &Area<'a>,
    trials: &[Trial],
    case: Case,
    (title, time): &(&str, Time),
) -> Result<(), DrawError<'a>> {
    let mut chart = ChartBuilder::on(area)
        .caption(format!("({}) {case}: {title}", case.letter()), ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(50)
        .build_cartesian_2d(0.2..1.1, 0.0..1.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_desc("time as a share of that by lookup, handshake, request; grey: one third")
        .y_desc("share of the pairs")
        .draw()?;
    chart
        .draw_series(LineSeries::new([(1.0 / 3.0, 0.0), (1.0 / 3.0, 1.0)], BLACK.mix(0.4).stroke_width(2)))?;
    for (way, colour) in ways() {
        let ratios = ratios(trials, case, way, *time);
        let points =
            (0..=STEPS).map(|n| f64::from(n) / f64::from(STEPS)).map(|share| (ratios.quantile(share), share));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}
