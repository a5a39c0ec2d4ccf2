//! The parameter of an SVCB or HTTPS record (RFC 9460) that names the verifiers of a site (`docs/spec/asap.md`, section 9.1).

use super::Name;
use super::writer::Writer;
use crate::{EmitError, ParseError};
use core::fmt;
use core::num::NonZeroU16;

const VERSION: u8 = 1;
const HEAD: usize = 2;
/// What is in front of a verifier's name, and of a vantage point's.
const ENTRY: usize = 37;
const POINT: usize = 4;
/// The verifier is for all names below its own; beside the number of its vantage points.
const BELOW: u8 = 1 << 7;

/// The verifiers that a site names. It guides the client and never authorises anything: which of them a client asks, and for
/// which servers, is section 9.1's matter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifiersParam<'a> {
    /// All of it, which was checked.
    bytes: &'a [u8],
}

/// A verifier that a site names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteVerifier<'a> {
    /// Its key. It is not known to be sound.
    pub key: [u8; 32],
    /// Where it answers in UDP.
    pub udp_port: NonZeroU16,
    /// Where it answers in TCP, if it does.
    pub tcp_port: Option<NonZeroU16>,
    /// Its name.
    pub name: Name<'a>,
    /// It is for all names below its own, too.
    pub below: bool,
    /// Its vantage points.
    pub points: SitePoints<'a>,
}

/// The vantage points of a verifier, in ascending order of their ids, at most [`SitePoints::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SitePoints<'a>(&'a [u8]);

/// A vantage point that a site names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SitePoint<'a> {
    /// Its id.
    pub id: NonZeroU16,
    /// Where it answers in UDP.
    pub udp_port: NonZeroU16,
    /// Its name.
    pub name: Name<'a>,
}

/// The 16-bit number at the beginning of `bytes`.
fn number(bytes: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
    Ok((u16::from_be_bytes(*number), rest))
}

impl<'a> SitePoint<'a> {
    fn take(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (id, rest) = number(bytes)?;
        let (port, rest) = number(rest)?;
        let wrong = ParseError::Malformed("vantage point of a verifier");
        let (id, udp_port) = NonZeroU16::new(id).zip(NonZeroU16::new(port)).ok_or(wrong)?;
        let (name, rest) = Name::take(rest)?;
        Ok((Self { id, udp_port, name }, rest))
    }
}

impl<'a> SitePoints<'a> {
    /// The most vantage points of a verifier.
    pub const MAX: usize = 3;

    /// The points in their order.
    pub fn iter(&self) -> impl Iterator<Item = SitePoint<'a>> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (point, behind) = SitePoint::take(rest).ok()?;
            rest = behind;
            Some(point)
        })
    }

    /// `count` points at the beginning of `bytes`, and what is behind them.
    fn take(bytes: &'a [u8], count: u8) -> Result<(Self, &'a [u8]), ParseError> {
        let (mut rest, mut last) = (bytes, 0);
        for _ in 0..count {
            let (point, behind) = SitePoint::take(rest)?;
            if point.id.get() <= last {
                return Err(ParseError::Malformed("order of vantage points"));
            }
            (rest, last) = (behind, point.id.get());
        }
        let (points, _) = bytes.split_at(bytes.len() - rest.len());
        Ok((Self(points), rest))
    }
}

impl fmt::Debug for SitePoints<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> SiteVerifier<'a> {
    fn take(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (key, rest) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        let (udp, rest) = number(rest)?;
        let (tcp, rest) = number(rest)?;
        let (&count, rest) = rest.split_first().ok_or(ParseError::Truncated)?;
        let (below, count) = (count & BELOW != 0, count & !BELOW);
        let udp_port = NonZeroU16::new(udp).ok_or(ParseError::Malformed("UDP port of a verifier"))?;
        if usize::from(count) > SitePoints::MAX {
            return Err(ParseError::Malformed("number of vantage points"));
        }
        let (name, rest) = Name::take(rest)?;
        let (points, rest) = SitePoints::take(rest, count)?;
        Ok((Self { key: *key, udp_port, tcp_port: NonZeroU16::new(tcp), name, below, points }, rest))
    }
}

impl<'a> VerifiersParam<'a> {
    /// Its number among the parameters of an SVCB record, from the range for private use (RFC 9460 §14.3.1).
    pub const KEY: u16 = 65302;
    /// The most verifiers.
    pub const MAX: usize = 4;
    /// The longest parameter, bytes: it fits into a DNS answer of 1232 bytes beside others.
    pub const MAX_LEN: usize = 1024;

    /// Reads the parameter in `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Malformed`] for anything that this version does not define.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[version, count], entries) = bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        let whole = Self { bytes };
        if version != VERSION {
            return Err(ParseError::Malformed("version of a site's verifiers"));
        }
        if !(1..=Self::MAX).contains(&usize::from(count)) || bytes.len() > Self::MAX_LEN {
            return Err(ParseError::Malformed("number or length of a site's verifiers"));
        }
        let mut rest = entries;
        for number in 0..usize::from(count) {
            let (one, behind) = SiteVerifier::take(rest)?;
            if whole.iter().take(number).any(|other| other.key == one.key) {
                return Err(ParseError::Malformed("a verifier twice"));
            }
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(ParseError::Malformed("end of a site's verifiers"));
        }
        Ok(whole)
    }

    /// The value.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The verifiers, in the site's order of preference.
    pub fn iter(&self) -> impl Iterator<Item = SiteVerifier<'a>> + use<'a> {
        let mut rest = self.bytes.get(HEAD..).unwrap_or_default();
        core::iter::from_fn(move || {
            let (one, behind) = SiteVerifier::take(rest).ok()?;
            rest = behind;
            Some(one)
        })
    }

    /// Writes a parameter with these verifiers, each with its vantage points in ascending order of their ids, at the front of
    /// `out`, and returns its length. Read it with [`VerifiersParam::parse`] before it is published.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`]; [`VerifiersParam::MAX_LEN`] bytes are enough for every valid one.
    pub fn emit<'b>(
        verifiers: impl ExactSizeIterator<Item = (SiteVerifier<'b>, &'b [SitePoint<'b>])>,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let mut writer = Writer { out, at: 0 };
        writer.put(&[VERSION, verifiers.len().min(255) as u8])?;
        for (SiteVerifier { key, udp_port, tcp_port, name, below, points: _ }, points) in verifiers {
            let mut head = [0; ENTRY];
            let [.., udp_high, udp_low, tcp_high, tcp_low, count] = &mut head;
            [*udp_high, *udp_low] = udp_port.get().to_be_bytes();
            [*tcp_high, *tcp_low] = tcp_port.map_or(0, NonZeroU16::get).to_be_bytes();
            *count = points.len().min(usize::from(!BELOW)) as u8 | if below { BELOW } else { 0 };
            if let Some(place) = head.first_chunk_mut() {
                *place = key;
            }
            writer.put(&head)?;
            writer.put(name.as_bytes())?;
            for SitePoint { id, udp_port, name } in points {
                let ([a, b], [c, d]) = (id.get().to_be_bytes(), udp_port.get().to_be_bytes());
                let head: [u8; POINT] = [a, b, c, d];
                writer.put(&head)?;
                writer.put(name.as_bytes())?;
            }
        }
        Ok(writer.at)
    }
}

impl fmt::Debug for VerifiersParam<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
