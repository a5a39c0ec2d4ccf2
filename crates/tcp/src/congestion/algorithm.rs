//! The names of the algorithms.

/// The algorithms to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr): follows a model of the path instead of losses.
    Bbr,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::NewReno, Self::Cubic, Self::Bbr];

    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl core::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no algorithm of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl core::fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not an algorithm of congestion control: newreno, cubic or bbr")
    }
}

impl core::error::Error for UnknownAlgorithm {}

impl core::str::FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL.into_iter().find(|a| a.name() == name).ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// The compiler asks for a new one here.
    #[test]
    fn all_has_every_algorithm() {
        let place = |algorithm| match algorithm {
            Algorithm::NewReno => 0,
            Algorithm::Cubic => 1,
            Algorithm::Bbr => 2,
        };
        assert_eq!(Algorithm::ALL.map(place), [0, 1, 2]);
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert_eq!("reno".parse::<Algorithm>(), Err(UnknownAlgorithm));
        assert!(UnknownAlgorithm.to_string().contains("bbr"));
    }
}
