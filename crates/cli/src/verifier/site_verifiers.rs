//! Whether verifiers are used that sites name.

use clap::ValueEnum;
use firstflight::FoundVerifiers;
use serde::Deserialize;

/// Which verifiers are used that the options do not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteVerifiersUse {
    /// Those that a site names in its HTTPS record, for this site
    Site,
    /// None
    Off,
}

impl From<SiteVerifiersUse> for FoundVerifiers {
    fn from(found: SiteVerifiersUse) -> Self {
        match found {
            SiteVerifiersUse::Site => Self::Site,
            SiteVerifiersUse::Off => Self::Off,
        }
    }
}
