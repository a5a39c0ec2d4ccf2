//! What a SYN asked for, by its headers, which the kernel keeps for a listener that wants them (`TCP_SAVE_SYN`).

use crate::sys::SYN_LEN;
use firstflight_credential::Flow;
use firstflight_wire::tcp::{FastOpen, Segment};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first flight of a client, as its SYN had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub flow: Flow,
    pub option: Option<FastOpen>,
    /// Bytes of data in the SYN.
    pub data: u32,
}

impl Asked {
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use firstflight_wire::tcp::{Cookie, FastOpenForm};

    /// A SYN with a cookie of eight bytes and 100 bytes of data, without the data.
    fn syn(v6: bool) -> Vec<u8> {
        let mut tcp = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 2, 0xff, 0xff, 0, 0, 0, 0];
        tcp.extend([34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0]);
        let mut packet = if v6 {
            let mut head = vec![0x60, 0, 0, 0, 0, 132, 6, 64];
            head.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
            head.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
            head
        } else {
            vec![0x45, 0, 0, 152, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
        };
        packet.extend(tcp);
        packet
    }

    #[test]
    fn a_syn_is_read_by_its_headers() {
        let cookie = Cookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        for (v6, client) in [(false, "10.0.0.1"), (true, "fd00::1")] {
            let asked = Asked::parse(&syn(v6)).unwrap();
            assert_eq!(asked.flow.client, client.parse::<IpAddr>().unwrap());
            assert_eq!(asked.option, Some(FastOpen::Cookie(FastOpenForm::Standard, cookie)));
            assert_eq!(asked.data, 100);
        }
    }

    #[test]
    fn damaged_headers_are_not_read() {
        for v6 in [false, true] {
            let whole = syn(v6);
            for len in 0..whole.len() {
                assert_eq!(Asked::parse(&whole[..len]), None, "{len} bytes");
            }
            let mut short = whole.clone();
            // The packet claims to be shorter than its headers.
            short[if v6 { 5 } else { 3 }] = 20;
            short[if v6 { 4 } else { 2 }] = 0;
            assert_eq!(Asked::parse(&short), None);
        }
        let mut extended = syn(true);
        extended[6] = 0;
        assert_eq!(Asked::parse(&extended), None, "IPv6 with an extension");
    }
}
