//! What a client does with every answer to a block, packet by packet (`docs/spec/asap.md` §§6.5, 6.6).

use crate::peer::{Got, PORT, Peer, Seg, seg};
use crate::visitor::{AFTER, DATA, Visit, asap_option, end, once, outcome, reply_with, visit};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, StateName};
use firstflight_wire::asap::Status;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::Flags;

/// Statuses that refuse a block.
fn refusals() -> impl Iterator<Item = Status> {
    Status::ALL.iter().copied().filter(|status| !matches!(status, Status::Capable | Status::Accepted))
}

/// The reason that belongs to a refusal.
fn reason(status: Status) -> Reason {
    match status {
        Status::Disabled | Status::Policy => Reason::Policy,
        Status::Overloaded => Reason::Overloaded,
        Status::UnknownVerifier => Reason::UntrustedVerifier,
        Status::Expired => Reason::Expired,
        Status::NotYetValid | Status::OutsideWindow => Reason::ClockSkew,
        Status::AddressMismatch => Reason::AddressMismatch,
        Status::BadSignature => Reason::BadSignature,
        Status::Replayed => Reason::Replay,
        Status::WrongIdentity => Reason::WrongIdentity,
        Status::Malformed => Reason::Malformed,
        Status::GuardFloor => Reason::GuardFloor,
        Status::Barred => Reason::Barred,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Like `once`, with data that may run twice.
fn replayable() -> (Peer, Visit) {
    let mut p = Peer::new();
    let flight = visit(&mut p, |_| {});
    (p, flight)
}

fn syn_ack(ack: u32) -> Seg {
    seg().syn().ack(ack).mss(1460)
}

// --- block and data acknowledged -----------------------------------------------------------------------------

#[test]
fn a_block_goes_in_front_of_the_data() {
    for (_, flight) in [once(), replayable()] {
        let syn = flight.syn;
        assert_eq!(syn.flags, Flags::SYN);
        assert_eq!(asap_option(&syn), Some(true));
        assert_eq!(syn.data.len() as u32, AFTER - 1);
        assert_eq!(&syn.data[196..], DATA);
        assert_eq!(syn.fast_open, None);
    }
}

#[test]
fn accepted() {
    for (mut p, flight) in [once(), replayable()] {
        p.pass(30);
        p.send(syn_ack(AFTER).option(&flight.accepted()));
        p.expect().is_ack().seq(AFTER).ack(1).empty();
        assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
        let info = p.stack.info(flight.id).unwrap();
        assert_eq!((info.state, info.certificate), (StateName::Established, true));
        assert_eq!(info.totals.bytes_acked as usize, DATA.len(), "the block is no part of the stream");
        // The stream continues after them.
        p.write(flight.id, b"more");
        p.expect().is_ack().seq(AFTER).data(b"more");
        p.send(seg().seq(1).ack(AFTER + 4).data(b"answer"));
        assert_eq!(p.read(flight.id), b"answer");
    }
}

/// A forged or mangled reply does not take back what was acknowledged. The server is probed again next time.
#[test]
fn accepted_and_the_reply_absent_or_unreadable() {
    let unreadable: [&[u8]; 4] = [
        &[],
        // Another version; an unknown status; another experiment.
        &[253, 8, 0xfa, 0x57, 0x22, 1, 0, 0],
        &[253, 8, 0xfa, 0x57, 0x12, 99, 0, 0],
        &[253, 8, 0xfa, 0x58, 0x12, 3, 0, 0],
    ];
    for reply in unreadable {
        for (mut p, flight) in [once(), replayable()] {
            p.send(syn_ack(AFTER).option(reply));
            p.expect().is_ack().seq(AFTER).ack(1).empty();
            assert_eq!(outcome(&p, flight.id), Outcome::AcceptedReplyStripped);
            let counted = p.stack.counters().client.count(Outcome::AcceptedReplyStripped);
            assert_eq!((p.stack.counters().first_flights_taken, counted), (1, 1));
            end(&mut p, flight.id);
            let next = visit(&mut p, |_| {});
            assert_eq!((asap_option(&next.syn), next.syn.data.len()), (Some(false), 0), "asks again");
        }
    }
}

/// The answer says both that the server took the data and that it did not.
#[track_caller]
fn misbehaves(acked: u32, option: impl Fn(&Visit) -> Vec<u8>, wanted: Reason) {
    // Data that must not run twice is not sent again.
    let (mut p, flight) = once();
    let option_of = option(&flight);
    p.send(syn_ack(acked).option(&option_of));
    p.expect().is_rst().seq(acked);
    p.quiet();
    assert_eq!(p.reason(flight.id), Some(CloseReason::PeerMisbehaved));
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(wanted));
    p.pass(30_000);
    p.quiet();
    p.release(flight.id);
    // The next visit offers nothing to the server; later it is probed again.
    let next = visit(&mut p, |_| {});
    assert_eq!(asap_option(&next.syn), None);
    assert_eq!(outcome(&p, next.id), Outcome::Handshake(Reason::FailureMemory));
    end(&mut p, next.id);
    p.pass(31_000);
    assert_eq!(asap_option(&visit(&mut p, |_| {}).syn), Some(false));

    // Data that may run twice is sent from another port at once, after a plain SYN.
    let (mut p, flight) = replayable();
    let option = option(&flight);
    p.send(syn_ack(acked).option(&option));
    let mut sent = p.drain();
    assert_eq!(sent.len(), 2, "{sent:?}");
    sent.sort_by_key(|got| got.flags.contains(Flags::SYN));
    let [rst, syn] = <[Got; 2]>::try_from(sent).unwrap();
    rst.is_rst().seq(acked);
    assert_eq!(asap_option(&syn), None);
    let syn = syn.is_syn().empty().no_fast_open();
    let port = p.local_port;
    assert_ne!(port, flight.port, "another port");
    drop(syn);
    p.send(syn_ack(1));
    let data = p.drain().into_iter().find(|got| !got.data.is_empty()).expect("no data");
    assert_eq!((data.seq, &data.data[..]), (1, DATA));
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(wanted));
    assert_eq!(p.state(flight.id), StateName::Established);
    p.send(seg().seq(1).ack(1 + DATA.len() as u32).data(b"answer"));
    assert_eq!(p.read(flight.id), b"answer");
}

#[test]
fn acknowledged_and_refused() {
    for status in refusals() {
        misbehaves(AFTER, |flight| reply_with(status, flight.tag), Reason::PeerMisbehaved);
    }
}

#[test]
fn acknowledged_with_another_tag() {
    misbehaves(AFTER, |f| reply_with(Status::Accepted, [f.tag[0], !f.tag[1]]), Reason::PeerMisbehaved);
    misbehaves(AFTER, |_| reply_with(Status::Capable, [0; 2]), Reason::PeerMisbehaved);
}

#[test]
fn accepted_and_not_acknowledged() {
    misbehaves(1, |flight| flight.accepted(), Reason::PeerMisbehaved);
    misbehaves(1, |flight| reply_with(Status::Accepted, [!flight.tag[0]; 2]), Reason::PeerMisbehaved);
}

#[test]
fn acknowledged_inside() {
    for acked in [2, 100, 196, 197, 198, AFTER - 1] {
        for status in [Status::Accepted, Status::Capable, Status::Overloaded] {
            misbehaves(acked, |flight| reply_with(status, flight.tag), Reason::AckInside);
        }
        misbehaves(acked, |_| Vec::new(), Reason::AckInside);
    }
}

// --- the ISN acknowledged ------------------------------------------------------------------------------------

/// The data is sent alone, from ISN+1, at once, and the window is not reduced.
#[test]
fn refused() {
    for status in refusals() {
        // A server that has not read the block knows no tag.
        for tagged in [true, false] {
            let mut visits = vec![replayable()];
            if status != Status::Replayed {
                visits.push(once());
            }
            for (mut p, flight) in visits {
                let tag = if tagged { flight.tag } else { [0; 2] };
                p.pass(30);
                p.send(syn_ack(1).option(&reply_with(status, tag)));
                p.expect().is_ack().seq(1).ack(1).data(DATA);
                p.quiet();
                assert_eq!(outcome(&p, flight.id), Outcome::Handshake(reason(status)), "{status:?}");
                let info = p.stack.info(flight.id).unwrap();
                assert_eq!((info.cwnd, info.totals.retransmits), (14_600, 0));
                p.send(seg().seq(1).ack(1 + DATA.len() as u32).data(b"answer"));
                assert_eq!(p.read(flight.id), b"answer");
                assert_eq!(p.stack.info(flight.id).unwrap().totals.bytes_acked as usize, DATA.len());
                end(&mut p, flight.id);
                // The path did not fail.
                let next = visit(&mut p, |_| {});
                // A certificate for another address than the server sees is not shown to that server again.
                let asks = matches!(status, Status::Disabled | Status::AddressMismatch);
                assert_eq!(asap_option(&next.syn), Some(!asks), "{status:?}");
            }
        }
    }
}

/// A copy of the SYN may have been executed, and its connection may be over. Data that must not run twice is not
/// sent again.
#[test]
fn replayed_and_must_not_run_twice() {
    for tagged in [true, false] {
        let (mut p, flight) = once();
        let tag = if tagged { flight.tag } else { [0; 2] };
        p.send(syn_ack(1).option(&reply_with(Status::Replayed, tag)));
        p.expect().is_rst();
        p.pass(30_000);
        p.quiet();
        assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::Unknown));
        assert!(p.reason(flight.id).is_some());
        p.release(flight.id);
        // The next request uses the handshake.
        let next = visit(&mut p, |config| config.replay_safe = false);
        assert_eq!(next.syn.data.len(), 0);
        p.send(syn_ack(1));
        p.expect().is_ack().data(DATA);
    }
}

/// An answer with hints is read as well. The hints change nothing here.
#[test]
fn refused_with_hints() {
    for (status, more) in [(Status::Expired, [0; 4]), (Status::UnknownVerifier, [1, 2, 3, 4])] {
        let (mut p, flight) = replayable();
        let mut option = vec![253, 16, 0xfa, 0x57, 0x13, status as u8, flight.tag[0], flight.tag[1]];
        option.extend_from_slice(&[0xff, 0xff, 0xff, 0xff]);
        option.extend_from_slice(&more);
        p.send(syn_ack(1).option(&option));
        p.expect().is_ack().seq(1).data(DATA);
        assert_eq!(outcome(&p, flight.id), Outcome::Handshake(reason(status)));
    }
}

/// The reply is absent, unreadable, or answers something else: the option was lost on the way there or back.
#[test]
fn not_acknowledged_and_no_reply() {
    let replies: [&[u8]; 4] = [
        &[],
        &[253, 8, 0xfa, 0x57, 0x22, 4, 0, 0],
        &[253, 8, 0xfa, 0x57, 0x12, 99, 0, 0],
        // CAPABLE answers a probe.
        &[253, 8, 0xfa, 0x57, 0x12, 0, 0, 0],
    ];
    for reply in replies {
        for (mut p, flight) in [once(), replayable()] {
            p.send(syn_ack(1).option(reply));
            p.expect().is_ack().seq(1).ack(1).data(DATA);
            p.quiet();
            assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::OptionStripped), "{reply:?}");
            assert_eq!(p.stack.info(flight.id).unwrap().cwnd, 14_600);
            end(&mut p, flight.id);
            let next = visit(&mut p, |_| {});
            assert_eq!(outcome(&p, next.id), Outcome::Handshake(Reason::FailureMemory));
            assert_eq!(asap_option(&next.syn), None);
            end(&mut p, next.id);
            // Then the server is probed again.
            p.pass(61_000);
            let next = visit(&mut p, |_| {});
            assert_eq!((asap_option(&next.syn), next.syn.data.len()), (Some(false), 0));
        }
    }
}

// --- neither -------------------------------------------------------------------------------------------------

/// RFC 9293 §3.10.7.3: each one is answered with a RST, and the attempt continues. A plain SYN follows the first
/// RST.
#[test]
fn acknowledged_outside() {
    for (mut p, flight) in [once(), replayable()] {
        for acked in [0, AFTER + 1, AFTER + 50_000, u32::MAX] {
            p.send(syn_ack(acked).option(&flight.accepted()));
            p.expect().is_rst().seq(acked);
            if acked == 0 {
                assert_eq!(asap_option(&p.expect().is_syn().empty()), None);
            }
            p.quiet();
            assert_eq!(p.state(flight.id), StateName::SynSent);
        }
        p.send(syn_ack(AFTER).option(&flight.accepted()));
        p.expect().is_ack().seq(AFTER);
        assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
    }
}

#[test]
fn reset() {
    for acked in [1, AFTER] {
        for (mut p, flight) in [once(), replayable()] {
            p.send(seg().ack(AFTER + 1).rst());
            assert_eq!(p.state(flight.id), StateName::SynSent, "a blind one says nothing");
            p.send(seg().ack(acked).rst());
            p.expect().is_syn().empty();
            p.send(seg().ack(1).rst());
            assert_eq!(p.reason(flight.id), Some(CloseReason::Refused));
            assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::Unknown));
            p.pass(60_000);
            p.quiet();
        }
    }
}

#[test]
fn unreachable() {
    for (mut p, flight) in [once(), replayable()] {
        p.icmp(IcmpErrorKind::HostUnreachable, &flight.syn.packet);
        assert_eq!(p.state(flight.id), StateName::SynSent, "soft");
        p.icmp(IcmpErrorKind::PortUnreachable, &flight.syn.packet);
        let plain = p.expect().is_syn().empty();
        p.icmp(IcmpErrorKind::PortUnreachable, &plain.packet);
        assert_eq!(p.reason(flight.id), Some(CloseReason::Unreachable));
        assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::Unknown));
    }
}

/// RFC 9293 §3.5, figure 8: the peer's own SYN, with or without a block.
#[test]
fn a_syn_that_crosses() {
    let theirs = crate::certified::certificate(1, 9, "10.0.0.2".parse().unwrap());
    let block = crate::certified::request(&theirs, 5, b"theirs", 0);
    for syn in [
        seg().syn().mss(1460),
        seg().syn().mss(1460).option(&block.option).data(&block.payload),
        seg().syn().mss(1460).cookie(&[]).data(b"theirs"),
    ] {
        let (mut p, flight) = once();
        p.send(syn);
        let got = p.expect().syn_ack().ack(1).empty().no_fast_open();
        assert_eq!(asap_option(&got), None);
        assert_eq!(crate::visitor::reply(&got), None);
        p.send(syn_ack(1).seq(0));
        assert_eq!(p.state(flight.id), StateName::Established);
        assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::SimultaneousOpen));
        let data = p.drain().into_iter().find(|got| !got.data.is_empty()).expect("no data");
        assert_eq!((data.seq, &data.data[..]), (1, DATA));
        assert_eq!(p.read(flight.id), b"");
    }
}

// --- retransmitted -------------------------------------------------------------------------------------------

/// The retransmission has no option, block or data, because a path that drops them drops them always.
#[test]
fn a_lost_syn_is_sent_again_plain() {
    let (mut p, flight) = once();
    let again = p.sends_at(1_500, &[1000]).remove(0).is_syn().empty().no_fast_open();
    assert_eq!((asap_option(&again), again.port, p.local_port), (None, PORT, flight.port));
    p.send(syn_ack(1));
    p.expect().is_ack().seq(1).ack(1).data(DATA);
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::SynTimedOut));
    end(&mut p, flight.id);
    // One is lost by chance. A plain SYN directly follows the next one.
    let next = visit(&mut p, |_| {});
    assert_eq!(asap_option(&next.syn), Some(true));
    p.expect().is_syn().empty().no_fast_open();
    p.quiet();
}

/// If the data may run twice, a SYN from another port follows soon. The data waits for the handshake.
#[test]
fn a_lost_syn_is_followed_by_one_from_another_port() {
    let (mut p, flight) = replayable();
    let sent = p.sends_at(2_500, &[1000, 2000]);
    for got in sent {
        assert_eq!(asap_option(&got), None);
        got.is_syn().empty().no_fast_open();
    }
    assert_ne!(p.local_port, flight.port);
    p.send(syn_ack(1));
    let data = p.drain().into_iter().find(|got| !got.data.is_empty()).expect("no data");
    assert_eq!((data.seq, &data.data[..]), (1, DATA));
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::SynTimedOut));
}

/// The first SYN was late, not lost: the server's answer to it counts.
#[test]
fn a_late_answer_to_the_first_syn() {
    let late = |option: &dyn Fn(&Visit) -> Vec<u8>, acked| {
        let (mut p, flight) = once();
        p.sends_at(1_500, &[1000]);
        p.send(syn_ack(acked).option(&option(&flight)));
        (p, flight)
    };
    let (mut p, flight) = late(&|flight| flight.accepted(), AFTER);
    p.expect().is_ack().seq(AFTER).empty();
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);

    let (mut p, flight) = late(&|_| Vec::new(), AFTER);
    p.expect().is_ack().seq(AFTER).empty();
    assert_eq!(outcome(&p, flight.id), Outcome::AcceptedReplyStripped);

    // The plain SYN has no option, so the refusal answers the first SYN, and nothing was lost.
    let (mut p, flight) = late(&|flight| reply_with(Status::Expired, flight.tag), 1);
    p.expect().is_ack().seq(1).data(DATA);
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::Expired));
    end(&mut p, flight.id);
    assert_eq!(asap_option(&visit(&mut p, |_| {}).syn), Some(true));
}

/// A retransmitted SYN-ACK is acknowledged, and changes nothing.
#[test]
fn a_second_syn_ack_changes_nothing() {
    let (mut p, flight) = replayable();
    p.send(syn_ack(AFTER).option(&flight.accepted()));
    p.expect().is_ack().seq(AFTER);
    for option in [flight.accepted(), Vec::new(), reply_with(Status::Replayed, flight.tag)] {
        p.send(syn_ack(AFTER).option(&option));
        p.expect().is_ack().seq(AFTER).empty();
    }
    assert_eq!((outcome(&p, flight.id), p.state(flight.id)), (Outcome::Accepted, StateName::Established));
}

// --- the answer brings more ----------------------------------------------------------------------------------

#[test]
fn data_and_fin_in_the_answer() {
    let (mut p, flight) = replayable();
    p.send(syn_ack(AFTER).option(&flight.accepted()).data(b"answer").fin());
    p.expect().is_ack().seq(AFTER).ack(8);
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
    assert_eq!((p.read(flight.id), p.read_once(flight.id)), (b"answer".to_vec(), Ok(0)));
    assert_eq!(p.state(flight.id), StateName::CloseWait);

    let (mut p, flight) = replayable();
    p.send_all([
        syn_ack(1).option(&reply_with(Status::Expired, flight.tag)),
        seg().seq(1).ack(1).data(b"first").fin(),
    ]);
    let sent = p.drain();
    assert!(sent.iter().any(|got| got.seq == 1 && got.data == DATA), "{sent:?}");
    assert!(sent.iter().any(|got| got.ack == 7), "{sent:?}");
    assert_eq!(p.read(flight.id), b"first");
}
