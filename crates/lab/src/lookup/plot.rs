//! The distributions of the ratios (SVG), in the form of the thesis' Figure 7.1, with one panel for each case.

use super::report::ratios;
use super::{FIRST_BYTE, RequestWay, ResolverCase, Time, Trial, WHOLE};
use crate::curves::{self, Curve, Frame};

const PANEL: (u32, u32) = (520, 360);
const LEGEND: u32 = 60;
/// The ways that are drawn, with their styles. The others are in the table.
const WAYS: [(RequestWay, usize, &str); 7] = [
    (RequestWay::UdtLike, 7, "lookup, then like UDT"),
    (RequestWay::FastOpen, 1, "lookup + Fast Open"),
    (RequestWay::Asap, 5, "lookup + ASAP in the SYN"),
    (RequestWay::Thesis(0), 3, "inside the lookup, thesis' form"),
    (RequestWay::Thesis(4), 4, "…, asked label by label"),
    (RequestWay::DnsPath, 2, "inside the lookup"),
    (RequestWay::Sdns, 6, "…, name server in the server"),
];

/// Rows of panels.
const TIMES: [(&str, Time); 2] = [("first byte", FIRST_BYTE), ("whole page", WHOLE)];

/// The plot.
pub fn svg(trials: &[Trial]) -> Result<String, String> {
    let columns = ResolverCase::ALL.len();
    let (width, height) = (PANEL.0 * columns as u32, PANEL.1 * TIMES.len() as u32);
    curves::picture((width, height + LEGEND), |root| {
        let (panels, legend) = root.split_vertically(height);
        let shown = TIMES.iter().flat_map(|time| ResolverCase::ALL.map(|case| (time, case)));
        for (panel, ((title, time), case)) in panels.split_evenly((TIMES.len(), columns)).iter().zip(shown) {
            let frame = Frame {
                caption: format!("({}) {case}: {title}", case.letter()),
                x: ("time as a share of that by lookup, handshake, request (TCP)", 0.0..1.6),
                y: ("share of the pairs", 0.0..1.0),
            };
            let lines = WAYS
                .map(|(way, style, _)| Curve::distribution(style, &ratios(trials, case, way, *time), 1.0));
            curves::panel(panel, &frame, &lines)?;
        }
        let names = WAYS.map(|(_, style, name)| (style, name));
        let (above, below) = legend.split_vertically(LEGEND / 2);
        let (first, second) = names.split_at(names.len() / 2);
        curves::legend(&above, first)?;
        curves::legend(&below, second)?;
        Ok(())
    })
}
