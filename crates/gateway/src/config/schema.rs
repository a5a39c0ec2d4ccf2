//! The JSON Schema of a file.

use schemars::JsonSchema;

/// The names of [`Forwarded`](super::Forwarded).
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(dead_code, reason = "names for the schema")]
pub(super) enum ForwardedNames {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Both.
    Both,
    /// Neither.
    None,
}

#[cfg(test)]
mod tests;
