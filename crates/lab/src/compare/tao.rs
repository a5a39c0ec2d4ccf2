//! T/TCP (RFC 1644) as a policy in front of the engine: the test of the connection count ("TAO") decides whether the
//! data of a SYN is delivered before the handshake. The engine sees a valid cookie where the test passes, and none
//! where it fails.

use crate::attack::world::packet;
use crate::exchange::{CLIENT, Gate, MOVED, keys};
use firstflight_credential::Flow;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, Flags, Header, OptionsBuf, Segment};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Kind and length of the option CC (RFC 1644, 3.1).
const CC: [u8; 2] = [11, 6];
/// The option with two NOPs in front, as in RFC 1644's appendix.
const OPTION: usize = 8;

/// A connection count as an option.
pub fn option(count: u32) -> [u8; OPTION] {
    let [a, b, c, d] = count.to_be_bytes();
    [1, 1, CC[0], CC[1], a, b, c, d]
}

/// The counts that a server has seen last: state for each host, kept as long as it can.
#[derive(Debug, Default)]
pub struct Tao {
    seen: BTreeMap<IpAddr, u32>,
}

impl Tao {
    /// A server that knows no host.
    pub fn gate() -> Gate {
        Self::default().into_gate()
    }

    /// A server that `host` has visited a few times.
    pub fn knowing(host: IpAddr) -> Self {
        Self { seen: BTreeMap::from([(host, 3)]) }
    }

    pub fn into_gate(mut self) -> Gate {
        Box::new(move |bytes| {
            if let Some(changed) = self.test(bytes) {
                *bytes = changed;
            }
            true
        })
    }

    /// A SYN as the engine gets it, or `None` for other packets. The count of a host that is not known is taken as if
    /// its handshake had completed, which it does for honest clients.
    fn test(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let ip = Packet::parse(bytes).ok()?;
        let syn = Segment::parse(ip.payload).ok().filter(is_syn)?;
        let (count, rest) = count(&syn)?;
        let last = self.seen.get(&ip.src).copied();
        // RFC 1644, 2.2: a larger count is a new SYN.
        let new = last.is_some_and(|last| (count.wrapping_sub(last) as i32) > 0);
        if last.is_none() || new {
            self.seen.insert(ip.src, count);
        }
        let mut options = OptionsBuf::new();
        let mut fits = options.raw(&rest);
        if new {
            let cookie = keys().grant(&Flow { client: ip.src, server: ip.dst });
            fits &= options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
        }
        fits.then(|| packet(ip.src, ip.dst, &header(&syn), options.finish(), syn.payload))
    }
}

fn is_syn(segment: &Segment<'_>) -> bool {
    segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK)
}

fn header(segment: &Segment<'_>) -> Header {
    Header {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
    }
}

/// The count of a SYN, and its other options.
fn count(syn: &Segment<'_>) -> Option<(u32, Vec<u8>)> {
    let options = syn.options.raw;
    let at = options.windows(2).position(|two| two == CC)?;
    let count = options.get(at + 2..at + 6)?.first_chunk().copied().map(u32::from_be_bytes)?;
    let rest = [options.get(..at.checked_sub(2)?)?, options.get(at + 6..)?].concat();
    Some((count, rest))
}

/// What the client adds to its SYNs: a count that grows with each connection to any host.
pub fn client() -> Gate {
    let mut next = 100;
    Box::new(move |bytes| {
        let changed = (|| {
            let ip = Packet::parse(bytes).ok().filter(|ip| [CLIENT, MOVED].contains(&ip.src))?;
            let syn = Segment::parse(ip.payload).ok().filter(is_syn)?;
            let mut options = OptionsBuf::new();
            if !options.raw(syn.options.raw) || !options.raw(&option(next)) {
                return None;
            }
            Some(packet(ip.src, ip.dst, &header(&syn), options.finish(), syn.payload))
        })();
        if let Some(changed) = changed {
            next += 1;
            *bytes = changed;
        }
        true
    })
}
