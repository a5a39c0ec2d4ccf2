use super::{
    Cookie, FastOpen, FastOpenForm, Flags, Header, Options, SackBlocks, Segment, TcpOption, Timestamps,
    fill_checksum,
};
use crate::fixtures::{DATA, SYN, SYN_ACK_V6, hex};
use crate::{EmitError, ParseError, SeqNum, checksum};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[test]
fn reads_a_syn_of_linux() {
    let bytes = hex(SYN);
    let segment = Segment::parse(&bytes[20..]).unwrap();
    assert_eq!((segment.src_port, segment.dst_port), (0x8a66, 0x9b31));
    assert_eq!((segment.seq, segment.ack), (SeqNum::new(0xfbb2_318a), SeqNum::new(0)));
    assert_eq!((segment.flags, segment.window, segment.urgent), (Flags::SYN, 0xffd7, 0));
    assert_eq!((segment.len(), segment.is_empty(), segment.payload), (1, false, &[][..]));
    let options = segment.options;
    assert_eq!((options.raw, options.mss), (&bytes[40..], Some(65_495)));
    assert_eq!((options.window_scale, options.sack_permitted), (Some(10), true));
    assert_eq!(options.timestamps, Some(Timestamps { value: 0x02bb_ee45, echo: 0 }));
    assert_eq!(options.sack(), SackBlocks::EMPTY);
    assert_eq!(options.fast_open(), Some(FastOpen::Request(FastOpenForm::Standard)));
    let kinds: Vec<_> = segment.options.iter().collect();
    assert_eq!(kinds.len(), 8);
    assert_eq!(kinds[..2], [TcpOption::Mss(65_495), TcpOption::SackPermitted]);
    assert_eq!(kinds[3..5], [TcpOption::Nop, TcpOption::WindowScale(10)]);
}

#[test]
fn reads_data_and_a_syn_ack_of_linux() {
    let bytes = hex(DATA);
    let segment = Segment::parse(&bytes[20..]).unwrap();
    assert_eq!((segment.payload, segment.len()), (&b"hello"[..], 5));
    assert_eq!(segment.flags, Flags::PSH | Flags::ACK);
    let ts = Timestamps { value: 0x02bb_ee45, echo: 0x539b_828c };
    assert_eq!(segment.options.timestamps, Some(ts));

    let bytes = hex(SYN_ACK_V6);
    let segment = Segment::parse(&bytes[40..]).unwrap();
    assert_eq!(segment.flags, Flags::SYN | Flags::ACK);
    assert_eq!((segment.options.mss, segment.options.window_scale), (Some(65_476), Some(10)));
    assert_eq!(segment.options.fast_open(), None);
}

#[test]
fn sequence_length() {
    let mut bytes = hex(DATA)[20..].to_vec();
    for (flags, len) in [(0x10, 5), (0x12, 6), (0x11, 6), (0x13, 7)] {
        bytes[13] = flags;
        assert_eq!(Segment::parse(&bytes).unwrap().len(), len);
    }
}

#[test]
fn refuses_malformed_segments() {
    let bytes = hex(DATA)[20..].to_vec();
    assert_eq!(Segment::parse(&bytes[..19]), Err(ParseError::Truncated));
    assert_eq!(Segment::parse(&bytes[..31]), Err(ParseError::Truncated));
    let mut short = bytes.clone();
    short[12] = 0x40;
    assert_eq!(Segment::parse(&short), Err(ParseError::BadHeaderLength));
    // With checksum offload the field contains only the pseudo-header's sum.
    assert_eq!(Segment::parse_checked(&bytes, LO, LO), Err(ParseError::BadChecksum));
}

//= rfc9293 MUST-2 MUST-3 test
#[test]
fn checksum_covers_everything() {
    let mut bytes = hex(DATA)[20..].to_vec();
    fill_checksum(&mut bytes, LO, LO);
    assert_eq!(Segment::parse_checked(&bytes, LO, LO), Segment::parse(&bytes));
    // For the network card to complete, Linux leaves the uncomplemented pseudo-header sum there.
    let partial = !checksum::pseudo_header(LO, LO, 6, bytes.len() as u32).finish();
    assert_eq!(partial, 0xfe2d);
    let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    assert_eq!(Segment::parse_checked(&bytes, LO, other), Err(ParseError::BadChecksum));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert_eq!(Segment::parse_checked(&changed, LO, LO), Err(ParseError::BadChecksum));
    }
    let mut short = [0xab; 19];
    fill_checksum(&mut short, LO, LO);
    assert_eq!(short, [0xab; 19]);
}

#[test]
fn refuses_to_emit() {
    let mut out = [0; 60];
    let header = header(Flags::ACK);
    assert_eq!(header.emit(&[1; 3], &mut out), Err(EmitError::BadOptionsLength));
    assert_eq!(header.emit(&[1; 44], &mut out), Err(EmitError::BadOptionsLength));
    assert_eq!(header.emit(&[], &mut out[..19]), Err(EmitError::BufferTooSmall));
    assert_eq!(header.emit(&[1; 4], &mut out[..23]), Err(EmitError::BufferTooSmall));
    assert_eq!(header.emit(&[1; 40], &mut out), Ok(60));
}

fn header(flags: Flags) -> Header {
    let (seq, ack) = (SeqNum::new(1), SeqNum::new(2));
    Header { src_port: 1, dst_port: 2, seq, ack, flags, window: 3, urgent: 4 }
}

#[test]
fn flags_in_letters() {
    let shown = |flags: Flags| flags.to_string();
    assert_eq!(shown(Flags::EMPTY), "none");
    assert_eq!(shown(Flags::SYN), "S");
    assert_eq!(shown(Flags::SYN | Flags::ACK), "S.");
    assert_eq!(shown(Flags::PSH | Flags::ACK), "P.");
    assert_eq!(shown(Flags::FIN | Flags::PSH | Flags::ACK), "FP.");
    assert_eq!(shown(Flags::from_bits(0xff)), "FSRP.UEW");
    assert!(Flags::from_bits(0x12).contains(Flags::SYN | Flags::ACK));
    assert!(!Flags::SYN.contains(Flags::SYN | Flags::ACK));
    assert!(Flags::SYN.intersects(Flags::SYN | Flags::ACK));
    assert!(!Flags::SYN.intersects(Flags::EMPTY));
}

//= rfc7413 4.1.1-a test
#[test]
fn cookies_have_legal_lengths() {
    let legal: Vec<usize> = (0..40).filter(|len| Cookie::new(&vec![7; *len]).is_some()).collect();
    assert_eq!(legal, [4, 6, 8, 10, 12, 14, 16]);
    let cookie = Cookie::new(&[1, 2, 3, 4]).unwrap();
    assert_eq!(cookie.as_bytes(), [1, 2, 3, 4]);
    assert_eq!(cookie, Cookie::new(&[1, 2, 3, 4]).unwrap());
    assert_ne!(cookie, Cookie::new(&[1, 2, 3, 5]).unwrap());
    // The unused bytes are zero, which the last bytes of a longer cookie may be, too.
    assert_ne!(cookie, Cookie::new(&[1, 2, 3, 4, 0, 0]).unwrap());
}

#[test]
fn debug_shows_no_cookie() {
    let bytes = [0xab; 8];
    let cookie = Cookie::new(&bytes).unwrap();
    let fast_open = FastOpen::Cookie(FastOpenForm::Standard, cookie);
    let bytes = super::OptionBytes::from(&fast_open);
    let options = super::SynOptions {
        mss: 1460,
        sack_permitted: true,
        timestamps: None,
        window_scale: Some(7),
        extra: bytes.as_slice(),
    };
    let debug = format!("{options:?}");
    let options = options.to_buf();
    let parsed = Options::parse(options.as_slice(), true);
    assert_eq!(parsed.fast_open(), Some(fast_open));
    for text in [
        debug,
        format!("{cookie:?}"),
        format!("{fast_open:?}"),
        format!("{bytes:?}"),
        format!("{options:?}"),
        format!("{parsed:?}"),
        format!("{:?}", parsed.iter()),
    ] {
        // Not in decimal and not in hexadecimal, in upper or lower case.
        assert!(!text.contains("171") && !text.to_lowercase().contains("abab"), "{text}");
    }
    assert_eq!(format!("{cookie:?}"), "Cookie(8 bytes)");
}

proptest! {
    #[test]
    fn round_trip(
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: u8,
        window: u16,
        urgent: u16,
        words in 0usize..=10,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        v6: bool,
    ) {
        let header = Header {
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNum::new(numbers.0),
            ack: SeqNum::new(numbers.1),
            flags: Flags::from_bits(flags),
            window,
            urgent,
        };
        let options = vec![1; 4 * words];
        let mut bytes = vec![0xff; 60 + payload.len()];
        let at = header.emit(&options, &mut bytes).unwrap();
        prop_assert_eq!(at, 20 + options.len());
        bytes.truncate(at);
        bytes.extend(&payload);
        let ip = if v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { LO };
        fill_checksum(&mut bytes, ip, ip);
        let segment = Segment::parse_checked(&bytes, ip, ip).unwrap();
        prop_assert_eq!((segment.src_port, segment.dst_port), ports);
        prop_assert_eq!((segment.seq.get(), segment.ack.get()), numbers);
        prop_assert_eq!(segment.flags.bits(), flags);
        prop_assert_eq!((segment.window, segment.urgent), (window, urgent));
        prop_assert_eq!((segment.options.raw, segment.payload), (&options[..], &payload[..]));
    }
}
