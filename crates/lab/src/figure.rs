//! Statistics of measured values.

/// The values of one figure, one for each measurement. Without values every statistic is not a number.
#[derive(Debug, Clone)]
pub struct Figure {
    /// In the order in which they were measured.
    rounds: Vec<f64>,
    sorted: Vec<f64>,
}

impl Figure {
    /// The values may be in any order.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let rounds: Vec<f64> = values.into_iter().collect();
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Self { rounds, sorted }
    }

    pub fn of<S>(samples: &[S], value: impl Fn(&S) -> f64) -> Self {
        Self::new(samples.iter().map(value))
    }

    /// The rounds' ratios of `value` with two samples, which were measured one after the other.
    pub fn ratios<S>(samples: &[S], to: &[S], value: impl Fn(&S) -> f64) -> Self {
        Self::new(samples.iter().zip(to).map(|(sample, to)| value(sample) / value(to)))
    }

    /// The values in the order in which they were given.
    pub fn rounds(&self) -> &[f64] {
        &self.rounds
    }

    /// The middle value, or the mean of the two middle values.
    pub fn median(&self) -> f64 {
        let middle = self.sorted.len() / 2;
        if self.sorted.len() % 2 == 1 {
            self.at(middle)
        } else {
            (self.at(middle.wrapping_sub(1)) + self.at(middle)) / 2.0
        }
    }

    /// The sum divided by the number of values.
    pub fn mean(&self) -> f64 {
        self.rounds.iter().sum::<f64>() / self.rounds.len() as f64
    }

    /// The value below which the fraction `share` (0 to 1) of the values lies. It is always one of them.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        self.at((last as f64 * share).round() as usize)
    }

    /// The minimum.
    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    /// The maximum.
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Median, minimum and maximum, as `12.3 (11.9–13.0)`.
    pub fn spread(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median(), self.min(), self.max())
    }

    /// Median and quartiles, as `12.3 (11.9–13.0)`.
    pub fn quartiles(&self, digits: usize) -> String {
        let (low, high) = (self.quantile(0.25), self.quantile(0.75));
        format!("{:.digits$} ({low:.digits$}–{high:.digits$})", self.median())
    }

    fn at(&self, index: usize) -> f64 {
        self.sorted.get(index).copied().unwrap_or(f64::NAN)
    }
}

/// `value`, rounded to this number of digits behind the point.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_values_in_any_order() {
        let odd = Figure::new([3.0, 1.0, 2.0]);
        assert_eq!([odd.median(), odd.min(), odd.max()], [2.0, 1.0, 3.0]);
        assert_eq!(odd.spread(1), "2.0 (1.0–3.0)");
        let even = Figure::new([4.0, 1.0, 2.0, 3.0]);
        assert_eq!([0.0, 0.1, 0.5, 0.9, 1.0].map(|share| even.quantile(share)), [1.0, 1.0, 3.0, 4.0, 4.0]);
        assert_eq!(even.median(), 2.5);
        let none = Figure::new([]);
        assert!(none.median().is_nan() && none.quantile(0.5).is_nan() && none.max().is_nan());
        assert_eq!(rounded(1.0 / 3.0, 2), 0.33);
    }
}
