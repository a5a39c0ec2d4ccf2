//! TCP in UDP: whatever datagrams arrive, the stack sends only packets that can be parsed, does not answer
//! endlessly, and holds nothing when its connections are released.

use crate::peer::{Peer, key, policy, seg};
use firstflight_stack::EncapsulationConfig;
use proptest::prelude::*;

const OURS: u16 = 4433;

/// A UDP payload that is probably the encapsulation's, with a probable TCP header.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![8 => Just(8u8), 3 => Just(9u8), 1 => any::<u8>()];
    let body = proptest::collection::vec(any::<u8>(), 0..80);
    (kind, 0u8..5, any::<u8>(), 0u8..12, any::<[bool; 3]>(), body).prop_map(
        |(kind, last, flags, offset, [reserved, ours, near], mut body)| {
            if body.len() >= 20 {
                body[2..4].copy_from_slice(&(if ours { 80u16 } else { 81 }).to_be_bytes());
                body[0..2].copy_from_slice(&crate::peer::CLIENT_PORT.to_be_bytes());
                if near {
                    body[4..7].copy_from_slice(&crate::peer::PEER_ISN.to_be_bytes()[..3]);
                }
                body[12] = offset << 4;
                body[13] = flags;
            }
            if kind == 9 && last >= 3 {
                // A path challenge or response, with ports that exist.
                body.resize(12, 1);
                body[..4].copy_from_slice(&[0, 80, 0x9c, 0x40]);
                if near {
                    body[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
                }
            }
            let last = if kind == 9 { last } else { u8::from(reserved && last == 3) };
            if kind == 9 && reserved {
                body.clear();
            }
            [&[kind, 0, 0, last], &body[..]].concat()
        },
    )
}

proptest! {
    #[test]
    fn any_datagrams(
        datagrams in proptest::collection::vec((payload(), 0u16..4, any::<bool>(), 0u64..20_000), 0..40),
        v6: bool,
        from_socket: bool,
    ) {
        let tune = |config: &mut firstflight_stack::Config| {
            config.encapsulation = Some(EncapsulationConfig::new(OURS).from_socket(from_socket));
            config.limits.replies = 8;
        };
        let mut p = if v6 { Peer::v6(tune) } else { Peer::with(tune) };
        p.outer = Some((5000, OURS));
        let listener = p.listen_with(|c| {
            c.fast_open = Some(policy(key(1), 10));
            c.syn_backlog = 2;
        });
        let opened = p.open_active(seg().mss(1176));
        for (payload, outer, right_port, ms) in datagrams {
            let to = if right_port || outer > 0 { OURS } else { OURS + 1 };
            let packet = p.udp((5000 + outer, to), &payload);
            let before = p.stack.counters().packets_out;
            p.inject(&packet);
            // The peer could parse every packet. One datagram has few answers; a probe may add some.
            let answers = p.stack.counters().packets_out - before;
            prop_assert!(answers <= 4, "{answers} answers to {payload:?}");
            p.pass(ms);
        }
        p.release(opened);
        while let Some(id) = p.stack.accept(listener) {
            p.release(id);
        }
        p.stack.unlisten(listener, p.now);
        p.pass(4 * 3_600_000);
        p.sent.clear();
        prop_assert_eq!(p.stack.connections(), 0);
        prop_assert_eq!((p.stack.time_waits(), p.stack.buffer_bytes(), p.stack.poll_timeout()), (0, 0, None));
    }
}
