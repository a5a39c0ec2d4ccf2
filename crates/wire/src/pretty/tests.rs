use super::Pretty;
use crate::fixtures::{DATA, SYN, SYN_ACK_V6, UNREACHABLE, UNREACHABLE_V6, hex};
use crate::icmp::{IcmpErrorKind, emit_error};
use crate::ip::{Ecn, Header as IpHeader, Protocol};
use crate::tcp::{
    Cookie, FastOpen, FastOpenForm, Flags, Header, OptionBytes, OptionsBuf, SackBlocks, SynOptions,
    Timestamps, fill_checksum,
};
use crate::{SeqNum, udp};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

fn show(bytes: &[u8]) -> String {
    Pretty(bytes).to_string()
}

fn packet(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let ip = IpHeader {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut bytes = vec![0; 20];
    ip.emit(payload.len(), &mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn tcp(flags: Flags, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = Header {
        src_port: 49_152,
        dst_port: 80,
        seq: SeqNum::new(1),
        ack: SeqNum::new(9),
        flags,
        window: 64_240,
        urgent: 5,
    };
    let mut segment = vec![0; 20 + options.len()];
    header.emit(options, &mut segment).unwrap();
    segment.extend(payload);
    fill_checksum(&mut segment, IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    packet(Protocol::Tcp, &segment)
}

#[test]
fn syn() {
    let extra = OptionBytes::from(&FastOpen::Request(FastOpenForm::Standard));
    let ts = Timestamps { value: 1, echo: 0 };
    let options = SynOptions {
        mss: 1460,
        sack_permitted: true,
        timestamps: Some(ts),
        window_scale: Some(7),
        extra: extra.as_slice(),
    };
    let options = options.to_buf();
    assert_eq!(
        show(&tcp(Flags::SYN, options.as_slice(), b"")),
        "IP 10.0.0.1.49152 > 10.0.0.2.80: Flags [S], seq 1, win 64240, options [mss 1460,sackOK,\
         TS val 1 ecr 0,nop,wscale 7,tfo cookiereq,nop,nop], length 0"
    );
}

#[test]
fn cookies_and_unknown_options() {
    let cookie = Cookie::new(&[0, 0x12, 0xab, 0xff]).unwrap();
    for (form, text) in [
        (FastOpenForm::Standard, "tfo cookie 0012abff,nop,nop"),
        (FastOpenForm::Experimental, "exp-tfo cookie 0012abff"),
    ] {
        let mut options = OptionsBuf::new();
        options.fast_open(&FastOpen::Cookie(form, cookie));
        let shown = show(&tcp(Flags::SYN | Flags::ACK, options.finish(), b"x"));
        let start = "IP 10.0.0.1.49152 > 10.0.0.2.80: Flags [S.], seq 1:2, ack 9, win 64240, options [";
        assert_eq!(shown.strip_prefix(start).unwrap(), [text, "], length 1"].concat());
    }
    let options = hex("fd08fa57 10000000 1e04aabb 1c020101");
    let shown = show(&tcp(Flags::ACK, &options, b""));
    assert!(shown.contains("options [exp-fa57 0x10000000,unknown-30 0xaabb,unknown-28,nop,nop]"));
}

#[test]
fn data_sack_and_urgent() {
    let mut options = OptionsBuf::new();
    let mut blocks = SackBlocks::EMPTY;
    blocks.push(SeqNum::new(10), SeqNum::new(20));
    blocks.push(SeqNum::new(30), SeqNum::new(40));
    options.sack(&blocks);
    assert_eq!(
        show(&tcp(Flags::ACK | Flags::URG, options.finish(), b"hello")),
        "IP 10.0.0.1.49152 > 10.0.0.2.80: Flags [.U], seq 1:6, ack 9, win 64240, urg 5, \
         options [nop,nop,sack 2 {10:20}{30:40}], length 5"
    );
    assert_eq!(
        show(&tcp(Flags::ACK, &[], b"")),
        "IP 10.0.0.1.49152 > 10.0.0.2.80: Flags [.], ack 9, win 64240, length 0"
    );
}

#[test]
fn packets_of_linux() {
    // The TCP checksums were left to a network card.
    assert_eq!(
        show(&hex(SYN)),
        "IP 127.0.0.1.35430 > 127.0.0.1.39729: Flags [S], seq 4222759306, win 65495, options \
         [mss 65495,sackOK,TS val 45870661 ecr 0,nop,wscale 10,tfo cookiereq,nop,nop], length 0, \
         bad checksum"
    );
    assert!(show(&hex(DATA)).ends_with("length 5, bad checksum"));
    assert!(show(&hex(SYN_ACK_V6)).starts_with("IP6 ::1.55505 > ::1.50040: Flags [S.], seq "));
    assert_eq!(
        show(&hex(UNREACHABLE)),
        "IP 127.0.0.1 > 127.0.0.1: ICMP 127.0.0.1 udp port 9 unreachable, length 40"
    );
    assert_eq!(show(&hex(UNREACHABLE_V6)), "IP6 ::1 > ::1: ICMP6 ::1 udp port 9 unreachable, length 60");
}

#[test]
fn icmp() {
    let ping = packet(Protocol::Icmp, &hex("0800 e5ca 1234 0001"));
    assert_eq!(show(&ping), "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 4660, seq 1, length 8");
    let damaged = packet(Protocol::Icmp, &hex("0800 e5ca 1234 0002"));
    assert_eq!(show(&damaged), "IP 10.0.0.1 > 10.0.0.2: ICMP malformed: bad checksum");
    let (src, dst) = (IpAddr::from([10, 0, 0, 9]), IpAddr::from([10, 0, 0, 1]));
    let mut out = [0; 200];
    let about = tcp(Flags::SYN, &[], b"");
    let mut shown = |kind| {
        let len = emit_error(kind, src, dst, &about, &mut out).unwrap();
        let text = show(&out[..len]);
        let text = text.strip_prefix("IP 10.0.0.9 > 10.0.0.1: ICMP ").unwrap();
        text.strip_suffix(", length 48").unwrap().to_string()
    };
    assert_eq!(shown(IcmpErrorKind::PortUnreachable), "10.0.0.2 tcp port 80 unreachable");
    assert_eq!(shown(IcmpErrorKind::HostUnreachable), "host 10.0.0.2 unreachable");
    assert_eq!(
        shown(IcmpErrorKind::PacketTooBig { mtu: 1400 }),
        "10.0.0.2 unreachable - need to frag (mtu 1400)"
    );
    assert_eq!(shown(IcmpErrorKind::ProtocolUnreachable), "10.0.0.2 protocol 6 unreachable");
    assert_eq!(shown(IcmpErrorKind::Other { ty: 5, code: 1 }), "type 5 code 1");
}

#[test]
fn others_and_malformed() {
    assert_eq!(show(&[]), "malformed: truncated");
    assert_eq!(show(&[0x50; 40]), "malformed: bad IP version");
    assert_eq!(show(&packet(Protocol::Tcp, &[0; 8])), "IP 10.0.0.1 > 10.0.0.2: tcp malformed: truncated");
    assert_eq!(
        show(&packet(Protocol::Udp, &hex("0035 1000 000c 0000 61626364"))),
        "IP 10.0.0.1.53 > 10.0.0.2.4096: UDP, length 4"
    );
    let short = packet(Protocol::Udp, &hex("0035 1000 0007 0000"));
    assert_eq!(show(&short), "IP 10.0.0.1 > 10.0.0.2: udp malformed: bad header length");
    assert_eq!(show(&packet(Protocol::Other(47), &[0; 9])), "IP 10.0.0.1 > 10.0.0.2: proto 47, length 9");
}

#[test]
fn the_encapsulation() {
    let carried = |payload: &[u8]| {
        let mut datagram = vec![0; 8];
        udp::Header { src_port: 5000, dst_port: 4433 }.emit(payload.len(), &mut datagram).unwrap();
        datagram.extend(payload);
        udp::fill_checksum(&mut datagram, IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        packet(Protocol::Udp, &datagram)
    };
    let mut payload = vec![8, 0, 0, 0];
    // The inner segment without the IP header, its checksum zero as on the wire.
    payload.extend(&tcp(Flags::SYN, &[2, 4, 4, 152], b"hi")[20..]);
    payload[20..22].fill(0);
    let start = "IP 10.0.0.1.5000 > 10.0.0.2.4433: UDP, length ";
    let segment = "30, carries 49152 > 80: Flags [S], seq 1:3, win 64240, options [mss 1176], length 2";
    assert_eq!(show(&carried(&payload)), [start, segment].concat());
    let mut damaged = carried(&payload);
    damaged[38] ^= 1;
    assert!(show(&damaged).ends_with(", bad checksum"));
    damaged[26..28].fill(0);
    assert!(show(&damaged).ends_with(", no checksum"), "it was left to a socket");
    assert_eq!(show(&carried(&[9, 0, 0, 1])), [start, "4, encapsulation keep-alive"].concat());
    assert_eq!(show(&carried(&[9, 0, 0, 2])), [start, "4, encapsulation reset"].concat());
    // A datagram that only begins like the encapsulation's is shown as plain UDP.
    assert_eq!(show(&carried(&[8, 0, 0, 0, 1, 2])), [start, "6"].concat());
}
