//! The distributions (SVG), in the form of the thesis' Figure 7.3.

use super::{CertificateKnown, Credential, Step, Times};
use crate::curves::{self, Curve, Frame};
use crate::figure::Figure;

const PANEL: (u32, u32) = (880, 420);
const LEGEND: u32 = 60;
/// The steps that are drawn, with their styles. The others are in the table.
const SHOWN: [(Step, usize); 6] = [
    (Step::Issue, 0),
    (Step::Connect(true), 1),
    (Step::Verify(CertificateKnown::No), 2),
    (Step::Accept(Credential::Certificate(CertificateKnown::No)), 3),
    (Step::Accept(Credential::Cookie), 4),
    (Step::Front, 5),
];

/// The plot.
pub fn svg(all: &[Times]) -> Result<String, String> {
    curves::picture((PANEL.0, PANEL.1 + LEGEND), |root| {
        let (panel, legend) = root.split_vertically(PANEL.1);
        let figures: Vec<(usize, Figure)> = SHOWN
            .iter()
            .filter_map(|(step, style)| {
                let times = all.iter().find(|times| times.step == *step)?;
                Some((*style, Figure::new(times.us.iter().copied())))
            })
            .collect();
        // Single trials that the system interrupted would leave no room for the others.
        let most = figures.iter().map(|(_, figure)| figure.quantile(0.98)).fold(0.0, f64::max) * 1.1;
        let frame = Frame {
            caption: "processor time of each step on this machine".into(),
            x: ("time, µs (the thesis: 326 for the server, below 800 for the verifier)", 0.0..most),
            y: ("share of the trials", 0.0..1.0),
        };
        let lines = figures.iter().map(|(style, figure)| Curve::distribution(*style, figure, 0.98));
        curves::panel(&panel, &frame, &lines.collect::<Vec<_>>())?;
        let (above, below) = legend.split_vertically(LEGEND / 2);
        let (first, second) = SHOWN.split_at(SHOWN.len() / 2);
        for (area, steps) in [(above, first), (below, second)] {
            let names: Vec<(usize, &str)> = steps.iter().map(|(step, style)| (*style, step.name())).collect();
            curves::legend(&area, &names)?;
        }
        Ok(())
    })
}
