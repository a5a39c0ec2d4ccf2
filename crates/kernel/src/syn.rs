//! What a SYN asked for, by its headers, which the kernel keeps for a listener that wants them (`TCP_SAVE_SYN`).

use crate::sys::SYN_LEN;
use firstflight_credential::Flow;
use firstflight_wire::tcp::{FastOpen, Segment};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first flight of a client, as its SYN had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SynFlight {
    pub flow: Flow,
    pub option: Option<FastOpen>,
    /// Bytes of data in the SYN.
    pub data: u32,
}

impl SynFlight {
    /// Reads the headers from IP on. `None` if they are not those of a SYN in a packet without IPv6 extensions.
    pub(crate) fn parse(headers: &[u8]) -> Option<Self> {
        let (flow, header_len, packet_len) = match headers.first()? >> 4 {
            4 => {
                let head: &[u8; 20] = headers.first_chunk()?;
                let at = |at: usize| Some(Ipv4Addr::from_octets(head.get(at..at + 4)?.try_into().ok()?));
                let flow = Flow { client: at(12)?.into(), server: at(16)?.into() };
                (flow, usize::from(head[0] & 15) * 4, usize::from(u16::from_be_bytes([head[2], head[3]])))
            }
            6 => {
                let head: &[u8; 40] = headers.first_chunk()?;
                if head[6] != 6 {
                    return None;
                }
                let at = |at: usize| Some(Ipv6Addr::from_octets(head.get(at..at + 16)?.try_into().ok()?));
                let flow = Flow { client: plain(at(8)?), server: plain(at(24)?) };
                (flow, 40, 40 + usize::from(u16::from_be_bytes([head[4], head[5]])))
            }
            _ => return None,
        };
        let tcp = headers.get(header_len..)?;
        let segment = Segment::parse(tcp).ok()?;
        let data = packet_len.checked_sub(header_len)?.checked_sub(tcp.len() - segment.payload.len())?;
        Some(Self { flow, option: segment.options.fast_open(), data: data as u32 })
    }

    pub(crate) fn of((headers, len): &([u8; SYN_LEN], usize)) -> Option<Self> {
        Self::parse(headers.get(..*len)?)
    }
}

/// An IPv4 address in an IPv6 one counts as that IPv4 address.
fn plain(ip: Ipv6Addr) -> IpAddr {
    IpAddr::V6(ip).to_canonical()
}

#[cfg(test)]
mod tests;
