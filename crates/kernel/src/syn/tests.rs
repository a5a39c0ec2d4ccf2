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
        let asked = SynFlight::parse(&syn(v6)).unwrap();
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
            assert_eq!(SynFlight::parse(&whole[..len]), None, "{len} bytes");
        }
        let mut short = whole.clone();
        // The packet claims to be shorter than its headers.
        short[if v6 { 5 } else { 3 }] = 20;
        short[if v6 { 4 } else { 2 }] = 0;
        assert_eq!(SynFlight::parse(&short), None);
    }
    let mut extended = syn(true);
    extended[6] = 0;
    assert_eq!(SynFlight::parse(&extended), None, "IPv6 with an extension");
}
