//! What a verifier is and allows.

use crate::expiry::SHORTEST;
use crate::limits::Limits;
use crate::token::{GroupMember, TokenKey};
use firstflight_credential::asap::{PrivateKey, PublicKey};
use firstflight_wire::asap::CertificateBody;
use firstflight_wire::asap::message::{Tokens, VantageId};
use ipnet::IpNet;
use std::fmt;
use std::net::SocketAddr;

/// How a certificate lasts at first, seconds.
pub const FIRST_DURATION: u32 = 30 * 60;
/// How long one lasts at most unless the configuration says otherwise, seconds.
pub const LONGEST_DURATION: u32 = 24 * 60 * 60;

/// A verifier: an issuer of certificates, a vantage point of another one, or both.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// It certifies.
    pub issuer: Option<Issuer>,
    /// It gives tokens.
    pub vantage: Option<VantagePoint>,
    /// Prefixes that are not global ([`crate::is_global`]) and may be certified all the same: a laboratory's,
    /// or those of the network that the verifier is for.
    pub allowed: Vec<IpNet>,
    /// Where probes come from, at most one address a family: others than clients ask at. Without one of the
    /// client's family there are none.
    pub probe_from: Vec<SocketAddr>,
    /// What it does at most.
    pub limits: Limits,
}

/// What it takes to certify.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// What signs.
    pub key: PrivateKey,
    /// Keys that signed before and are still trusted: their certificates can be refreshed.
    pub retired: Vec<PublicKey>,
    /// How long a client's first certificate lasts, seconds.
    pub first: u32,
    /// How long one lasts at most, seconds.
    pub longest: u32,
    /// The vantage points that must have seen a client before it is certified: all of them.
    pub group: Vec<GroupMember>,
}

impl Issuer {
    /// An issuer with this key and no others, without vantage points.
    #[must_use]
    pub const fn new(key: PrivateKey) -> Self {
        Self { key, retired: Vec::new(), first: FIRST_DURATION, longest: LONGEST_DURATION, group: Vec::new() }
    }
}

/// What it takes to give tokens.
#[derive(Debug, Clone)]
pub struct VantagePoint {
    /// Its number in the group.
    pub id: VantageId,
    /// What it shares with the issuer.
    pub key: TokenKey,
}

impl Config {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not. Whoever wrote the configuration is at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let families = |v4| self.probe_from.iter().filter(move |from| from.is_ipv4() == v4).count();
        if families(true) > 1 || families(false) > 1 {
            return Err(ConfigError::Probes);
        }
        let Some(issuer) = &self.issuer else {
            return if self.vantage.is_some() { Ok(()) } else { Err(ConfigError::Nothing) };
        };
        let Issuer { key: _, retired, first, longest, group } = issuer;
        if !(SHORTEST..=CertificateBody::MAX_DURATION).contains(longest)
            || !(SHORTEST..=*longest).contains(first)
        {
            return Err(ConfigError::Duration { first: *first, longest: *longest });
        }
        if let Some(unsound) = retired.iter().find(|key| !key.is_sound()) {
            return Err(ConfigError::Unsound(*unsound));
        }
        if group.len() > Tokens::MAX {
            return Err(ConfigError::TooMany(group.len()));
        }
        for (at, member) in group.iter().enumerate() {
            if group.iter().take(at).any(|other| other.id == member.id) {
                return Err(ConfigError::Twice(member.id));
            }
            if member.keys.is_empty() {
                return Err(ConfigError::NoKey(member.id));
            }
        }
        Ok(())
    }
}

/// What makes no sense in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// It neither certifies nor gives tokens.
    Nothing,
    /// The first duration is longer than the longest, or one of them is out of bounds.
    Duration {
        /// Seconds.
        first: u32,
        /// Seconds.
        longest: u32,
    },
    /// A retired key that is none.
    Unsound(PublicKey),
    /// More vantage points than a certificate can count.
    TooMany(usize),
    /// Two vantage points with one number.
    Twice(VantageId),
    /// A vantage point without a key.
    NoKey(VantageId),
    /// Several addresses of one family to send probes from.
    Probes,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("a verifier needs a key to certify with, or to be a vantage point"),
            Self::Duration { first, longest } => write!(
                f,
                "certificates of {first} s at first and {longest} s at most: give durations of {SHORTEST} s to 194 days, the first not above the longest"
            ),
            Self::Unsound(key) => write!(f, "the retired key {key} is no key that can be trusted"),
            Self::TooMany(count) => {
                write!(f, "{count} vantage points: a certificate can count {} at most", Tokens::MAX)
            }
            Self::Twice(id) => write!(f, "two vantage points have the number {id}: give each its own"),
            Self::Probes => f.write_str("two addresses of one family to send probes from: give one"),
            Self::NoKey(id) => write!(f, "the issuer has no key of vantage point {id}"),
        }
    }
}

impl std::error::Error for ConfigError {}
