//! Who vouches for a key (8.3), and whether a name is hidden (7.5).

use crate::defence::{Defence, on};
use crate::name::HostName;

/// Whose AD bit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// A resolver that the user declared as trusted, with the path to it, as `options trust-ad` of resolv.conf does.
    TrustedPath,
    /// Any other resolver over plain DNS, also one that the user named, and one on a loopback address: it may only pass
    /// answers on.
    Other,
}

/// Where a key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeySource {
    /// The configuration.
    Configuration,
    /// DNS over TLS or HTTPS from a resolver that the user named. That resolver is trusted with the secrecy of requests.
    EncryptedDns,
    /// A DNS answer with the AD bit: the resolver says that it validated DNSSEC.
    Validated(AnsweredBy),
    /// Any other DNS answer.
    PlainDns,
}

impl KeySource {
    /// Whether nobody between the server's zone and here could forge the key.
    #[must_use]
    pub fn is_authenticated(self) -> bool {
        match self {
            Self::Configuration | Self::EncryptedDns => true,
            Self::Validated(AnsweredBy::TrustedPath) => true,
            Self::Validated(AnsweredBy::Other) => !on(Defence::AdBit),
            Self::PlainDns => false,
        }
    }
}

/// Which keys a request may be sealed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// Keys from an authenticated source.
    #[default]
    Authenticated,
    /// Any key: the request holds no secret.
    Any,
}

impl Trust {
    /// Whether a key from `source` may be used.
    #[must_use]
    pub fn allows(self, source: KeySource) -> bool {
        self == Self::Any || source.is_authenticated()
    }
}

/// What an observer may learn of the server's name (7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NamePolicy {
    /// Blocks are signed for the name, and ordinary TLS may name it in clear.
    #[default]
    Visible,
    /// Blocks are signed for the public name, and the name is never sent in clear.
    Hidden,
}

impl NamePolicy {
    /// The name that blocks are signed for. `None` if the policy hides nothing, because the public name is the name.
    #[must_use]
    pub fn block_name<'a>(self, name: &'a HostName, public: &'a HostName) -> Option<&'a HostName> {
        match self {
            Self::Visible => Some(name),
            Self::Hidden => (name != public).then_some(public),
        }
    }

    /// Whether a ClientHello with the name may be sent outside a flight.
    #[must_use]
    pub fn allows_clear(self) -> bool {
        self == Self::Visible || !on(Defence::Hidden)
    }
}

#[cfg(test)]
mod tests;
