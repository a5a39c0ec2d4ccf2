//! Pictures of distributions: as text for a terminal, and as SVG.

mod svg;
mod text;

pub use svg::{Group, Page};
pub use text::text;

/// A cumulative distribution of times.
#[derive(Debug, Clone)]
pub struct Curve {
    /// What it shows, for the legend.
    pub name: String,
    /// The times below which 0, 1, 2, … 100 % of the values lie, milliseconds.
    pub percentiles: Vec<f64>,
}

impl Curve {
    /// A curve of something that has quantiles: `quantile` gets a share from 0 to 1, and says below which time this share of
    /// the values lies, milliseconds. `None` if there are no values.
    pub fn new(name: impl Into<String>, quantile: impl Fn(f64) -> Option<f64>) -> Option<Self> {
        let percentiles: Option<Vec<f64>> =
            (0..=100).map(|percent| quantile(f64::from(percent) / 100.0)).collect();
        Some(Self { name: name.into(), percentiles: percentiles? })
    }

    fn at(&self, percent: usize) -> f64 {
        self.percentiles.get(percent).copied().unwrap_or_default()
    }
}

/// Nothing is shorter on a logarithmic axis, milliseconds.
const SHORTEST: f64 = 0.001;

/// The ends of a logarithmic axis for these curves, as powers of ten: the middle 98 % of each curve are on it.
fn decades(curves: &[Curve]) -> (i32, i32) {
    let least = curves.iter().map(|curve| curve.at(1)).fold(f64::INFINITY, f64::min).max(SHORTEST);
    let most = curves.iter().map(|curve| curve.at(99)).fold(SHORTEST, f64::max).max(SHORTEST);
    if !least.is_finite() {
        return (0, 1);
    }
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (low, high.max(low + 1))
}

/// Where a time is between the ends of a logarithmic axis, 0 to 1.
fn place(ms: f64, (low, high): (i32, i32)) -> f64 {
    let share = (ms.max(SHORTEST).log10() - f64::from(low)) / f64::from(high - low);
    share.clamp(0.0, 1.0)
}

/// A power of ten of milliseconds as a label of an axis, with its unit.
fn label(power: i32) -> String {
    match power {
        3.. => format!("{} s", 10_u64.pow(power.unsigned_abs().min(15) - 3)),
        0..=2 => format!("{} ms", 10_u64.pow(power.unsigned_abs())),
        _ => format!("{} µs", 10_f64.powi(power + 3)),
    }
}

#[cfg(test)]
mod tests;
