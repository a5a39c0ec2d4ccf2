//! Whether verifiers are used that sites name.

use clap::ValueEnum;
use firstflight::FoundVerifiers;
use serde::Deserialize;

/// Which verifiers are used that the options do not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// Those that a site names in its HTTPS record, for this site
    Site,
    /// None
    Off,
}

impl From<Found> for FoundVerifiers {
    fn from(found: Found) -> Self {
        match found {
            Found::Site => Self::Site,
            Found::Off => Self::Off,
        }
    }
}
