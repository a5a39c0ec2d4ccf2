//! Fast Open from a client, packet by packet (RFC 7413 §4.1, §4.2).

use crate::peer::primed::{AFTER, COOKIE, DATA, end, outcome, primed, primed_by, with_cookie};
use crate::peer::{Peer, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, ConnId, StateName};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, Flags};

/// RFC 7413 §4.1.1, §4.2.1: without a cookie the SYN requests one, and the data waits for the handshake.
//= rfc7413 4.2.1-a 4.2.2-a 9-a test
#[test]
fn the_first_contact_asks_for_a_cookie() {
    let mut p = Peer::new();
    let id = p.connect(DATA, true);
    let syn = p.expect().is_syn().empty();
    assert_eq!(syn.fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
    p.send(seg().syn().ack(1).mss(1460).cookie(&COOKIE));
    p.expect().is_ack().seq(1).ack(1).data(DATA);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::NoCredential));
    let (_, _, entry) = p.stack.credentials().iter().next().unwrap();
    assert_eq!(entry.cookie().unwrap().cookie.as_bytes(), COOKIE);
}

/// The cookie of one server is none of another one.
//= rfc7413 4.2.1-a 4.2.2-a test
#[test]
fn another_server_is_asked_for_a_cookie() {
    let mut p = primed();
    p.moves_to("10.0.0.9");
    p.connect(DATA, true);
    assert_eq!(p.expect().is_syn().empty().fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
}

/// RFC 7413 §4.2.1: with a cookie the data rides in the SYN, options in Linux' order, Fast Open last.
//= rfc7413 4.1.3-a test
#[test]
fn with_a_cookie_the_data_rides_in_the_syn() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    let syn = with_cookie(p.expect()).data(DATA);
    assert_eq!(syn.flags, Flags::SYN);
    let options = &syn.packet[40..syn.packet.len() - DATA.len()];
    let kinds: Vec<u8> = kinds(options);
    assert_eq!(kinds, [2, 4, 8, 1, 3, 34, 1, 1]);
    p.send(seg().syn().ack(AFTER).mss(1460));
    p.expect().is_ack().seq(AFTER).ack(1).empty();
    assert_eq!(outcome(&p, id), Outcome::Accepted);
    assert_eq!(p.stack.counters().first_flights_taken, 1);
    p.pass(3_000);
    p.quiet();
}

/// An application that gives its connection up before the ACK of the SYN-ACK has left. A server would take a RST without an
/// ACK before it for one from a victim of a forged address (RFC 7413 §5.1).
#[test]
fn the_ack_of_the_syn_ack_leaves_before_a_reset() {
    // What the application does, and the response in the SYN-ACK and behind it.
    type Leave = fn(&mut Peer, ConnId);
    let release: Leave = |p, id| p.stack.release(id, p.now);
    let abort: Leave = |p, id| p.stack.abort(id, p.now);
    type Case = (Leave, &'static [u8], &'static [&'static [u8]]);
    let cases: [Case; 5] = [
        (release, b"response", &[]),
        (abort, b"", &[]),
        (abort, b"", &[b"response"]),
        (release, b"", &[b"response"]),
        (release, b"", &[b"resp", b"onse"]),
    ];
    for (leave, inside, behind) in cases {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect());
        p.deliver(seg().syn().ack(AFTER).mss(1460).data(inside));
        leave(&mut p, id);
        let mut seq = 1;
        for data in behind {
            p.deliver(seg().seq(seq).ack(AFTER).data(data));
            seq += data.len() as u32;
        }
        p.pump();
        p.expect().is_ack().seq(AFTER).ack(1 + inside.len() as u32).empty();
        let resets = p.drain();
        assert!(!resets.is_empty());
        assert!(resets.iter().all(|reset| reset.flags.contains(Flags::RST) && reset.seq == AFTER));
        p.quiet();
    }
}

/// A server that drops its connection with the request unread resets it. The first flight was accepted all the same: it is
/// not sent again, and Fast Open goes on.
#[test]
fn a_reset_behind_an_accepted_first_flight_is_no_refusal() {
    for answer in [&b""[..], b"answer"] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        p.send(seg().syn().ack(AFTER).mss(1460));
        p.expect().is_ack();
        if !answer.is_empty() {
            p.send(seg().seq(1).ack(AFTER).data(answer));
        }
        p.send(seg().seq(1 + answer.len() as u32).rst());
        p.pass(3_000);
        assert!(p.drain().iter().all(|got| !got.flags.contains(Flags::SYN) && got.data.is_empty()));
        assert_eq!((outcome(&p, id), p.reason(id)), (Outcome::Accepted, Some(CloseReason::Reset)));
        p.release(id);
        p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
    }
}

fn kinds(mut options: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [kind, rest @ ..] = options {
        kinds.push(*kind);
        options = if *kind <= 1 { rest } else { &options[usize::from(rest[0])..] };
    }
    kinds
}

/// RFC 7413 §4.2.1: only the ISN is acknowledged: all data is sent again at once, and the window is not reduced.
//= rfc7413 4.2.2-f test
#[test]
fn data_not_acknowledged_is_sent_again_at_once() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.pass(10);
    p.send(seg().syn().ack(1).mss(1000));
    p.expect().is_ack().seq(1).ack(1).data(DATA);
    assert_eq!(p.stack.info(id).unwrap().cwnd, 10_000);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::DataNotAcknowledged));
    // The cookie is kept: only a fresh one replaces it.
    end(&mut p, id);
    p.connect(DATA, true);
    with_cookie(p.expect());
}

/// A fresh cookie in the SYN-ACK replaces the old one, which was stale if the data is not acknowledged. The SYN-ACK's MSS
/// is remembered, too.
//= rfc7413 4.2.2-e test
#[test]
fn a_fresh_cookie_replaces_the_stale_one() {
    let refused = Outcome::Handshake(Reason::StaleOrWrongCredential);
    for (ack, wanted) in [(1, refused), (AFTER, Outcome::Accepted)] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect());
        p.send(seg().syn().ack(ack).mss(700).cookie(b"new one!"));
        p.expect().is_ack().seq(ack).data(&DATA[ack as usize - 1..]);
        assert_eq!(outcome(&p, id), wanted);
        end(&mut p, id);
        p.connect(&[b'd'; 3_000], true);
        let syn = p.expect().is_syn().len(700 - 40);
        assert_eq!(syn.grants(FastOpenForm::Standard).as_bytes(), b"new one!");
    }
}

/// RFC 7413 §4.2.1: a part of the data is acknowledged: the rest is sent again at once.
//= rfc7413 4.2.2-f test
#[test]
fn data_partly_acknowledged() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().ack(5).mss(1460));
    p.expect().is_ack().seq(5).data(&DATA[4..]);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::DataPartlyAcknowledged));
}

/// RFC 9293 §3.10.7.3: the SYN-ACK acknowledges more than was sent: it gets a RST, and the connect continues.
#[test]
fn more_than_was_sent_is_reset() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().ack(AFTER + 1).mss(1460));
    p.expect().is_rst().seq(AFTER + 1);
    assert_eq!(p.state(id), StateName::SynSent);
    p.send(seg().syn().ack(AFTER).mss(1460));
    assert_eq!(outcome(&p, id), Outcome::Accepted);
}

/// RFC 7413 §4.2.1: data and FIN in the SYN-ACK are taken.
#[test]
fn data_and_fin_in_the_syn_ack() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().fin().ack(AFTER).mss(1460).data(b"answer"));
    p.expect().is_ack().seq(AFTER).ack(8);
    assert_eq!(p.read(id), b"answer");
    assert_eq!(p.read_once(id), Ok(0));
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// RFC 7413 §4.1.3: a retransmitted SYN has neither option nor data, whether the first one had a cookie or asked for one;
/// the data follows the handshake.
//= rfc7413 4.2.2-b test
#[test]
fn a_retransmitted_syn_is_plain() {
    for mut p in [primed(), Peer::new()] {
        let id = p.connect(DATA, true);
        assert!(p.expect().is_syn().fast_open.is_some());
        p.pass(3_500);
        let again = p.drain();
        assert!(again.len() >= 2, "{again:?}");
        for syn in again {
            syn.is_syn().empty().no_fast_open();
        }
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().is_ack().seq(1).data(DATA);
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::SynTimedOut));
    }
}

/// The first SYN arrived late: its data is acknowledged after the plain SYN was sent. The first flight is accepted.
#[test]
fn late_acceptance_after_the_plain_syn() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.pass(100);
    p.expect().is_syn().empty().no_fast_open();
    p.send(seg().syn().ack(AFTER).mss(1460));
    p.expect().is_ack().seq(AFTER).empty();
    assert_eq!(outcome(&p, id), Outcome::Accepted);
    p.pass(5_000);
    p.quiet();
}

/// RFC 7413 appendix A: if option 34 gets no answer, option 254 is tried once. If that gets no answer either, 34 is
/// used from then on. That a server was visited without Fast Open says nothing about the form.
//= rfc7413 9-a 9-b test
#[test]
fn without_an_answer_the_other_form_is_tried_once() {
    use FastOpenForm::{Experimental, Standard};
    for visited in [false, true] {
        let mut p = Peer::new();
        if visited {
            let id = p.connect(b"", false);
            p.expect().is_syn().no_fast_open();
            p.pass(10);
            p.send(seg().syn().ack(1).mss(1460));
            p.expect().is_ack();
            end(&mut p, id);
            assert_eq!(p.stack.credentials().iter().count(), 1, "it is known");
        }
        for form in [Standard, Experimental, Standard, Standard] {
            let id = p.connect(DATA, true);
            assert_eq!(p.expect().is_syn().empty().fast_open, Some(FastOpen::Request(form)));
            p.send(seg().syn().ack(1).mss(1460));
            p.expect().data(DATA);
            assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::PeerWithoutFastOpen));
            end(&mut p, id);
        }
    }
}

/// The form in which the server granted a cookie is used from then on.
#[test]
fn an_experimental_cookie_is_shown_in_its_form() {
    let mut p = Peer::new();
    for _ in 0..2 {
        let id = p.connect(b"", true);
        let form = p.expect().fast_open.unwrap().form();
        let answer = seg().syn().ack(1).mss(1460);
        p.send(if form == FastOpenForm::Experimental { answer.cookie_254(&COOKIE) } else { answer });
        p.expect().is_ack();
        end(&mut p, id);
    }
    p.connect(DATA, true);
    assert_eq!(p.expect().data(DATA).grants(FastOpenForm::Experimental).as_bytes(), COOKIE);
}

/// RFC 7413 §4.1.2: a cookie that was not requested is not taken, because it could be used to track the client.
#[test]
fn an_unasked_cookie_is_not_taken() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn().no_fast_open();
    p.send(seg().syn().ack(1).mss(1460).cookie(&COOKIE));
    p.expect().is_ack();
    end(&mut p, id);
    p.connect(DATA, true);
    assert_eq!(p.expect().is_syn().empty().fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
}

/// RFC 7413 §4.1.3: a cookie in the answer to a retransmitted SYN is taken too.
#[test]
fn a_cookie_for_a_retransmitted_syn_is_taken() {
    let mut p = Peer::new();
    let id = p.connect(b"", true);
    p.at(1_100);
    p.drain();
    p.send(seg().syn().ack(1).mss(1460).cookie(&COOKIE));
    p.expect().is_ack();
    end(&mut p, id);
    p.connect(DATA, true);
    with_cookie(p.expect());
}

/// A router cannot pass the large SYN: a plain one with a smaller MSS follows at once, and the data follows later.
#[test]
fn packet_too_big_makes_an_immediate_plain_syn() {
    let mut p = primed_by(Peer::with(|c| c.tcp.set_nodelay(true)), seg().mss(1460), 10);
    let id = p.connect(&[b'd'; 1_200], true);
    let syn = with_cookie(p.expect()).len(1_200);
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_000 }, &syn.packet);
    let plain = p.expect().is_syn().empty().no_fast_open();
    assert_eq!(plain.mss, Some(960));
    p.send(seg().syn().ack(1).mss(1460));
    assert_eq!(p.drain().iter().map(|g| g.data.len()).collect::<Vec<_>>(), [960, 240]);
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 7413 §4.2.1: the limit is the cached MSS, or 536 or 1,220 without one, less the options.
//= rfc7413 4.2.2-e test
#[test]
fn the_first_flight_is_limited_by_the_cached_mss() {
    let cases: [(bool, Option<u16>, usize); 5] = [
        (false, None, 536 - 40),
        (true, None, 1_220 - 40),
        (false, Some(1_460), 1_460 - 40),
        (false, Some(700), 700 - 40),
        (false, Some(9_000), 1_460 - 40),
    ];
    for (v6, mss, limit) in cases {
        let answer = mss.map_or(seg(), |m| seg().mss(m));
        let nodelay = |c: &mut firstflight_stack::Config| c.tcp.set_nodelay(true);
        let p = if v6 { Peer::v6(nodelay) } else { Peer::with(nodelay) };
        let mut p = primed_by(p, answer, 10);
        let id = p.connect(&[b'd'; 3_000], true);
        let syn = p.expect().is_syn().len(limit);
        assert!(syn.packet.len() <= 1_500);
        // RFC 7413 §4.2.1: the rest waits for the SYN-ACK.
        p.quiet();
        p.send(seg().syn().ack(1 + limit as u32).mss(1460));
        let rest = p.drain();
        assert_eq!(rest[0].seq, 1 + limit as u32);
        assert_eq!(rest.iter().map(|g| g.data.len()).sum::<usize>(), 3_000 - limit);
        assert_eq!(outcome(&p, id), Outcome::Accepted);
    }
}

/// Our SYN crosses the peer's: the options and payloads of both are ignored, and the data follows later.
#[test]
fn simultaneous_open_ignores_fast_open() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().mss(1460).cookie(&COOKIE).data(b"crossed"));
    p.expect().syn_ack().ack(1).empty().no_fast_open();
    p.send(seg().syn().ack(1).mss(1460));
    let sent = p.drain();
    assert!(sent.iter().any(|g| g.seq == 1 && g.data == DATA), "{sent:?}");
    assert_eq!(p.state(id), StateName::Established);
    assert_eq!(p.read(id), b"");
    p.send(seg().seq(1).ack(AFTER).data(b"crossed"));
    assert_eq!(p.read(id), b"crossed");
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::SimultaneousOpen));
}

/// RFC 9293 §3.10.7.3: the connect is refused once a plain SYN is refused, too.
#[test]
fn a_reset_of_a_plain_syn_behind_a_first_flight_is_refused() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().rst().ack(AFTER));
    p.expect().is_syn().empty();
    p.send(seg().rst().ack(1));
    assert_eq!(p.reason(id), Some(CloseReason::Refused));
}

/// The first answer came late, as on a busy host, and the second one at once. The second one could be a copy of the
/// first, so the SYN is sent again, and the third answer is believed.
#[test]
fn a_second_refusal_that_comes_sooner_than_the_first_is_not_ignored_for_good() {
    for (late, known) in [(1, true), (12, true), (1, false), (12, false), (450, false)] {
        let mut p = if known { primed() } else { Peer::new() };
        let id = p.connect(DATA, true);
        let first = p.expect().is_syn();
        assert!(first.fast_open.is_some());
        p.pass(late);
        p.send(seg().rst().ack(1 + first.data.len() as u32));
        p.expect().is_syn().empty().no_fast_open();
        p.send(seg().rst().ack(1));
        p.send(seg().rst().ack(1));
        p.pass(late.max(200) - 1);
        p.quiet();
        assert_eq!(p.state(id), StateName::SynSent, "{late} ms");
        p.pass(5);
        p.expect().is_syn().empty().no_fast_open();
        p.send(seg().rst().ack(1));
        assert_eq!(p.reason(id), Some(CloseReason::Refused), "{late} ms");
        p.quiet();
    }
}

/// As above, but the second answer is a copy, and the server is far. Its answer to the plain SYN comes after the SYN that
/// was brought forward, of which nothing was lost.
#[test]
fn a_syn_that_was_brought_forward_is_no_sign_of_congestion() {
    let mut p = Peer::new();
    let id = p.connect(DATA, true);
    assert!(p.expect().is_syn().fast_open.is_some());
    p.pass(10);
    p.send(seg().rst().ack(1));
    p.expect().is_syn().no_fast_open();
    p.send(seg().rst().ack(1));
    p.pass(205);
    p.expect().is_syn().no_fast_open();
    p.pass(95);
    p.send(seg().syn().ack(1).mss(1000));
    p.expect().is_ack().seq(1).ack(1).data(DATA);
    assert_eq!(p.stack.info(id).unwrap().cwnd, 10_000);
}

/// A close right after the connect: the FIN waits for the handshake.
#[test]
fn close_after_a_first_flight() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    p.shutdown(id);
    with_cookie(p.expect()).data(DATA);
    p.send(seg().syn().ack(AFTER).mss(1460));
    p.expect().is_fin().seq(AFTER).ack(1).empty();
    assert_eq!(p.state(id), StateName::FinWait1);
}

/// On another network, cookies are not reused: after the flush none is shown, so no cookie tracks the client.
#[test]
fn forgotten_credentials_are_not_shown() {
    let mut p = primed();
    p.stack.forget_credentials();
    p.connect(DATA, true);
    assert_eq!(p.expect().is_syn().empty().fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
}
