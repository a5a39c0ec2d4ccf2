//! The configuration of a verifier.

use crate::expiry::SHORTEST;
use crate::limits::Limits;
use crate::token::{GroupMember, TokenKey};
use firstflight_credential::asap::{PrivateKey, PublicKey};
use firstflight_wire::asap::CertificateBody;
use firstflight_wire::asap::message::{Tokens, VantageId};
use firstflight_wire::setters;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::num::NonZeroU16;

/// How long a client's first certificate lasts, seconds.
pub const FIRST_DURATION: u32 = 30 * 60;
/// The default of the longest duration of a certificate, seconds.
pub const LONGEST_DURATION: u32 = 24 * 60 * 60;

/// A verifier: an issuer of certificates, a vantage point of another one, or both.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Config {
    /// If set, it issues certificates.
    pub issuer: Option<Issuer>,
    /// If set, it gives tokens.
    pub vantage: Option<VantagePoint>,
    /// Prefixes that may be certified although they are not global ([`crate::is_global`]): those of a
    /// laboratory, or of the network that the verifier serves.
    pub allowed: Vec<IpNet>,
    /// The source addresses of probes, at most one for each family. They must differ from the addresses that
    /// clients ask at. Without an address of the client's family it sends no probes.
    pub probe_from: Vec<SocketAddr>,
    /// Its limits. Of several [`members`](Self::members) each has its part.
    pub limits: Limits,
    /// How many verifiers answer with the issuer's key, such as the members of a farm. With it a client may begin at one of
    /// them and go on at another: the keys of challenges follow from the issuer's key and the hour. The members' clocks
    /// must be within two seconds of each other. Without it the keys of challenges are this process's own.
    pub members: Option<NonZeroU16>,
}

setters! {
    Config {
        issuer: Option<Issuer>,
        vantage: Option<VantagePoint>,
        allowed: Vec<IpNet>,
        probe_from: Vec<SocketAddr>,
        limits: Limits,
        members: Option<NonZeroU16>,
    }
}

/// The settings of an issuer.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The key that signs.
    pub key: PrivateKey,
    /// Keys that signed before and are still trusted. Certificates by them can be refreshed.
    pub retired: Vec<PublicKey>,
    /// How long a client's first certificate lasts, seconds.
    pub first: u32,
    /// The longest duration of a certificate, seconds.
    pub longest: u32,
    /// The vantage points. All of them must have seen a client before it is certified.
    pub group: Vec<GroupMember>,
}

impl Issuer {
    /// An issuer with only this key, without vantage points.
    #[must_use]
    pub const fn new(key: PrivateKey) -> Self {
        Self { key, retired: Vec::new(), first: FIRST_DURATION, longest: LONGEST_DURATION, group: Vec::new() }
    }
}

/// The settings of a vantage point.
#[derive(Debug, Clone)]
pub struct VantagePoint {
    /// Its number in the group.
    pub id: VantageId,
    /// The key that it shares with the issuer.
    pub key: TokenKey,
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// What is invalid. The configuration is at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let families = |v4| self.probe_from.iter().filter(move |from| from.is_ipv4() == v4).count();
        if families(true) > 1 || families(false) > 1 {
            return Err(ConfigError::Probes);
        }
        let Some(issuer) = &self.issuer else {
            if self.members.is_some() {
                return Err(ConfigError::Members);
            }
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

/// Why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It neither certifies nor gives tokens.
    #[error("a verifier needs a key to certify with, or to be a vantage point")]
    Nothing,
    /// The first duration is longer than the longest, or one of them is out of bounds.
    #[error(
        "certificates of {first} s at first and {longest} s at most: give durations of {SHORTEST} s to 194 days, the first not above the longest"
    )]
    Duration {
        /// Seconds.
        first: u32,
        /// Seconds.
        longest: u32,
    },
    /// A retired key that is not a valid key.
    #[error("the retired key {0} is no key that can be trusted")]
    Unsound(PublicKey),
    /// More vantage points than a certificate can count.
    #[error("{} vantage points: a certificate can count {} at most", .0, Tokens::MAX)]
    TooMany(usize),
    /// Two vantage points with one number.
    #[error("two vantage points have the number {0}: give each its own")]
    Twice(VantageId),
    /// A vantage point without a key.
    #[error("the issuer has no key of vantage point {0}")]
    NoKey(VantageId),
    /// Members of a farm without the key that they share.
    #[error("verifiers that answer with one key need that key")]
    Members,
    /// Several addresses of one family to send probes from.
    #[error("two addresses of one family to send probes from: give one")]
    Probes,
}
