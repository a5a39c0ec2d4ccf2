use super::*;
use proptest::prelude::*;

#[test]
fn the_three_datagrams() {
    let mut out = [0xff; 6];
    assert_eq!(emit_segment_header(&mut out), Ok(4));
    assert_eq!(out, [8, 0, 0, 0, 0xff, 0xff]);
    assert_eq!(Carried::parse(&out), Ok(Carried::Segment(&[0xff, 0xff])));
    for (control, last) in [(Control::KeepAlive, 1), (Control::Reset, 2)] {
        assert_eq!(control.emit(&mut out), Ok(4));
        assert_eq!(out[..4], [9, 0, 0, last]);
        assert_eq!(Carried::parse(&out[..4]), Ok(Carried::Control(control)));
        assert_eq!(Carried::parse(&out[..5]), Err(ParseError::Malformed("encapsulation header")));
        assert_eq!(control.emit(&mut out[..3]), Err(EmitError::BufferTooSmall));
    }
    assert_eq!(emit_segment_header(&mut out[..3]), Err(EmitError::BufferTooSmall));
    assert_eq!((BASE_DATAGRAM, BASE_MSS), (1200, 1176));
}

#[test]
fn path_challenge_and_response() {
    let proof = PathProof { src_port: 80, dst_port: 40_000, bits: 0x0102_0304_0506_0708 };
    let (challenge, response) = (Control::PathChallenge(proof), Control::PathResponse(proof));
    for (control, last) in [(challenge, 3), (response, 4)] {
        let mut out = [0xff; 17];
        assert_eq!(control.emit(&mut out), Ok(PathProof::MESSAGE));
        assert_eq!(out[..16], [9, 0, 0, last, 0, 80, 0x9c, 0x40, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Carried::parse(&out[..16]), Ok(Carried::Control(control)));
        // Two that are too short, one that is too long, and one without a port.
        for bad in [&out[..4], &out[..15], &out[..17], &[9, 0, 0, last, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Carried::parse(bad), Err(ParseError::Malformed("path check")), "{bad:?}");
        }
        assert_eq!(control.emit(&mut out[..15]), Err(EmitError::BufferTooSmall));
    }
    // No larger than the smallest segment, so that an attacker who forges an address gains nothing.
    const { assert!(PathProof::MESSAGE < HEADER + 20) };
}

#[test]
fn others_are_refused() {
    assert_eq!(Carried::parse(&[8, 0, 0]), Err(ParseError::Truncated));
    for reserved in [[8, 1, 0, 0], [8, 0, 1, 0], [8, 0, 0, 1], [9, 1, 0, 1], [9, 0, 0, 0], [9, 0, 0, 5]] {
        assert_eq!(Carried::parse(&reserved), Err(ParseError::Malformed("encapsulation header")));
    }
    // STUN, DTLS, RTP, QUIC's long and short headers.
    for first in [0, 1, 20, 63, 64, 128, 191, 192, 255] {
        assert_eq!(Carried::parse(&[first, 0, 0, 0, 1]), Err(ParseError::Malformed("encapsulation type")));
    }
}

proptest! {
    /// Writing what was read gives the same bytes.
    #[test]
    fn round_trip(start in any::<[bool; 2]>(), rest in proptest::collection::vec(any::<u8>(), 0..20)) {
        // Half of the payloads are control messages about a path.
        let head: &[u8] = if start[0] { &[9, 0, 0, 3 + u8::from(start[1])] } else { &[] };
        let payload = [head, &rest].concat();
        let mut out = [0; 24];
        match Carried::parse(&payload) {
            Ok(Carried::Segment(rest)) => {
                let at = emit_segment_header(&mut out).unwrap();
                prop_assert_eq!((&out[..at], rest), payload.split_at(4));
            }
            Ok(Carried::Control(control)) => {
                let len = control.emit(&mut out).unwrap();
                prop_assert_eq!(&out[..len], &payload[..]);
            }
            Err(_) => {}
        }
    }
}
