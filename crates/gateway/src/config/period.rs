//! Spans of time, written as `30s`, `10m` or `250ms`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(pub Duration);

impl Period {
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "A span of time with its unit, as \"30s\" or \"250ms\"." })
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// Reads the text of a span.
struct Text;

impl Visitor<'_> for Text {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a span of time with its unit, as \"30s\" or \"250ms\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
        humantime::parse_duration(text).map(Period).map_err(|_| {
            E::custom(format_args!("{text:?} is no span of time: write one as \"30s\" or \"250ms\""))
        })
    }
}
