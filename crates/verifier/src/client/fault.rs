//! What went wrong, and which party is at fault.

use firstflight_wire::asap::message::{Reason, Refused, VantageId};
use std::fmt;
use std::io;

/// Why one verifier or vantage point gave no usable answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// No answer over UDP, and this over TCP.
    Silent(io::Error),
    /// It refused.
    Refused(Refused),
    /// Its answer did not fit the question, or it asked for proof again and again.
    Nonsense,
    /// This host has no socket to ask with.
    Socket(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(error) => write!(f, "no answer over UDP, nor over TCP ({error})"),
            Self::Refused(Refused { reason, retry_after: 0, .. }) => write!(f, "refused: {reason}"),
            Self::Refused(Refused { reason, retry_after, .. }) => {
                write!(f, "refused: {reason}; ask again in {retry_after} s")
            }
            Self::Nonsense => f.write_str("its answer makes no sense"),
            Self::Socket(error) => write!(f, "this host cannot ask it: {error}"),
        }
    }
}

/// A vantage point that gave no token.
#[derive(Debug)]
pub struct VantageFault {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: VantageId,
    /// Why.
    pub fault: Fault,
}

/// Why there is no certificate.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObtainError {
    /// The issuer did not give one.
    Issuer {
        /// Its name.
        name: String,
        /// Why.
        fault: Fault,
    },
    /// These vantage points gave no token.
    Vantage(Vec<VantageFault>),
    /// The issuer refuses a vantage point's token: the vantage point or its key is at fault.
    Token {
        /// The issuer's name.
        issuer: String,
        /// The vantage point's name.
        vantage: String,
        /// Its number.
        id: VantageId,
        /// What is wrong with it.
        reason: Reason,
    },
    /// A vantage point has no address of the issuer's family. The group file is at fault.
    NoAddress {
        /// The vantage point's name.
        vantage: String,
    },
    /// The issuer's name has no address of this family, or cannot be looked up.
    Unknown {
        /// Its name and port.
        name: String,
        /// IPv4; else IPv6.
        v4: bool,
        /// Why.
        error: io::Error,
    },
    /// The answer is not a certificate for this key, signed by the key of the verifier that was asked.
    Wrong {
        /// The issuer's name.
        issuer: String,
    },
    /// The issuer certifies without checking all tokens.
    TooFewVantagePoints {
        /// The issuer's name.
        issuer: String,
        /// How many it counts, itself included.
        points: usize,
    },
    /// No clock or no random numbers.
    System(io::Error),
}

impl ObtainError {
    /// The issuer's refusal, if the issuer refused.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Issuer { fault: Fault::Refused(refused), .. } => Some(refused),
            _ => None,
        }
    }
}

impl fmt::Display for ObtainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issuer { name, fault } => write!(f, "verifier {name}: {fault}"),
            Self::Vantage(faults) => {
                f.write_str("no token from")?;
                for (number, VantageFault { name, id, fault }) in faults.iter().enumerate() {
                    let comma = if number > 0 { ";" } else { "" };
                    write!(f, "{comma} vantage point {name} (number {id}): {fault}")?;
                }
                Ok(())
            }
            Self::Token { issuer, vantage, id, reason } => {
                write!(
                    f,
                    "verifier {issuer} refused the token of vantage point {vantage} (number {id}): {reason}"
                )
            }
            Self::NoAddress { vantage } => write!(
                f,
                "vantage point {vantage} has no address of the verifier's family: add one to the group file"
            ),
            Self::Unknown { name, v4, error } => {
                write!(f, "verifier {name}: no IPv{} address: {error}", if *v4 { 4 } else { 6 })
            }
            Self::Wrong { issuer } => write!(
                f,
                "verifier {issuer}: what it sent is no certificate for this key signed by the key that it should have"
            ),
            Self::TooFewVantagePoints { issuer, points } => {
                write!(f, "verifier {issuer}: it counts {points} vantage points, fewer than its group has")
            }
            Self::System(error) => {
                write!(f, "the system gives no clock or no random numbers: {error}")
            }
        }
    }
}

impl std::error::Error for ObtainError {}
