//! The server's CPU time over the rate (SVG), in the form of the paper's Figure 6.

use super::{Kind, Mode, Row};
use crate::curves;
use plotters::prelude::*;

const SIZE: (u32, u32) = (760, 460);

const fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Serve => RGBColor(0, 130, 90),
        Kind::ServeTun => RGBColor(213, 94, 0),
        Kind::ServeXdp => RGBColor(136, 46, 114),
        Kind::ServeXdpTwo => RGBColor(230, 159, 0),
        Kind::Nginx => RGBColor(86, 180, 233),
    }
}

/// The plot. The time is that of the server's processor, or of its process if there is only one processor.
pub fn svg(rows: &[Row]) -> Result<String, String> {
    let of_core = rows.iter().all(|row| row.core_share().median().is_finite());
    let share = |row: &Row| if of_core { row.core_share() } else { row.cpu_share() }.median() * 100.0;
    let points: Vec<(&Row, f64, f64)> = rows
        .iter()
        .filter_map(|row| match row.mode {
            Mode::Open(rate) => Some((row, f64::from(rate), share(row))).filter(|point| point.2.is_finite()),
            Mode::Closed(_) | Mode::Flooded(_) => None,
        })
        .collect();
    let most = |value: fn(&(&Row, f64, f64)) -> f64| points.iter().map(value).fold(1.0, f64::max) * 1.05;
    curves::picture(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(38)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..most(|point| point.1), 0.0..most(|point| point.2))?;
        let what = if of_core { "server's processor busy, %" } else { "CPU time of the server's process, %" };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_desc("requests a second")
            .y_desc(what)
            .draw()?;
        for kind in Kind::ALL {
            for fast_open in [false, true] {
                let is = |row: &Row| row.kind == kind && row.fast_open == fast_open;
                let line: Vec<_> = points
                    .iter()
                    .filter(|(row, ..)| is(row))
                    .map(|(_, rate, share)| (*rate, *share))
                    .collect();
                if line.is_empty() {
                    continue;
                }
                let style = colour(kind).stroke_width(if fast_open { 3 } else { 1 });
                let name = format!("{}{}", kind.name(), if fast_open { ", Fast Open" } else { "" });
                chart
                    .draw_series(LineSeries::new(line.iter().copied(), style))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
                chart.draw_series(line.iter().map(|point| Circle::new(*point, 3, colour(kind).filled())))?;
            }
        }
        let place = SeriesLabelPosition::UpperLeft;
        chart
            .configure_series_labels()
            .position(place)
            .background_style(WHITE)
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}
