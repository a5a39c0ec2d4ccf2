//! What the kernel joined is cut apart, and what is joined for the kernel is what was sent.

use super::offload::{Inbox, Outbox};
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::{Flags, Segment, fill_checksum};
use firstflight_wire::udp::Datagram;
use std::net::IpAddr;

const IDENTIFICATION: u16 = 0xfffe;

/// A TCP packet with timestamps.
fn packet(v6: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0x1f, 0x90, 0x00, 0x50];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(77_u32.to_be_bytes());
    tcp.extend([0x80, flags, 0x10, 0x00, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8]);
    tcp.extend(payload);
    with_ip(v6, 6, tcp)
}

fn with_ip(v6: bool, protocol: u8, mut transport: Vec<u8>) -> Vec<u8> {
    let (src, dst): (IpAddr, IpAddr) = addresses(v6);
    if protocol == 6 {
        fill_checksum(&mut transport, src, dst);
    } else {
        firstflight_wire::udp::fill_checksum(&mut transport, src, dst);
    }
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((transport.len() as u16).to_be_bytes());
        ip.extend([protocol, 64]);
        ip
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend((transport.len() as u16 + 20).to_be_bytes());
        ip.extend(IDENTIFICATION.to_be_bytes());
        ip.extend([0x40, 0, 64, protocol, 0, 0]);
        ip
    };
    for ip in [src, dst] {
        match ip {
            IpAddr::V4(ip) => packet.extend(ip.octets()),
            IpAddr::V6(ip) => packet.extend(ip.octets()),
        }
    }
    if !v6 {
        let checksum = firstflight_wire::checksum::sum(&packet).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet.extend(transport);
    packet
}

fn addresses(v6: bool) -> (IpAddr, IpAddr) {
    let all = if v6 { ["fd00::1", "fd00::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let [src, dst] = all.map(|ip| ip.parse().unwrap());
    (src, dst)
}

/// Everything that comes out after a call of the system gave these bytes.
fn cut(bytes: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut inbox = Inbox::new();
    inbox.room()[..bytes.len()].copy_from_slice(bytes);
    inbox.take(bytes.len());
    let mut out = vec![0; mtu];
    std::iter::from_fn(|| inbox.next(&mut out).map(|len| out[..len].to_vec())).collect()
}

fn bytes(n: usize, from: usize) -> Vec<u8> {
    (from..from + n).map(|n| n as u8).collect()
}

/// Joins as many of the packets as can be joined.
fn join(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut outbox, mut calls) = (Outbox::new(), Vec::new());
    for packet in packets {
        if !outbox.takes(packet) {
            calls.push(outbox.finish().to_vec());
            outbox.clear();
        }
        outbox.push(packet);
    }
    calls.push(outbox.finish().to_vec());
    calls
}

/// The packets without what the kernel sets for each: the number of an IPv4 packet and its checksum.
fn essence(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let clear = |packet: &Vec<u8>| {
        let mut packet = packet.clone();
        if packet[0] >> 4 == 4 {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        packet
    };
    packets.iter().map(clear).collect()
}

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

#[test]
fn segments_that_follow_one_another_are_one_call_and_come_apart_again() {
    for v6 in [false, true] {
        let start = u32::MAX - 1000;
        let mut sent: Vec<_> = (0..10)
            .map(|n| packet(v6, start.wrapping_add(n * 1000), ACK, &bytes(1000, n as usize)))
            .collect();
        sent.push(packet(v6, start.wrapping_add(10_000), ACK | PSH, &bytes(500, 3)));
        let calls = join(&sent);
        assert_eq!(calls.len(), 1);
        // NEEDS_CSUM and TSO of the family; header, segment, and where the checksum is.
        let ip: u8 = if v6 { 40 } else { 20 };
        assert_eq!(calls[0][..2], [1, if v6 { 4 } else { 1 }]);
        let numbers: Vec<u16> =
            calls[0][2..10].chunks(2).map(|two| u16::from_ne_bytes([two[0], two[1]])).collect();
        assert_eq!(numbers, [u16::from(ip) + 32, 1000, ip.into(), 16]);
        let got = cut(&calls[0], 1500);
        assert_eq!(essence(&got), essence(&sent));
        for packet in &got {
            let ip = Packet::parse(packet).unwrap();
            assert!(Segment::parse_checked(ip.payload, ip.src, ip.dst).is_ok());
            assert_eq!(ip.protocol, Protocol::Tcp);
        }
    }
}

#[test]
fn what_differs_goes_apart() {
    let first = packet(false, 0, ACK, &bytes(1000, 0));
    let mut tos = packet(false, 1000, ACK, &bytes(1000, 0));
    tos[1] = 2;
    let mut acknowledges = first.clone();
    acknowledges[28] ^= 1;
    let mut timestamp = packet(false, 1000, ACK, &bytes(1000, 0));
    timestamp[47] ^= 1;
    let others = [
        packet(false, 1001, ACK, &bytes(1000, 0)),
        packet(false, 1000, ACK, &bytes(1001, 0)),
        packet(false, 1000, ACK | 1, &bytes(1000, 0)),
        packet(false, 1000, ACK, &[]),
        packet(true, 1000, ACK, &bytes(1000, 0)),
        tos,
        acknowledges,
        timestamp,
        first.clone(),
    ];
    for other in others {
        let sent = [first.clone(), other];
        let calls = join(&sent);
        assert_eq!(calls.len(), 2);
        for (call, packet) in calls.iter().zip(&sent) {
            assert_eq!((&call[..10], &call[10..]), (&[0; 10][..], &packet[..]), "one packet goes as it is");
            assert_eq!(cut(call, 1500), std::slice::from_ref(packet));
        }
    }
    // Nothing follows a shorter one, one with PSH, or one without data; and a call is bounded.
    for last in [packet(false, 1000, ACK, &bytes(999, 0)), packet(false, 1000, ACK | PSH, &bytes(1000, 0))] {
        let next = 1000 + (last.len() as u32 - 52);
        assert_eq!(join(&[first.clone(), last, packet(false, next, ACK, &bytes(999, 0))]).len(), 2);
    }
    assert_eq!(join(&[packet(false, 0, ACK, &[]), packet(false, 0, ACK, &[])]).len(), 2);
    let many: Vec<_> = (0..100).map(|n| packet(false, n * 1000, ACK, &bytes(1000, 0))).collect();
    assert_eq!(join(&many).len(), 2);
}

/// FIN is the last segment's, CWR the first one's.
#[test]
fn flags_are_where_they_belong() {
    let whole = packet(false, 0, ACK | PSH | 1 | 0x80, &bytes(2500, 0));
    let mut call = vec![1, 1 | 0x80];
    for number in [52_u16, 1000, 20, 16] {
        call.extend(number.to_ne_bytes());
    }
    call.extend(&whole);
    let got = cut(&call, 1500);
    let flags: Vec<_> = got.iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [ACK | 0x80, ACK, ACK | PSH | 1]);
    let numbers: Vec<_> = got.iter().map(|packet| u16::from_be_bytes([packet[4], packet[5]])).collect();
    assert_eq!(numbers, [0xfffe, 0xffff, 0]);
    let lens: Vec<_> = got.iter().map(Vec::len).collect();
    assert_eq!(lens, [1052, 1052, 552]);
    assert!(Flags::from_bits(flags[2]).contains(Flags::FIN));
}

#[test]
fn datagrams_come_apart() {
    for v6 in [false, true] {
        let mut udp = vec![0, 9, 0, 10, 0, 0, 0, 0];
        udp.extend(bytes(250, 0));
        let whole = with_ip(v6, 17, udp);
        let mut call = vec![1, 5];
        for number in [0_u16, 100, 0, 6] {
            call.extend(number.to_ne_bytes());
        }
        call.extend(&whole);
        let got = cut(&call, 1500);
        assert_eq!(got.len(), 3);
        let mut payload: Vec<u8> = Vec::new();
        for packet in &got {
            let ip = Packet::parse(packet).unwrap();
            payload.extend(Datagram::parse_checked(ip.payload, ip.src, ip.dst).unwrap().payload);
        }
        assert_eq!(payload, bytes(250, 0));
    }
}

#[test]
fn a_checksum_left_to_us_is_completed() {
    let right = packet(false, 5, ACK, b"data");
    let mut left = right.clone();
    let (src, dst) = addresses(false);
    let partial = !firstflight_wire::checksum::pseudo_header(src, dst, 6, left.len() as u32 - 20).finish();
    left[36..38].copy_from_slice(&partial.to_be_bytes());
    let mut call = vec![1, 0];
    for number in [0_u16, 0, 20, 16] {
        call.extend(number.to_ne_bytes());
    }
    call.extend(&left);
    assert_eq!(cut(&call, 1500), [right]);
}

/// The kernel would not do this. Nothing panics, and nothing comes out that is longer than the link's packets.
#[test]
fn nonsense_is_dropped() {
    let whole = packet(false, 0, ACK, &bytes(2500, 0));
    for len in 0..60 {
        for kind in 0..=255 {
            for (size, start, offset) in [(0_u16, 0, 0), (1, 20, 16), (u16::MAX, u16::MAX, u16::MAX)] {
                let mut call = vec![1, kind];
                for number in [0, size, start, offset] {
                    call.extend(number.to_ne_bytes());
                }
                call.extend(&whole[..len]);
                call.truncate(len);
                assert!(cut(&call, 1500).iter().all(|packet| packet.len() <= 1500));
            }
        }
    }
    let mut call = vec![1, 1];
    for number in [0_u16, 2000, 20, 16] {
        call.extend(number.to_ne_bytes());
    }
    call.extend(&whole);
    assert_eq!(cut(&call, 1500).len(), 0, "a segment longer than the link's packets");
}
