//! Packets that arrive in fragments (RFC 791 §3.2, RFC 8200 §4.5).

use crate::pair::Pair;
use crate::peer::{Peer, key, policy, seg};
use firstflight_link::path::{PathConfig, fragment};
use firstflight_stack::{Config, EncapsulationConfig, FragmentLimits, PacketDrop, Trace};
use firstflight_tcp::EcnPolicy;
use firstflight_wire::ip::{Ecn, Fragment, Packet, Protocol};
use firstflight_wire::tcp::Flags;
use std::net::IpAddr;
use std::time::Duration;

const UDP_PORT: u16 = 4433;

/// A path whose routers fragment what is larger than this.
fn narrow(mtu: usize) -> PathConfig {
    PathConfig::with_delay(Duration::from_millis(10)).mtu(mtu).fragments(true)
}

/// Uploads 1 MB. The server's counters show the result.
fn upload(path: PathConfig, v6: bool, carried: bool, seed: u64) -> Pair {
    let mut p = Pair::new(path, seed, v6, |config, _| {
        config.mtu = 1500;
        if carried {
            let datagram = if v6 { 1452 } else { 1472 };
            config.encapsulation = Some(EncapsulationConfig::new(UDP_PORT).datagram(datagram));
        }
    });
    p.encapsulation = carried.then_some(UDP_PORT);
    let listener = p.listen(None);
    let client = p.connect(b"", false);
    let server = p.accept(listener);
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    p.run(Duration::from_secs(300), |p| {
        written += p.client.write(client, &sent[written..], p.now).unwrap_or(0);
        got.extend(p.server_reads(server));
        got.len() == sent.len()
    });
    assert_eq!(got, sent);
    p
}

/// Linux with `ip_no_pmtu_disc=1` uploads through a router whose next link has an MTU of 1,000.
#[test]
fn an_upload_in_fragments_arrives() {
    for (v6, carried) in [(false, false), (true, false), (false, true), (true, true)] {
        let p = upload(narrow(1000), v6, carried, 1);
        let counters = p.server.counters();
        assert!(counters.packets_reassembled > 600, "{counters:?}");
        assert_eq!(counters.fragments_in, 2 * counters.packets_reassembled);
        assert_eq!((counters.dropped_in_all(), counters.reassembly_evicted), (0, 0));
        assert_eq!(p.server.gauges().fragment_bytes, 0);
    }
}

/// The smallest MTU of IPv4, and small fragments of IPv6.
#[test]
fn an_upload_in_small_fragments_arrives() {
    for (v6, mtu, pieces) in [(false, 68, 31), (true, 200, 9)] {
        let p = upload(narrow(mtu), v6, false, 2);
        let counters = p.server.counters();
        assert!(counters.fragments_in / counters.packets_reassembled > pieces * 9 / 10, "{counters:?}");
    }
}

/// Fragments are lost, duplicated, reordered and corrupted.
#[test]
fn an_upload_in_fragments_survives_a_bad_path() {
    for seed in 0..8 {
        let path = narrow(700)
            .loss(0.01)
            .duplicate(0.02)
            .reorder(0.05)
            .reorder_delay(Duration::from_millis(4))
            .corrupt(0.005)
            .jitter(Duration::from_millis(1));
        let mut p = upload(path, seed % 2 == 0, false, seed);
        assert!(p.server.counters().dropped(PacketDrop::FragmentDuplicate) > 0);
        // Incomplete packets are given up, and the driver is woken for that.
        p.idle(Duration::from_secs(30));
        let gauges = p.server.gauges();
        assert_eq!((gauges.fragmented, gauges.fragment_bytes), (0, 0));
        assert!(p.server.counters().reassembly_timeouts > 0);
    }
}

fn passive(tune: impl FnOnce(&mut Config)) -> Peer {
    let mut p = Peer::with(tune);
    let listener = p.listen();
    p.open_passive(listener, seg().mss(1460));
    p
}

#[track_caller]
fn dropped(p: &Peer, reason: PacketDrop, times: u64) {
    assert_eq!(p.stack.counters().dropped(reason), times, "{:?}", p.traces);
    assert_eq!(p.traces.contains(&Trace::Dropped(reason)), times > 0);
}

#[test]
fn a_first_flight_in_fragments_is_accepted() {
    let mut p = Peer::new();
    let listener = p.listen_with(|config| config.fast_open = Some(policy(key(1), 10)));
    let cookie = p.cookie_of(key(1));
    let syn = p.packet(&seg().mss(1460).cookie(cookie.as_bytes()).data(&[7; 1000]).syn());
    let fragments = fragment(&syn, 600, 9).unwrap();
    assert_eq!(fragments.len(), 2);
    for part in fragments.iter().rev() {
        p.inject(part);
    }
    p.expect().syn_ack().ack(1001);
    let id = p.accept(listener);
    assert_eq!(p.read(id), [7; 1000]);
}

/// The fragments of a segment of 1,000 bytes at number 1.
fn parts(p: &mut Peer, mtu: usize) -> Vec<Vec<u8>> {
    let packet = p.packet(&seg().seq(1).ack(1).data(&[5; 1000]));
    fragment(&packet, mtu, 77).unwrap()
}

type Alteration<'a> = &'a dyn Fn(&mut Fragment<'_>);

/// The fragment after `alter`.
fn altered(packet: &[u8], alter: impl FnOnce(&mut Fragment<'_>)) -> Vec<u8> {
    let mut fragment = Fragment::parse(packet).unwrap();
    alter(&mut fragment);
    let mut out = vec![0; packet.len()];
    let len = fragment.emit(&mut out).unwrap();
    out.truncate(len);
    out
}

/// RFC 3168 §5.3.
#[test]
fn a_mark_on_one_fragment_is_echoed() {
    let mut p = Peer::with(|config| config.tcp.set_ecn(EcnPolicy::Accept));
    let listener = p.listen();
    p.send(seg().syn().ece().cwr().mss(1460));
    p.drain();
    p.send(seg().seq(1).ack(1));
    p.accept(listener);
    for (n, marked) in [(0, false), (1, true)] {
        p.ecn = Ecn::Ect0;
        let packet = p.packet(&seg().seq(1 + n * 1000).ack(1).data(&[5; 1000]));
        let mut parts = fragment(&packet, 600, n).unwrap();
        if marked {
            parts[1] = altered(&parts[1], |f| f.ecn = Ecn::Ce);
        }
        parts.iter().for_each(|part| p.inject(part));
        p.pass(100);
        assert_eq!(p.expect().ack(1001 + n * 1000).flags.contains(Flags::ECE), marked);
    }
}

#[test]
fn fragments_can_be_refused() {
    let mut p = passive(|config| config.limits.fragments = FragmentLimits::OFF);
    for part in parts(&mut p, 600) {
        p.inject(&part);
    }
    dropped(&p, PacketDrop::FragmentsOff, 2);
    p.pass(1000);
    p.quiet();
    assert_eq!(p.stack.gauges().fragment_bytes, 0);
}

/// Fragments of packets that would be dropped anyway are not kept.
#[test]
fn fragments_for_others_and_from_nobody_are_not_kept() {
    let mut p = Peer::new();
    let all = parts(&mut p, 600);
    let set = |ip: &str| ip.parse::<IpAddr>().unwrap();
    let cases: [(Alteration, PacketDrop); 6] = [
        (&|f| f.dst = set("10.0.0.9"), PacketDrop::NotForUs),
        (&|f| f.src = set("10.0.0.1"), PacketDrop::BadSource),
        (&|f| f.src = set("224.0.0.1"), PacketDrop::BadSource),
        (&|f| f.src = set("0.0.0.0"), PacketDrop::BadSource),
        (&|f| f.next = Protocol::Other(47), PacketDrop::Protocol),
        // UDP is not supported without an encapsulation.
        (&|f| f.next = Protocol::Udp, PacketDrop::Protocol),
    ];
    for (alter, reason) in cases {
        let before = p.stack.counters().dropped(reason);
        p.inject(&altered(&all[0], alter));
        dropped(&p, reason, before + 1);
        assert_eq!(p.stack.gauges().fragmented, 0);
    }
    let long = |f: &mut Fragment<'_>| f.offset = 1480;
    p.inject(&altered(&all[1], long));
    dropped(&p, PacketDrop::FragmentTooLong, 1);
    let mut bad = all[0].clone();
    bad.truncate(20);
    p.inject(&bad);
    dropped(&p, PacketDrop::BadIp, 1);
    // Its length is not a multiple of 8, though others follow.
    let odd = altered(&all[1], |f| (f.more, f.payload) = (true, &f.payload[..13]));
    p.inject(&odd);
    dropped(&p, PacketDrop::BadFragment, 1);
    assert_eq!(p.stack.gauges().fragmented, 0);
    assert_eq!(p.stack.poll_timeout(), None);
}

#[test]
fn fragments_with_mapped_addresses_are_dropped() {
    let mut p = Peer::v6(|_| {});
    let packet = p.packet(&seg().seq(1).ack(1).data(&[5; 1000]));
    let first = &fragment(&packet, 600, 1).unwrap()[0];
    p.inject(&altered(first, |f| f.src = "::ffff:10.0.0.2".parse().unwrap()));
    dropped(&p, PacketDrop::BadSource, 1);
    assert_eq!(p.stack.gauges().fragmented, 0);
}

/// RFC 5722 §4: the whole packet is dropped, including its later fragments. TCP sends the data again.
#[test]
fn overlapping_fragments_end_the_packet() {
    let mut p = passive(|_| {});
    let all = parts(&mut p, 400);
    assert_eq!(all.len(), 3);
    p.inject(&all[0]);
    p.inject(&all[0]);
    dropped(&p, PacketDrop::FragmentDuplicate, 1);
    p.inject(&altered(&all[1], |f| f.offset -= 8));
    dropped(&p, PacketDrop::FragmentOverlap, 1);
    for part in &all {
        p.inject(part);
    }
    dropped(&p, PacketDrop::FragmentOverlap, 4);
    p.pass(100);
    p.quiet();
    // It is sent again with another identification.
    for part in &all {
        p.inject(&altered(part, |f| f.identification += 1));
    }
    p.pass(100);
    p.expect().ack(1001);
}

#[test]
fn fragments_that_disagree_about_ecn_end_the_packet() {
    let mut p = passive(|_| {});
    let all = parts(&mut p, 600);
    p.inject(&all[0]);
    p.inject(&altered(&all[1], |f| f.ecn = Ecn::Ce));
    dropped(&p, PacketDrop::FragmentEcn, 1);
    p.pass(100);
    p.quiet();
}

/// RFC 4963: when an identification is used again, fragments of two segments can make a wrong one. The checksum detects
/// it.
#[test]
fn pieces_of_two_segments_are_found_by_the_checksum() {
    let mut p = passive(|_| {});
    let old = parts(&mut p, 600);
    let packet = p.packet(&seg().seq(1001).ack(1).data(&[6; 1000]));
    let new = fragment(&packet, 600, 77).unwrap();
    p.inject(&old[0]);
    p.inject(&new[1]);
    dropped(&p, PacketDrop::BadTcp, 1);
    p.pass(100);
    p.quiet();
}

/// The driver is woken to free the memory, without another packet.
#[test]
fn what_never_becomes_whole_is_given_up() {
    let mut p = passive(|_| {});
    let all = parts(&mut p, 600);
    let before = p.ms();
    p.inject(&all[1]);
    assert_eq!(p.stack.gauges().fragmented, 1);
    assert!(p.stack.gauges().fragment_bytes > 500);
    p.at(before + 14_999);
    assert_eq!(p.stack.gauges().fragmented, 1);
    p.at(before + 15_000);
    assert_eq!((p.stack.gauges().fragmented, p.stack.gauges().fragment_bytes), (0, 0));
    assert_eq!(p.stack.counters().reassembly_timeouts, 1);
    assert_eq!(p.stack.poll_timeout(), None);
    p.inject(&all[0]);
    p.pass(20_000);
    p.quiet();
}

/// `ping -s 1400` through a router that fragments.
#[test]
fn pings_in_fragments_are_answered() {
    let mut p = Peer::new();
    let mut ping = vec![8, 0, 0, 0, 0, 1, 0, 1];
    ping.extend([0x61; 1400]);
    let sum = firstflight_wire::checksum::sum(&ping).finish();
    ping[2..4].copy_from_slice(&sum.to_be_bytes());
    let packet = p.ip(Protocol::Icmp, &ping);
    for part in fragment(&packet, 1000, 3).unwrap() {
        p.inject(&part);
    }
    let reply = p.others.pop_front().expect("no answer");
    assert_eq!(Packet::parse(&reply).unwrap().payload[8..], ping[8..]);
}

/// A segment of no connection is answered with a RST even if it arrives in fragments.
#[test]
fn strays_in_fragments_are_answered_with_a_reset() {
    let mut p = Peer::new();
    for part in parts(&mut p, 600) {
        p.inject(&part);
    }
    p.expect().is_rst();
}
