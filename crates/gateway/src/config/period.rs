//! Spans of time, written as `30s`, `10m` or `250ms`.

use serde::{Deserialize, Deserializer, de::Error};
use std::time::Duration;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(pub Duration);

impl Period {
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|_| {
            D::Error::custom(format_args!("{text:?} is no span of time: write one as \"30s\" or \"250ms\""))
        })
    }
}
