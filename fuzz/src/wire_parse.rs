//! All parsers and encoders of `firstflight-wire`: a parsed object can be encoded, and parsed again.

use firstflight_wire::tcp::{
    Cookie, FastOpen, Header, MAX_OPTIONS, OptionBytes, Options, OptionsBuf, Segment, TcpOption,
    fill_checksum,
};
use firstflight_wire::{ParseError, Pretty, checksum, icmp, ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Parses `data` as every possible object: unchanged, and with corrected checksums.
pub fn run(data: &[u8]) {
    everything(data);
    if let Some(repaired) = repaired(data) {
        everything(&repaired);
    }
}

fn everything(data: &[u8]) {
    assert!(!Pretty(data).to_string().is_empty());
    if let Ok(packet) = ip::Packet::parse(data) {
        one_packet(&packet);
    }
    if let Ok(fragment) = ip::Fragment::parse(data) {
        one_fragment(data, &fragment);
    }
    if let Ok(segment) = Segment::parse(data) {
        one_segment(&segment, V4);
        one_segment(&segment, V6);
    }
    for syn in [false, true] {
        one_option_list(data, syn);
    }
    for error in [icmp::parse_v4(data), icmp::parse_v6(data, V6, V6)].into_iter().flatten() {
        assert!(error.quoted.len() >= 8 && error.src.is_ipv4() == error.dst.is_ipv4());
    }
    let mut out = vec![0; data.len()];
    if let Some(len) = icmp::echo_reply(data, &mut out) {
        let (asked, answer) = (ip::Packet::parse(data).unwrap(), ip::Packet::parse(&out[..len]).unwrap());
        assert_eq!((asked.src, asked.dst), (answer.dst, answer.src));
        assert_eq!(icmp::echo_reply(&out[..len], &mut vec![0; len]), None, "an answer to an answer");
    }
}

/// Encoded without IP options or extension headers, it is the same packet.
fn one_packet(packet: &ip::Packet<'_>) {
    assert_eq!(packet.src.is_ipv4(), packet.dst.is_ipv4());
    let header = ip::Header {
        src: packet.src,
        dst: packet.dst,
        protocol: packet.protocol,
        hop_limit: packet.hop_limit,
        ecn: packet.ecn,
        dont_fragment: true,
        identification: 0,
    };
    let mut out = vec![0; header.len() + packet.payload.len()];
    let at = header.emit(packet.payload.len(), &mut out).unwrap();
    out[at..].copy_from_slice(packet.payload);
    assert_eq!(ip::Packet::parse(&out).as_ref(), Ok(packet));
    if let Ok(segment) = Segment::parse_checked(packet.payload, packet.src, packet.dst) {
        one_segment(&segment, packet.src);
    }
    report(packet, &out);
}

/// Encoded without IP options or other extension headers, it is the same fragment.
fn one_fragment(data: &[u8], fragment: &ip::Fragment<'_>) {
    assert_eq!(ip::Packet::parse(data), Err(ParseError::Fragment));
    let mut out = vec![0; data.len() + 8];
    let len = fragment.emit(&mut out).unwrap();
    assert_eq!(ip::Fragment::parse(&out[..len]).as_ref(), Ok(fragment));
}

/// An encoded ICMP error about the packet is parsed to the same error.
fn report(packet: &ip::Packet<'_>, whole: &[u8]) {
    let kind = icmp::IcmpErrorKind::PacketTooBig { mtu: whole.len() as u32 & 0xffff };
    let mut out = vec![0; whole.len() + 100];
    let len = icmp::emit_error(kind, packet.dst, packet.src, whole, &mut out).unwrap();
    let report = ip::Packet::parse(&out[..len]).unwrap();
    let read = match packet.src {
        IpAddr::V4(_) => icmp::parse_v4(report.payload),
        IpAddr::V6(_) => icmp::parse_v6(report.payload, report.src, report.dst),
    };
    if let Ok(error) = read {
        assert_eq!((error.kind, error.src, error.dst), (kind, packet.src, packet.dst));
    } else {
        assert!(packet.payload.len() < 8, "a report about a whole packet was not read: {read:?}");
    }
}

fn one_segment(segment: &Segment<'_>, ip: IpAddr) {
    let header = Header {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
    };
    let mut out = vec![0; 20 + segment.options.raw.len() + segment.payload.len()];
    let at = header.emit(segment.options.raw, &mut out).unwrap();
    out[at..].copy_from_slice(segment.payload);
    fill_checksum(&mut out, ip, ip);
    assert_eq!(Segment::parse_checked(&out, ip, ip).as_ref(), Ok(segment));
}

/// Supported options are the same after they were encoded again.
fn one_option_list(data: &[u8], syn: bool) {
    let data = &data[..data.len().min(MAX_OPTIONS)];
    let options = Options::parse(data, syn);
    assert!(options.window_scale.is_none_or(|shift| shift <= 14));
    assert!(syn || (options.mss.is_none() && options.fast_open().is_none()));
    for option in options.iter() {
        assert!(!format!("{option:?}").is_empty());
        let mut buf = OptionsBuf::new();
        let fits = match option {
            TcpOption::Nop => buf.nop(),
            TcpOption::Mss(mss) => buf.mss(mss),
            TcpOption::WindowScale(shift) if shift <= 14 => buf.window_scale(shift),
            TcpOption::SackPermitted => buf.sack_permitted(),
            TcpOption::Timestamps(timestamps) => buf.timestamps(timestamps),
            TcpOption::FastOpen(fast_open) => {
                fast_open_again(&fast_open);
                buf.fast_open(&fast_open)
            }
            _ => continue,
        };
        assert!(fits, "{option:?} does not fit into an empty header");
        let again = Options::parse(buf.finish(), true);
        assert!(again.iter().any(|o| o == option), "{option:?} became {again:?}");
    }
}

fn fast_open_again(fast_open: &FastOpen) {
    let bytes = OptionBytes::from(fast_open);
    assert_eq!(OptionBytes::new(bytes.as_slice()), Some(bytes));
    if !fast_open.cookie_bytes().is_empty() {
        let cookie = Cookie::new(fast_open.cookie_bytes()).unwrap();
        assert_eq!(cookie.as_bytes(), fast_open.cookie_bytes());
    }
}

/// The packet with corrected lengths and checksums, which random bytes never get right.
fn repaired(data: &[u8]) -> Option<Vec<u8>> {
    let mut data = data.get(..data.len().min(0xffff))?.to_vec();
    let len = data.len();
    match data.first()? >> 4 {
        4 if len >= 20 => {
            let header = (usize::from(data[0] & 0xf) * 4).clamp(20, len);
            data[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            data[10..12].copy_from_slice(&[0, 0]);
            let sum = checksum::sum(&data[..header]).finish();
            data[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        6 if len >= 40 => data[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes()),
        _ => return None,
    }
    let packet = match ip::Packet::parse(&data) {
        Err(ParseError::Fragment) => return Some(data),
        packet => packet.ok()?,
    };
    let (src, dst, protocol, payload) = (packet.src, packet.dst, packet.protocol, packet.payload.len());
    let body = data.get_mut(len - payload..)?;
    match (protocol, src) {
        (ip::Protocol::Tcp, _) => fill_checksum(body, src, dst),
        (ip::Protocol::Icmp, IpAddr::V4(_)) | (ip::Protocol::Icmpv6, IpAddr::V6(_)) if payload >= 8 => {
            body[2..4].copy_from_slice(&[0, 0]);
            let mut sum = match src {
                IpAddr::V4(_) => checksum::Sum::EMPTY,
                IpAddr::V6(_) => checksum::pseudo_header(src, dst, protocol.number(), payload as u32),
            };
            sum.add_bytes(body);
            body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        }
        _ => {}
    }
    Some(data)
}
