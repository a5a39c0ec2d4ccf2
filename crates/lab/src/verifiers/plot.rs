//! The plot (SVG).

use super::outcome::{NodeResults, Outcome, Row};
use crate::curves::{self, Area, DrawError};
use plotters::prelude::*;

const PANEL: (u32, u32) = (520, 340);
const LEGEND: u32 = 30;
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 130, 90),
    RGBColor(90, 200, 150),
    RGBColor(80, 80, 80),
];

/// A row of panels.
struct Figure {
    title: &'static str,
    value: fn(&Row) -> f64,
}

const FIGURES: [Figure; 2] = [
    Figure { title: "attackable in ASAP", value: |row| row.mean(|shares| shares.attackable) },
    Figure {
        title: "... and not highly attackable in TCP",
        value: |row| row.mean(|shares| shares.excess_of_any.unwrap_or(shares.excess)),
    },
];

/// A column of panels for each number of eavesdropping nodes: shares of the destinations by number of verifiers, both
/// logarithmic.
pub fn svg(outcomes: &[Outcome]) -> Result<String, String> {
    let columns = outcomes.first().map_or(0, |outcome| outcome.parts.len());
    let (rows, lines) = (FIGURES.len(), outcomes.len().div_ceil(4) as u32);
    let (width, height) = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    curves::picture((width, height + LEGEND * lines), |root| {
        let (panels, legend) = root.split_vertically(height);
        for (at, panel) in panels.split_evenly((rows, columns)).iter().enumerate() {
            draw_panel(panel, &FIGURES[at / columns], at % columns, outcomes)?;
        }
        draw_legend(&legend, outcomes)?;
        Ok(())
    })
}

/// The value at which zero is drawn, because a logarithmic axis has no zero: the power of ten below the smallest
/// possible count.
fn floor(outcomes: &[Outcome]) -> f64 {
    let counted = |outcome: &Outcome| {
        let placements = outcome.parts.first()?.rows.first()?.placements.len();
        Some((outcome.destinations * placements) as f64)
    };
    let most = outcomes.iter().filter_map(counted).fold(1.0, f64::max);
    10_f64.powi(-(most.log10().floor() as i32) - 1)
}

fn draw_panel(area: &Area<'_>, figure: &Figure, part: usize, outcomes: &[Outcome]) -> Result<(), DrawError> {
    let parts: Vec<&NodeResults> = outcomes.iter().filter_map(|outcome| outcome.parts.get(part)).collect();
    let Some(first) = parts.first() else { return Ok(()) };
    let (bound, floor) = (first.bound as f64, floor(outcomes));
    let nodes = if first.eavesdroppers == 1 { "node" } else { "nodes" };
    let title = format!("{} overheard {nodes}: {}", first.eavesdroppers, figure.title);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d((1.0..bound * 1.25).log_scale().base(2.0), (floor..1.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_desc("verifiers; the grey line is the bound")
        .x_label_formatter(&|verifiers| format!("{verifiers:.0}"))
        .y_desc("% of the destinations")
        .y_label_formatter(&|&share| {
            if share < 1.5 * floor { "none".to_owned() } else { format!("{}", (share * 1e8).round() / 1e6) }
        })
        .draw()?;
    chart.draw_series(LineSeries::new([(bound, floor), (bound, 1.0)], BLACK.mix(0.4).stroke_width(2)))?;
    for (part, colour) in parts.iter().zip(COLOURS.iter().cycle()) {
        let points = part.rows.iter().map(|row| (row.verifiers as f64, (figure.value)(row).max(floor)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, outcomes: &[Outcome]) -> Result<(), DrawError> {
    let width = area.dim_in_pixel().0 as i32 / 4;
    for (at, (outcome, colour)) in outcomes.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let (x, y) = (at as i32 % 4 * width + 20, at as i32 / 4 * LEGEND as i32 + 12);
        area.draw(&PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3)))?;
        area.draw(&Text::new(outcome.name(), (x + 32, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}
