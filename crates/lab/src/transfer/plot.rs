//! The curves (SVG) in the form of the thesis' Figure 7.2: distributions above, medians below.

use super::{Results, Times, Transfer, TransferWay};
use crate::curves::{self, Curve, Frame};
use crate::figure::Figure;

const PANEL: (u32, u32) = (460, 340);
const LEGEND: u32 = 30;

const fn style(way: TransferWay) -> usize {
    match way {
        TransferWay::Handshake => 0,
        TransferWay::FastOpen => 1,
        TransferWay::Asap => 2,
        TransferWay::UdtLike => 3,
    }
}

/// The plot.
pub fn svg(results: &Results, options: &Transfer) -> Result<String, String> {
    let columns = results.losses.len() as u32;
    let size = (PANEL.0 * columns, PANEL.1 * 2 + LEGEND);
    curves::picture(size, |root| {
        let (panels, legend) = root.split_vertically(PANEL.1 * 2);
        let (above, below) = panels.split_vertically(PANEL.1);
        for (panel, (loss, ways)) in above.split_evenly((1, columns as usize)).iter().zip(&results.losses) {
            let of = |times: &Times| Figure::new(times.ms.iter().copied());
            // Single transfers that took much longer would leave no room for the others.
            let most = ways.iter().map(|times| of(times).quantile(0.98)).fold(0.0, f64::max) * 1.05;
            let frame = Frame {
                caption: format!("(a) {:.2} KB, {loss} % loss", options.size as f64 / 1024.0),
                x: ("time to the last byte, ms", 0.0..most),
                y: ("share of the trials", 0.0..1.0),
            };
            let lines = ways.iter().map(|times| Curve::distribution(style(times.way), &of(times), 0.98));
            curves::panel(panel, &frame, &lines.collect::<Vec<_>>())?;
        }
        let medians = |way: TransferWay| {
            let points = results.sizes.iter().filter_map(|(kb, ways)| {
                let times = ways.iter().find(|times| times.way == way)?;
                Some((*kb as f64, Figure::new(times.ms.iter().copied()).median()))
            });
            Curve { style: style(way), points: points.collect(), marks: true }
        };
        let lines: Vec<Curve> = TransferWay::ALL.into_iter().map(medians).collect();
        let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max) * 1.05;
        let frame = Frame {
            caption: "(b) no loss, medians".into(),
            x: ("size, KB", 0.0..510.0),
            y: ("time to the last byte, ms", 0.0..most),
        };
        curves::panel(&below, &frame, &lines)?;
        curves::legend(&legend, &TransferWay::ALL.map(|way| (style(way), way.name())))?;
        Ok(())
    })
}
