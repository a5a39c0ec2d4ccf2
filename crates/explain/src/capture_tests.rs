//! Files of both formats, every link type, and damaged files.

use super::capture::{Capture, OpenError};
use super::fixtures::*;
use super::frame::{Content, LinkType};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::{Instant, SeqNum};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness};
use proptest::prelude::*;
use std::borrow::Cow;
use std::time::Duration;

const DATA: &[u8] = b"request";

/// Times and link types of all frames, and why reading stopped.
fn read(file: &[u8]) -> (Vec<(Instant, u32)>, Option<String>) {
    let mut capture = Capture::open(file).unwrap();
    let mut frames = Vec::new();
    loop {
        match capture.next() {
            Ok(Some(frame)) => frames.push((frame.at, frame.link.0)),
            Ok(None) => return (frames, None),
            Err(damage) => {
                assert!(capture.next().unwrap().is_none(), "damage is told once");
                return (frames, Some(damage.to_string()));
            }
        }
    }
}

fn syn_packet(v6: bool) -> Vec<u8> {
    let (client, server) = ends(v6, 40000);
    packet(client, server, &syn(&cookie(&COOKIE), DATA))
}

#[test]
fn classic_files_of_both_byte_orders() {
    for big in [false, true] {
        let file = pcap(big, 101, &[(1_500_000, syn_packet(false)), (2_000_001, vec![])]);
        let times = [(Instant::from_micros(1_500_000), 101), (Instant::from_micros(2_000_001), 101)];
        assert_eq!(read(&file), (times.to_vec(), None));
    }
    let mut nanoseconds = pcap(false, 101, &[(1_500_000, vec![])]);
    nanoseconds[..4].copy_from_slice(&[0x4d, 0x3c, 0xb2, 0xa1]);
    assert_eq!(read(&nanoseconds).0, [(Instant::from_nanos(1_000_500_000), 101)]);
}

#[test]
fn the_units_of_pcapng() {
    let resolution = |value: u8| [9, 0, 1, 0, value, 0, 0, 0, 0, 0, 0, 0];
    let offset = [14, 0, 8, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (options, stamp, time) in [
        (&[][..], 1_000_001, Instant::from_micros(1_000_001)),
        (&resolution(9), 7, Instant::from_nanos(7)),
        (&resolution(3), 7, Instant::from_millis(7)),
        // 1/1024 s.
        (&resolution(0x8a), 512, Instant::from_millis(500)),
        (&offset, 1, Instant::from_micros(10_000_001)),
        (&resolution(127), u64::MAX, Instant::ZERO),
        (&resolution(0), u64::MAX, Instant::FAR_FUTURE),
    ] {
        let packet = enhanced(stamp, &[1, 2, 3], 3);
        let file = [section(), interface(1, options), packet].concat();
        assert_eq!(read(&file), (vec![(time, 1)], None), "{options:?}");
    }
}

#[test]
fn pcapng_in_the_other_byte_order() {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Big).unwrap();
    let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
    let described = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
    writer.write_pcapng_block(described).unwrap();
    let (timestamp, data) = (Duration::new(1_700_000_000, 17), Cow::Owned(syn_packet(true)));
    let options = vec![EnhancedPacketOption::Flags(1)];
    let packet = EnhancedPacketBlock { interface_id: 0, timestamp, original_len: 99, data, options };
    writer.write_pcapng_block(packet).unwrap();
    let time = Instant::from_nanos(1_700_000_000_000_000_017);
    assert_eq!(read(&writer.into_inner()), (vec![(time, 101)], None));
}

#[test]
fn the_other_packet_blocks() {
    // Interface 0, no drops. The other fields are as in an Enhanced Packet Block.
    let mut obsolete = enhanced(7, &[0; 5], 5);
    obsolete[0] = 2;
    // Three bytes of the packet and one byte of padding.
    let simple = [3_u32, 20, 3].map(u32::to_le_bytes).concat();
    let simple = [simple, vec![1, 2, 3, 0], 20_u32.to_le_bytes().to_vec()].concat();
    let file = [section(), interface(1, &[]), obsolete, simple].concat();
    let at = Instant::from_micros(7);
    assert_eq!(read(&file), (vec![(at, 1), (at, 1)], None));
    let mut capture = Capture::open(&file[..]).unwrap();
    capture.next().unwrap();
    assert_eq!(*capture.next().unwrap().unwrap().bytes, [1, 2, 3]);
}

#[test]
fn a_new_section_describes_its_interfaces_anew() {
    let part = |link| [section(), interface(link, &[]), enhanced(5, &[0; 8], 8)].concat();
    let links: Vec<_> = read(&[part(101), part(1)].concat()).0.iter().map(|(_, link)| *link).collect();
    assert_eq!(links, [101, 1]);
}

#[test]
fn blocks_that_are_not_packets_are_passed() {
    let mut file = [section(), interface(1, &[])].concat();
    // A custom block, and a name resolution block without valid content.
    for kind in [0x0bad, 4] {
        file.extend([u32::to_le_bytes(kind), 16_u32.to_le_bytes(), [7; 4], 16_u32.to_le_bytes()].concat());
    }
    file.extend(enhanced(5, &[0; 8], 8));
    assert_eq!(read(&file), (vec![(Instant::from_micros(5), 1)], None));
}

#[test]
fn damage_is_told_after_what_came_before() {
    let whole = pcapng(&visit(false, 40000, 0, syn(&[], &[]), syn_ack(0, &[], &[])));
    for cut in [1, 4, 30] {
        let (frames, damage) = read(&whole[..whole.len() - cut]);
        assert_eq!(frames.len(), 3, "{cut}");
        assert!(damage.unwrap().contains("in the middle of a packet"), "{cut}");
    }
    let classic = pcap(false, 101, &[(1, vec![0; 40]), (2, vec![0; 40])]);
    let (frames, damage) = read(&classic[..classic.len() - 1]);
    assert_eq!((frames.len(), damage.is_some()), (1, true));
    // Only the first bytes of the file.
    for whole in [&whole[..8], &classic[..8]] {
        assert!(read(whole).1.is_some());
    }
    let mut wrong = whole.clone();
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    let (frames, damage) = read(&wrong);
    assert_eq!((frames.len(), damage.as_deref()), (3, Some("a block of it is malformed")));
    let nobody = [section(), enhanced(1, &[0; 8], 8)].concat();
    assert!(read(&nobody).1.unwrap().contains("not described"));
    let huge = pcap(false, 101, &[(1, vec![0; 300_000])]);
    assert!(read(&huge).1.unwrap().contains("262,144"));
}

#[test]
fn files_that_are_no_captures() {
    for file in [&b""[..], b"abc", b"GET / HTTP/1.1", &[0; 64]] {
        assert!(matches!(Capture::open(file), Err(OpenError::NotACapture)), "{file:?}");
    }
}

/// The data of the SYN in a frame.
fn syn_data(link: u32, frame: &[u8]) -> Option<Vec<u8>> {
    match Content::read(LinkType(link), &mut frame.to_vec())? {
        Content::Tcp(_, _, segment) => segment.options.fast_open().map(|_| segment.payload.to_vec()),
        Content::Icmp(_) => None,
    }
}

#[test]
fn every_link_type() {
    for v6 in [false, true] {
        let ether_type = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let tag = |kind: [u8; 2]| [kind, [0, 5]].concat();
        let ethernet = |tags: &[u8]| [&[2; 12][..], tags, &ether_type].concat();
        for (link, head) in [
            (101, vec![]),
            (12, vec![]),
            (14, vec![]),
            (if v6 { 229 } else { 228 }, vec![]),
            (1, ethernet(&[])),
            (1, ethernet(&tag([0x81, 0]))),
            (1, ethernet(&[tag([0x88, 0xa8]), tag([0x81, 0])].concat())),
            (113, [&[0; 14][..], &ether_type].concat()),
            (276, [&ether_type[..], &[0; 18]].concat()),
            (0, vec![2, 0, 0, 0]),
            (108, vec![0, 0, 0, 24]),
        ] {
            // Ethernet adds padding.
            let frame = [head, syn_packet(v6), vec![0; 3]].concat();
            assert!(LinkType(link).is_known());
            assert_eq!(syn_data(link, &frame).as_deref(), Some(DATA), "{link}");
        }
    }
    assert!(!LinkType(105).is_known());
    assert_eq!(syn_data(105, &syn_packet(false)), None);
    assert_eq!(syn_data(1, &[[2; 12].as_slice(), &[8, 6], &[0; 28]].concat()), None, "ARP");
}

#[test]
fn a_packet_that_was_cut_off_keeps_its_length() {
    for v6 in [false, true] {
        let whole = syn_packet(v6);
        let payload = whole.len() - DATA.len();
        assert_eq!(syn_data(101, &whole[..payload]), Some(vec![0; DATA.len()]));
        assert_eq!(syn_data(101, &whole[..payload + 2]).unwrap()[..2], DATA[..2]);
        // If options are missing, nothing is known.
        assert_eq!(syn_data(101, &whole[..payload - 1]), None);
    }
}

#[test]
fn checksums_and_lengths_left_to_the_network_card() {
    let mut packet = syn_packet(false);
    packet[10..12].fill(0);
    packet[36..38].fill(0);
    assert_eq!(syn_data(101, &packet).as_deref(), Some(DATA));
    packet[2..4].fill(0);
    assert_eq!(syn_data(101, &packet).as_deref(), Some(DATA));
}

#[test]
fn icmp_errors_are_read() {
    for v6 in [false, true] {
        let (client, server) = ends(v6, 40000);
        let kind = IcmpErrorKind::PacketTooBig { mtu: 1280 };
        let mut frame = icmp_error(kind, server, client, &syn_packet(v6));
        let Some(Content::Icmp(error)) = Content::read(LinkType::RAW, &mut frame) else {
            panic!("no ICMP error")
        };
        assert_eq!((error.kind, error.dst), (kind, server.ip()));
        let seq = error.quoted[4..8].try_into().map(u32::from_be_bytes).unwrap();
        assert_eq!(SeqNum::new(seq), CLIENT_ISN);
    }
}

fn drain(file: &[u8]) {
    if let Ok(capture) = Capture::open(file) {
        super::explained::explain_within(4, capture, |report| {
            serde_json::to_string(&report.record()).unwrap();
            let _ = report.to_string();
        });
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_capture(bytes in prop::collection::vec(any::<u8>(), 0..600), format in 0..3) {
        drain(&bytes);
        let start = match format {
            0 => pcap(false, 1, &[]),
            1 => pcap(true, 113, &[]),
            _ => [section(), interface(101, &[])].concat(),
        };
        drain(&[start, bytes].concat());
    }

    #[test]
    fn arbitrary_bytes_as_a_frame(mut bytes in prop::collection::vec(any::<u8>(), 0..200), link in 0..300_u32) {
        Content::read(LinkType(link), &mut bytes);
    }

    #[test]
    fn a_capture_with_wrong_bytes(wrong in prop::collection::vec((0..2000_usize, any::<u8>()), 1..20)) {
        let data = syn(&cookie(&COOKIE), DATA);
        let mut file = pcapng(&visit(false, 40000, 0, data, syn_ack(7, &[], &[])));
        file.extend_from_within(..);
        for (at, byte) in wrong {
            let at = at % file.len();
            file[at] = byte;
        }
        drain(&file);
    }
}
