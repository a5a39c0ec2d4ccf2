//! The datagram from front to front (`docs/spec/dns-path.md`, section 9.1).

use crate::base230::BYTES;
use crate::fragment::Fragment;
use crate::relay::{HEAD, Kind, RelayError, RelayReceiver, RelayRefused, RelaySender, TAG};
use core::net::{IpAddr, Ipv6Addr};
use firstflight_wire::ParseError;
use firstflight_wire::asap::mapped;

/// The most fragments in a datagram.
pub const MAX_FORWARDED: usize = 16;
/// A resolver's address, and a fragment.
const ENTRY: usize = 16 + BYTES;
/// The longest datagram from front to front, bytes.
pub const MAX_FORWARD: usize = HEAD + MAX_FORWARDED * ENTRY + TAG;

// With headers of IPv6 and UDP it fits into the smallest MTU that IPv6 allows.
const _: () = assert!(MAX_FORWARD <= 1232);

/// A fragment that another front received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// The resolver that it came through. It serves for accounting and proves nothing.
    pub resolver: IpAddr,
    /// The fragment.
    pub fragment: Fragment,
}

impl Forwarded {
    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let (resolver, fragment) = bytes.split_at_mut(16);
        resolver.copy_from_slice(&mapped(self.resolver.to_canonical()));
        fragment.copy_from_slice(&self.fragment.to_bytes());
        bytes
    }

    fn parse(bytes: &[u8; ENTRY]) -> Result<Self, ParseError> {
        let (resolver, rest) = bytes.split_first_chunk::<16>().ok_or(ParseError::Truncated)?;
        let fragment = rest.try_into().map_err(|_| ParseError::Truncated)?;
        Ok(Self {
            resolver: IpAddr::from(Ipv6Addr::from(*resolver)).to_canonical(),
            fragment: Fragment::from_bytes(fragment)?,
        })
    }
}

/// A datagram with these fragments, at most [`MAX_FORWARDED`]. Without fragments it says that the front is
/// alive.
pub(crate) fn seal(
    sender: &mut RelaySender,
    fragments: &[Forwarded],
    unix_ms: u64,
) -> Result<Vec<u8>, RelayError> {
    let plain: Vec<u8> = fragments.iter().flat_map(|forwarded| forwarded.to_bytes()).collect();
    let mut datagram = vec![0; HEAD + plain.len() + TAG];
    let len = sender.seal(Kind::Forward, &plain, unix_ms, &mut datagram)?;
    datagram.truncate(len);
    Ok(datagram)
}

/// The front that sent a datagram, and its fragments.
pub(crate) fn open(
    receiver: &mut RelayReceiver,
    datagram: &[u8],
    unix_ms: u64,
) -> Result<(u16, Vec<Forwarded>), RelayRefused> {
    // These are parts of sealed data, which are not secret.
    let mut buffer = [0; MAX_FORWARDED * ENTRY];
    receiver.handle(Kind::Forward, datagram, unix_ms, &mut buffer, |front, plain| {
        let (entries, rest) = plain.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(RelayRefused::Content(ParseError::Malformed("length of a datagram from a front")));
        }
        let fragments: Result<_, _> = entries.iter().map(Forwarded::parse).collect();
        Ok((front, fragments.map_err(RelayRefused::Content)?))
    })
}
