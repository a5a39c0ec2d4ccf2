use super::{
    Cookie, FastOpen, FastOpenForm, Flags, Header, OptionBytes, Options, OptionsBuf, SackBlocks, SynOptions,
    TcpOption, Timestamps,
};
use crate::SeqNum;
use crate::fixtures::hex;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const TS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };

fn syn_options(
    mss: u16,
    sack_permitted: bool,
    timestamps: Option<Timestamps>,
    window_scale: Option<u8>,
    extra: &[u8],
) -> OptionsBuf {
    SynOptions { mss, sack_permitted, timestamps, window_scale, extra }.to_buf()
}

fn blocks(count: u32) -> SackBlocks {
    let mut blocks = SackBlocks::EMPTY;
    for i in 0..count {
        assert!(blocks.push(SeqNum::new(100 * i), SeqNum::new(100 * i + 50)));
    }
    blocks
}

fn cookie(len: usize) -> FastOpen {
    FastOpen::Cookie(FastOpenForm::Standard, Cookie::new(&vec![9; len]).unwrap())
}

fn fast_open(raw: &str) -> Option<FastOpen> {
    Options::parse(&hex(raw), true).fast_open()
}

//= rfc7323 2.2-c test
//= rfc7413 4.1.1-b test
//= rfc9293 MUST-4 test
#[test]
fn only_a_syn_has_syn_options() {
    let raw = hex("020405b4 0402 22020303 0a");
    let syn = Options::parse(&raw, true);
    assert_eq!((syn.mss, syn.window_scale, syn.sack_permitted), (Some(1460), Some(10), true));
    assert!(syn.fast_open().is_some());
    let other = Options::parse(&raw, false);
    assert_eq!((other.mss, other.window_scale, other.sack_permitted), (None, None, false));
    assert!(other.fast_open().is_none());
    assert_eq!(other.iter().count(), 4);
}

//= rfc7323 2.3-g 2.3-h test
#[test]
fn window_scale_is_clamped() {
    // RFC 7323 §2.3.
    assert_eq!(Options::parse(&hex("03030f"), true).window_scale, Some(14));
    assert_eq!(Options::parse(&hex("0303ff"), true).window_scale, Some(14));
    assert_eq!(Options::parse(&hex("03030e"), true).window_scale, Some(14));
    assert_eq!(Options::parse(&hex("03030d"), true).window_scale, Some(13));
}

#[test]
fn an_mss_of_zero_is_none() {
    assert_eq!(Options::parse(&hex("02040000"), true).mss, None);
    assert_eq!(Options::parse(&hex("02040001"), true).mss, Some(1));
}

//= rfc9293 MUST-4 MUST-7 test
#[test]
fn stops_at_the_first_impossible_length() {
    for bad in ["0300", "0301", "0306", "03", "08"] {
        let mut raw = hex("020405b4");
        raw.extend(hex(bad));
        let options = Options::parse(&raw, true);
        assert_eq!((options.mss, options.window_scale), (Some(1460), None), "{bad}");
        assert_eq!(options.iter().count(), 1);
    }
    // The end-of-list option also stops it.
    let raw = hex("020405b4 00 030307");
    assert_eq!(Options::parse(&raw, true).window_scale, None);
    // An option with a wrong but possible length is ignored alone.
    let raw = hex("0203ff 030307");
    let options = Options::parse(&raw, true);
    assert_eq!((options.mss, options.window_scale), (None, Some(7)));
    assert_eq!(options.iter().next(), Some(TcpOption::Unknown { kind: 2, data: &[0xff] }));
}

//= rfc9293 MUST-5 MUST-64 test
#[test]
fn timestamps_with_and_without_the_fast_path() {
    let aligned = hex("0101080a 01020304 05060708");
    assert_eq!(Options::parse(&aligned, false).timestamps, Some(TS));
    assert_eq!(Options::parse(&aligned, true).timestamps, Some(TS));
    let behind = hex("080a 01020304 05060708 0101");
    assert_eq!(Options::parse(&behind, false).timestamps, Some(TS));
    let eleven = hex("0101080b 01020304 05060708 ff");
    assert_eq!(Options::parse(&eleven, false).timestamps, None);
}

//= rfc2018 5-a test
#[test]
fn sack_blocks() {
    let raw = hex("0101 0512 00000001 00000002 fffffff0 00000005");
    let options = Options::parse(&raw, false);
    let expected = [(1, 2), (0xffff_fff0, 5)].map(|(a, b)| (SeqNum::new(a), SeqNum::new(b)));
    assert_eq!(options.sack().as_slice(), expected);
    for wrong in ["0502", "0509 01020304050607", "050b 010203040506070809"] {
        assert!(Options::parse(&hex(wrong), false).sack().is_empty());
    }
    let mut full = blocks(4);
    assert!(!full.push(SeqNum::new(1), SeqNum::new(2)));
    assert_eq!(full.len(), 4);
}

#[test]
fn fast_open_forms() {
    // RFC 7413 §4.1.1 and appendix A.
    assert_eq!(fast_open("2202"), Some(FastOpen::Request(FastOpenForm::Standard)));
    assert_eq!(fast_open("fe04f989"), Some(FastOpen::Request(FastOpenForm::Experimental)));
    let cookie = Cookie::new(&[1, 2, 3, 4]).unwrap();
    let standard = FastOpen::Cookie(FastOpenForm::Standard, cookie);
    let experimental = FastOpen::Cookie(FastOpenForm::Experimental, cookie);
    assert_eq!(fast_open("2206 01020304"), Some(standard));
    assert_eq!(fast_open("fe08f989 01020304"), Some(experimental));
    assert_eq!((standard.form(), experimental.form()), (FastOpenForm::Standard, FastOpenForm::Experimental));
    // Another experiment; Fast Open's identifier with the other experimental kind; too short for an identifier.
    assert_eq!(fast_open("fe04fa57"), None);
    assert_eq!(fast_open("fd04f989"), None);
    assert_eq!(fast_open("fe03f9"), None);
}

//= rfc7413 4.1.1-a 4.1.1-b test
#[test]
fn fast_open_lengths() {
    for len in 1u8..=20 {
        for (head, base) in [("22", 2), ("fe", 4)] {
            let mut raw = hex(head);
            raw.push(base + len);
            raw.extend(if base == 4 { &[0xf9, 0x89][..] } else { &[] });
            raw.extend(vec![7; usize::from(len)]);
            let legal = len % 2 == 0 && (4..=16).contains(&len);
            assert_eq!(Options::parse(&raw, true).fast_open().is_some(), legal, "{head} {len}");
        }
    }
}

#[test]
fn the_last_fast_open_option_wins() {
    let request = Some(FastOpen::Request(FastOpenForm::Standard));
    let got = Cookie::new(&[1, 2, 3, 4]).map(|c| FastOpen::Cookie(FastOpenForm::Standard, c));
    assert_eq!(fast_open("2202 2206 01020304"), got);
    assert_eq!(fast_open("2206 01020304 2202"), request);
    // An odd cookie is ignored. An even cookie of a wrong length counts as no option.
    assert_eq!(fast_open("2206 01020304 2205 010203"), got);
    assert_eq!(fast_open("2206 01020304 2204 0102"), None);
    assert_eq!(fast_open("2206 01020304 fe06f989 0102"), None);
    assert_eq!(fast_open("2204 0102 2206 01020304"), got);
}

//= rfc9293 MUST-6 MUST-68 test
#[test]
fn unknown_options_are_kept() {
    let raw = hex("fd08fa57 10000000 1e04aabb fd02");
    let kept: Vec<_> = Options::parse(&raw, true).iter().collect();
    let asap = TcpOption::Experimental { kind: 253, exid: 0xfa57, data: &[0x10, 0, 0, 0] };
    let mptcp = TcpOption::Unknown { kind: 30, data: &[0xaa, 0xbb] };
    assert_eq!(kept, [asap, mptcp, TcpOption::Unknown { kind: 253, data: &[] }]);
}

#[test]
fn syn_options_in_the_order_of_linux() {
    let fast_open = OptionBytes::from(&cookie(8));
    let with = |ts, extra| syn_options(1460, true, ts, Some(7), extra);
    assert_eq!(with(None, &[]).finish(), hex("020405b4 01010402 01030307"));
    assert_eq!(
        with(None, fast_open.as_slice()).finish(),
        hex("020405b4 01010402 01030307 220a0909 09090909 09090101")
    );
    assert_eq!(
        with(Some(TS), fast_open.as_slice()).finish(),
        hex("020405b4 0402080a 01020304 05060708 01030307 220a0909 09090909 09090101")
    );
    assert_eq!(
        syn_options(1460, false, Some(TS), None, &[]).finish(),
        hex("020405b4 0101080a 01020304 05060708")
    );
    assert_eq!(syn_options(536, false, None, None, &[]).finish(), hex("02040218"));
}

#[test]
fn what_does_not_fit_is_left_out() {
    let longest = FastOpen::Cookie(FastOpenForm::Experimental, Cookie::new(&[9; 16]).unwrap());
    let longest = OptionBytes::from(&longest);
    assert_eq!(longest.len(), 20);
    let mut full = syn_options(1460, true, Some(TS), Some(7), longest.as_slice());
    assert_eq!(full.finish().len(), 40);
    let more = [1; 21];
    assert_eq!(
        syn_options(1460, true, Some(TS), Some(7), &more),
        syn_options(1460, true, Some(TS), Some(7), &[])
    );
    // The space with an ASAP option and an 8-byte cookie: exactly 40 bytes.
    let extra = [hex("fd08fa57 10000000"), OptionBytes::from(&cookie(8)).as_slice().to_vec()];
    let mut both = syn_options(1460, true, Some(TS), Some(7), &extra.concat());
    assert_eq!(both.remaining(), 2);
    assert_eq!(both.finish().len(), 40);
}

//= rfc2018 4-f test
#[test]
fn timestamps_and_sack_together() {
    let mut options = OptionsBuf::new();
    assert!(options.timestamps(TS));
    // Beside timestamps there is room for three blocks (RFC 2018 §3).
    assert!(options.sack(&blocks(4)));
    let options = options.finish();
    assert_eq!(options.len(), 40);
    assert_eq!(options[..4], hex("0101080a"));
    assert_eq!(options[12..16], hex("0101051a"));
    assert_eq!(Options::parse(options, false).sack(), blocks(3));

    let mut alone = OptionsBuf::new();
    assert!(alone.sack(&blocks(4)));
    assert_eq!(Options::parse(alone.finish(), false).sack(), blocks(4));
}

#[test]
fn nothing_is_written_if_it_does_not_fit() {
    for used in 0..=40usize {
        let mut start = OptionsBuf::new();
        assert!(start.raw(&vec![1; used]));
        let left = 40 - used;
        assert_eq!(start.remaining(), left);
        let check = |fits: bool, needs: usize, written: OptionsBuf| {
            assert_eq!(fits, needs <= left, "{needs} bytes, {left} left");
            if !fits {
                assert_eq!(written.remaining(), left);
            }
        };
        let mut buf = start;
        check(buf.mss(1), 4, buf);
        let mut buf = start;
        check(buf.timestamps(TS), 10, buf);
        let mut buf = start;
        check(buf.sack(&blocks(1)), 10, buf);
        let mut buf = start;
        check(buf.fast_open(&cookie(16)), 18, buf);
        let mut buf = start;
        check(buf.nop(), 1, buf);
        assert!(start.sack(&SackBlocks::EMPTY));
        assert_eq!(start.remaining(), left);
    }
}

//= rfc9293 MUST-69 test
#[test]
fn padding_is_in_the_view() {
    let mut options = OptionsBuf::new();
    assert!(options.as_slice().is_empty());
    options.window_scale(20);
    assert_eq!(options.as_slice(), hex("03030e01"));
    assert_eq!(options.remaining(), 37);
    assert_eq!(options.finish(), hex("03030e01"));
    assert_eq!(options.remaining(), 36);
}

#[test]
fn option_bytes_are_bounded() {
    assert_eq!(OptionBytes::new(&[7; 24]).unwrap().as_slice(), [7; 24]);
    assert!(OptionBytes::new(&[7; 25]).is_none());
    assert_eq!(OptionBytes::new(&[]), Some(OptionBytes::EMPTY));
    assert!(OptionBytes::default().is_empty());
    let request = FastOpen::Request(FastOpenForm::Experimental);
    assert_eq!(OptionBytes::from(&request).as_slice(), hex("fe04f989"));
}

fn any_fast_open() -> impl Strategy<Value = FastOpen> {
    let form = prop_oneof![Just(FastOpenForm::Standard), Just(FastOpenForm::Experimental)];
    (form, proptest::collection::vec(any::<[u8; 2]>(), 0..=8)).prop_map(|(form, pairs)| {
        let cookie = Cookie::new(pairs.as_flattened());
        cookie.map_or(FastOpen::Request(form), |cookie| FastOpen::Cookie(form, cookie))
    })
}

proptest! {
    #[test]
    fn syn_round_trip(
        mss in 1u16..,
        sack_permitted: bool,
        ts in proptest::option::of((any::<u32>(), any::<u32>())),
        window_scale in proptest::option::of(0u8..=14),
        fast_open in any_fast_open(),
    ) {
        let timestamps = ts.map(|(value, echo)| Timestamps { value, echo });
        let extra = OptionBytes::from(&fast_open);
        let mut buf = syn_options(mss, sack_permitted, timestamps, window_scale, extra.as_slice());
        let raw = buf.finish();
        prop_assert_eq!(raw.len() % 4, 0);
        let got = Options::parse(raw, true);
        prop_assert_eq!((got.raw, got.mss, got.window_scale), (raw, Some(mss), window_scale));
        prop_assert_eq!((got.sack_permitted, got.timestamps), (sack_permitted, timestamps));
        prop_assert_eq!((got.sack(), got.fast_open()), (SackBlocks::EMPTY, Some(fast_open)));
    }

    #[test]
    fn a_syn_is_written_as_its_options_are(
        mss: u16,
        sack_permitted: bool,
        ts in proptest::option::of((any::<u32>(), any::<u32>())),
        window_scale in proptest::option::of(any::<u8>()),
        extra in proptest::collection::vec(any::<u8>(), 0..=40),
        room in 0usize..=70,
    ) {
        let timestamps = ts.map(|(value, echo)| Timestamps { value, echo });
        let options = SynOptions { mss, sack_permitted, timestamps, window_scale, extra: &extra };
        let (seq, ack, flags) = (SeqNum::new(0x0102_0304), SeqNum::new(0x0506_0708), Flags::SYN | Flags::ACK);
        let header = Header { src_port: 0x1122, dst_port: 0x3344, seq, ack, flags, window: 0x5566, urgent: 0x7788 };
        let (mut at_once, mut in_parts) = (vec![0; room], vec![0; room]);
        let written = header.emit_syn(&options, &mut at_once);
        prop_assert_eq!(written, header.emit(options.to_buf().finish(), &mut in_parts));
        if let Ok(len) = written {
            prop_assert_eq!(len, 20 + options.len());
            prop_assert_eq!(&at_once[..len], &in_parts[..len]);
        }
    }

    #[test]
    fn the_fast_path_reads_as_the_loop(raw: [u8; 12]) {
        let mut aligned = raw;
        aligned[..4].copy_from_slice(&[1, 1, 8, 10]);
        // One more NOP keeps the second from taking the fast path.
        let longer = [&[1][..], &aligned].concat();
        let fast = Options::parse(&aligned, true);
        let slow = Options::parse(&longer, true);
        prop_assert_eq!((fast.timestamps, fast.mss, fast.sack()), (slow.timestamps, slow.mss, slow.sack()));
        prop_assert_eq!((fast.window_scale, fast.fast_open()), (slow.window_scale, slow.fast_open()));
    }

    #[test]
    fn a_syn_at_a_glance_reads_as_the_loop(
        mss: u16,
        ts: [u8; 8],
        shift: u8,
        tail in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..9, Just(34), Just(10)], 0..=20),
    ) {
        let known = [&[2, 4][..], &mss.to_be_bytes(), &[4, 2, 8, 10], &ts, &[1, 3, 3, shift]].concat();
        let usual = [&known[..], &tail].concat();
        // Linux does not send a NOP in front, so this does not take the fast path.
        let longer = [&[1][..], &usual].concat();
        for syn in [true, false] {
            let fast = Options::parse(&usual, syn);
            let slow = Options::parse(&longer, syn);
            prop_assert_eq!((fast.timestamps, fast.mss, fast.sack()), (slow.timestamps, slow.mss, slow.sack()));
            prop_assert_eq!((fast.window_scale, fast.fast_open()), (slow.window_scale, slow.fast_open()));
            prop_assert_eq!(fast.sack_permitted, slow.sack_permitted);
        }
    }
}
