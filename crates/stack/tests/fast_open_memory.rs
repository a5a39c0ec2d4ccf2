//! What a client remembers of servers, packet by packet: cookies for one use, failures, times (the Fast
//! Open paper §4.1, RFC 7413 §4.1.3).

use crate::peer::primed::{AFTER, DATA, end, failures, outcome, primed, primed_by, with_cookie};
use crate::peer::{PORT, Peer, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, ConnId};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::{FastOpen, FastOpenForm};

// --- times ---------------------------------------------------------------------------------------

/// The paper's §4.1: the first timeout is computed from the last round-trip time, 50 ms at least. The following
/// timeouts are 1, 2, 4 … s. Without a measurement of this hour it is 1 s, as without the option.
#[test]
fn the_first_syn_timeout_follows_the_round_trip_time() {
    // SRTT = R, RTTVAR = R/2 after one sample: SRTT + 4 · RTTVAR = 3 R.
    for (rtt, first) in [(2, 50), (40, 120), (100, 300)] {
        // The path may drop the option as well as the data.
        for data in [DATA, b""] {
            let mut p = primed_by(Peer::new(), seg().mss(1460), rtt);
            let start = p.ms();
            p.connect(data, true);
            let times = [0, first, first + 1_000, first + 3_000].map(|ms| start + ms);
            p.sends_at(start + first + 3_500, &times);
        }
    }
    let mut p = primed_by(Peer::new(), seg().mss(1460), 900);
    let start = p.ms();
    p.connect(DATA, true);
    p.sends_at(start + 4_000, &[start, start + 1_000, start + 3_000]);
    let mut p = primed();
    p.pass(3_600_100);
    let start = p.ms();
    p.connect(DATA, true);
    p.sends_at(start + 2_000, &[start, start + 1_000]);
    let mut p = primed();
    let start = p.ms();
    p.connect(DATA, false);
    p.sends_at(start + 2_000, &[start, start + 1_000]);
}

/// A connect that begins while the first connection is still open knows its round-trip time.
#[test]
fn the_round_trip_time_is_known_before_the_first_connection_is_over() {
    let mut p = Peer::new();
    p.port = PORT;
    p.connect(b"", true);
    p.expect().is_syn();
    p.pass(40);
    p.send(seg().syn().ack(1).mss(1460).cookie(&[7; 8]));
    p.expect().is_ack();
    let start = p.ms();
    p.connect(DATA, true);
    p.sends_at(start + 1_000, &[start, start + 120]);
}

/// Over several visits the variation settles, and with it the timeout: 1.5 round trips.
#[test]
fn the_first_syn_timeout_settles_at_one_and_a_half_round_trips() {
    let mut p = primed_by(Peer::new(), seg().mss(1460), 100);
    for _ in 0..6 {
        let id = p.connect(DATA, true);
        p.expect();
        p.pass(100);
        p.send(seg().syn().ack(AFTER).mss(1460));
        p.expect().is_ack();
        end(&mut p, id);
    }
    let start = p.ms();
    p.connect(DATA, true);
    p.sends_at(start + 200, &[start, start + 150]);
}

/// A visit to a server that took the first flight. The client repeats its SYN. The SYN-ACK comes `rtt` ms after the first
/// SYN and echoes that SYN's timestamp, and so does a second SYN-ACK, if there is one. Returns after how many ms the client
/// repeated its SYN.
fn visit_with_two_syns(p: &mut Peer, rtt: u64, second: bool) -> u64 {
    let start = p.ms();
    let id = p.connect(DATA, true);
    let first = p.expect().is_syn().data(DATA).ts.unwrap().value;
    p.at(start + rtt);
    let timeout = p.expect().is_syn().empty().at - start;
    for _ in 0..1 + u8::from(second) {
        p.send(seg().syn().ack(AFTER).mss(1460).ts_echo(77, first));
        p.expect().is_ack();
        // The ACKs of old segments are limited.
        p.pass(600);
    }
    if !second {
        // The acknowledgement of what follows is a measurement.
        p.write(id, b"x");
        let sent = p.expect().data(b"x").ts.unwrap().value;
        p.pass(40);
        p.send(seg().seq(1).ack(AFTER + 1).ts_echo(78, sent));
    }
    end(p, id);
    timeout
}

/// The first SYN-ACK of every visit is lost, and its repetition echoes the first SYN's timestamp. It is no measurement of
/// the path. With it, every visit would make the next one's timeout longer, up to a second, even if a measurement followed.
#[test]
fn repeated_syn_acks_do_not_lengthen_the_next_timeout() {
    let mut p = primed_by(Peer::new(), seg().mss(1460), 40);
    for _ in 0..9 {
        let timeout = visit_with_two_syns(&mut p, 160, false);
        assert!(timeout <= 122, "{timeout} ms");
    }
}

/// The path has become slower than the timeout. Both SYNs are answered, which shows that the first answer is a
/// measurement.
#[test]
fn two_syn_acks_lengthen_the_next_timeout() {
    let mut p = primed_by(Peer::new(), seg().mss(1460), 40);
    visit_with_two_syns(&mut p, 160, true);
    let start = p.ms();
    p.connect(DATA, true);
    // SRTT = 7/8 · 40 + 160/8 = 55, RTTVAR = 3/4 · 20 + 120/4 = 45.
    p.sends_at(start + 900, &[start, start + 235]);
}

/// A first flight that is lost once says more about the path's middleboxes than about congestion, so the initial
/// window stays. RFC 5681 §3.1, RFC 6298 §5.7: a second loss means one segment and 3 s.
//= rfc6298 5.7-a test
#[test]
fn two_lost_syns_mean_one_segment_and_three_seconds() {
    for (wait, cwnd, rto) in [(100, 10_000, 1_000), (1_100, 1_000, 3_000)] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        p.pass(wait);
        p.drain();
        p.send(seg().syn().ack(1).mss(1_000));
        p.expect().data(DATA);
        assert_eq!(p.stack.info(id).unwrap().cwnd, cwnd, "after {wait} ms");
        let start = p.ms();
        p.sends_at(start + rto + 100, &[start + rto]);
    }
}

/// A timestamp that echoes the first SYN's shows that it arrived: nothing was lost (RFC 3522's idea), and
/// the server is not at fault.
#[test]
fn a_syn_that_was_only_late_is_not_a_lost_one() {
    for late in [true, false] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        let first = p.expect().ts.unwrap().value;
        p.pass(1_200);
        let again = p.drain().last().unwrap().ts.unwrap().value;
        p.send(seg().syn().ack(1).mss(1_000).ts_echo(77, if late { first } else { again }));
        p.expect().data(DATA);
        assert_eq!(p.stack.info(id).unwrap().cwnd, if late { 10_000 } else { 1_000 });
        let entry = p.stack.credentials().iter().next().unwrap().2;
        // A plain SYN was lost as well, so the loss of the first one says nothing about what it carried.
        assert_eq!(entry.failures.count, 0);
        let reason = if late { Reason::DataNotAcknowledged } else { Reason::SynTimedOut };
        assert_eq!(outcome(&p, id), Outcome::Handshake(reason));
    }
}

/// RFC 8201 §5.3, RFC 1191 §6.3: later connections to that server start with the smaller size, for ten minutes.
#[test]
fn a_packet_too_big_is_remembered_for_ten_minutes() {
    let mut p = primed_by(Peer::with(|c| c.tcp.set_nodelay(true)), seg().mss(1460), 10);
    let id = p.connect(&[b'd'; 1_400], true);
    let syn = with_cookie(p.expect()).len(1_400);
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_000 }, &syn.packet);
    p.expect().is_syn().empty();
    p.send(seg().syn().ack(1).mss(1460));
    p.drain();
    end(&mut p, id);
    for (wait, len, mss) in [(0, 920, 960), (601_000, 1_400, 1_460)] {
        p.pass(wait);
        let id = p.connect(&[b'd'; 1_400], true);
        let syn = with_cookie(p.expect()).len(len);
        assert_eq!(syn.mss, Some(mss));
        p.abort(id);
        p.release(id);
    }
}

// --- failures ------------------------------------------------------------------------------------

/// Four visits whose SYN with an option is lost, and whose plain SYN is answered. The first one waits for a timeout, the
/// others do not.
fn four_are_lost(p: &mut Peer, timeout: u64) {
    for wait in [timeout, 0, 0, 0] {
        let id = p.connect(DATA, true);
        assert!(p.expect().is_syn().fast_open.is_some());
        p.pass(wait);
        p.expect().is_syn().empty().no_fast_open();
        p.quiet();
        p.pass(10);
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().is_ack().seq(1).data(DATA);
        assert_eq!(outcome(p, id), Outcome::Handshake(Reason::SynTimedOut));
        end(p, id);
    }
}

/// The paper's §4.1: if SYNs with data are lost and plain ones come through, Fast Open is switched off for a while, for
/// this server and no other.
//= rfc7413 4.1.3.1-a 4.1.3.1-b test
#[test]
fn failures_are_remembered_per_server() {
    let mut p = primed();
    four_are_lost(&mut p, 80);
    let id = p.connect(DATA, true);
    p.expect().is_syn().empty().no_fast_open();
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::FailureMemory));
    p.send(seg().syn().ack(1).mss(1460));
    p.expect();
    end(&mut p, id);
    p.moves_to("10.0.0.9");
    let other = p.connect(DATA, true);
    assert!(p.expect().is_syn().fast_open.is_some());
    p.abort(other);
    p.release(other);
    p.moves_to("10.0.0.2");
    p.pass(61_000);
    p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
}

/// What the next SYN carries.
#[track_caller]
fn next_syn(p: &mut Peer) -> Option<FastOpen> {
    let id = p.connect(DATA, true);
    let syn = p.expect().is_syn();
    p.abort(id);
    p.release(id);
    syn.fast_open
}

/// The plain SYN that directly follows a first flight changes nothing if the first flight arrives: it is accepted, its
/// round trip is measured, and the next one is alone again. If the server refuses it, nothing was lost.
#[test]
fn a_first_flight_with_a_plain_syn_behind_it() {
    for refused in [false, true] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect());
        p.pass(80);
        p.expect().is_syn().empty();
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().data(DATA);
        end(&mut p, id);
        let id = p.connect(DATA, true);
        let first = with_cookie(p.expect()).data(DATA).ts.unwrap().value;
        let second = p.expect().is_syn().empty().ts.unwrap().value;
        assert_ne!(first, second, "the answer tells which of them arrived");
        p.pass(30);
        if refused {
            p.send(seg().syn().ack(1).mss(1460).ts_echo(1, first));
            p.expect().is_ack().data(DATA);
            assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::DataNotAcknowledged));
        } else {
            p.send(seg().syn().ack(AFTER).mss(1460).ts_echo(1, first));
            p.expect().is_ack().seq(AFTER).empty();
            // The server's answer to the second one.
            p.send(seg().syn().ack(AFTER).mss(1460).ts_echo(1, first));
            p.expect().is_ack().seq(AFTER).empty();
            assert_eq!(outcome(&p, id), Outcome::Accepted);
            assert_eq!(p.stack.info(id).unwrap().handshake_retransmits, 0);
        }
        assert_eq!(failures(&p), 0);
        end(&mut p, id);
        p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        if !refused {
            p.quiet();
        }
    }
}

/// A SYN with only a cookie request may be dropped because of it, too.
#[test]
fn a_request_that_is_not_answered_is_a_failure() {
    let mut p = Peer::new();
    four_are_lost(&mut p, 1_100);
    assert_eq!(next_syn(&mut p), None);
    p.pass(61_000);
    assert_eq!(next_syn(&mut p), Some(FastOpen::Request(FastOpenForm::Standard)));
}

/// A cookie in the answer shows that the option arrived, however late. This is no failure.
#[test]
fn a_late_cookie_is_no_failure() {
    let mut p = Peer::new();
    let id = p.connect(DATA, true);
    p.pass(1_100);
    p.drain();
    p.send(seg().syn().ack(1).mss(1460).cookie(b"cookie!!"));
    p.expect().data(DATA);
    end(&mut p, id);
    with_cookie({
        p.connect(DATA, true);
        p.expect()
    });
}

/// A farm without shared keys: after three refusals of fresh cookies, no data is sent, but a cookie is still
/// requested.
//= rfc7413 4.1.3.1-a 4.1.3.1-b test
#[test]
fn three_refusals_of_fresh_cookies_stop_the_data_but_not_the_question() {
    let mut p = primed();
    for fresh in [b"refused1", b"refused2", b"refused3"] {
        let id = p.connect(DATA, true);
        p.expect().data(DATA);
        p.send(seg().syn().ack(1).mss(1460).cookie(fresh));
        p.expect().data(DATA);
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::StaleOrWrongCredential));
        end(&mut p, id);
    }
    let id = p.connect(DATA, true);
    let syn = p.expect().is_syn().empty();
    assert_eq!(syn.fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
    p.send(seg().syn().ack(1).mss(1460).cookie(b"refused4"));
    p.expect().data(DATA);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::FailureMemory));
    end(&mut p, id);
    p.pass(61_000);
    p.connect(DATA, true);
    assert_eq!(p.expect().data(DATA).grants(FastOpenForm::Standard).as_bytes(), b"refused4");
}

/// One refusal is a stale cookie, not a failure.
#[test]
fn a_refusal_is_not_a_failure() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    p.expect();
    p.send(seg().syn().ack(1).mss(1460).cookie(b"new one!"));
    p.expect();
    end(&mut p, id);
    p.connect(DATA, true);
    p.expect().data(DATA);
}

fn until_timed_out(p: &mut Peer, id: ConnId) {
    p.pass(1_500_000);
    p.drain();
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    p.release(id);
}

/// The SYN and its answer pass, but later data never does. The end of the connection by timeout is a failure, and
/// the next connection is ordinary.
#[test]
fn data_that_is_never_acknowledged_is_a_failure() {
    for taken in [true, false] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        p.expect();
        p.send(seg().syn().ack(if taken { AFTER } else { 1 }).mss(1460));
        p.drain();
        p.write(id, b"more");
        until_timed_out(&mut p, id);
        let entry = p.stack.credentials().iter().next().unwrap().2;
        assert_eq!(entry.failures.count, 1);
    }
}

/// The first flight is accepted and nothing follows. If the application gives up after seconds, the path probably
/// drops the response. If it gives up at once, it did not wait.
#[test]
fn an_accepted_first_flight_that_is_given_up_without_a_response_is_a_failure() {
    for (wait, count) in [(100, 0), (4_900, 0), (5_000, 1)] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        p.expect();
        p.send(seg().syn().ack(AFTER).mss(1460));
        p.pass(wait);
        p.release(id);
        assert_eq!(p.stack.credentials().iter().next().unwrap().2.failures.count, count, "{wait}");
    }
}

/// An acceptance alone does not reset the memory. Otherwise a path that drops what follows would be tried every
/// minute. An answer resets it.
#[test]
fn only_an_answered_first_flight_resets_the_failures() {
    let mut p = primed();
    for count in [1, 2] {
        let id = p.connect(DATA, true);
        p.expect().data(DATA);
        p.send(seg().syn().ack(AFTER).mss(1460));
        p.drain();
        p.write(id, b"more");
        until_timed_out(&mut p, id);
        assert_eq!(p.stack.credentials().iter().next().unwrap().2.failures.count, count);
        p.pass(240_000);
    }
    let id = p.connect(DATA, true);
    p.expect().data(DATA);
    p.send(seg().syn().ack(AFTER).mss(1460));
    p.send(seg().seq(1).ack(AFTER).data(b"answer"));
    p.drain();
    p.read(id);
    p.send(seg().seq(7).rst());
    p.release(id);
    assert_eq!(p.stack.credentials().iter().next().unwrap().2.failures.count, 0);
}

/// A timeout of a connection that had its answer says nothing about the first flight.
#[test]
fn a_later_timeout_is_no_failure() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    p.expect();
    p.send(seg().syn().ack(AFTER).mss(1460).data(b"answer"));
    p.drain();
    p.read(id);
    p.write(id, b"more");
    until_timed_out(&mut p, id);
    assert_eq!(p.stack.credentials().iter().next().unwrap().2.failures.count, 0);
}

// --- cookies for one use ---------------------------------------------------------------------------

/// A server accepts the data and grants another cookie each time. No cookie is shown twice, and parallel
/// connections show different ones. When none is left, the SYN requests one.
#[test]
fn one_time_cookies_are_shown_once() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().ack(AFTER).mss(1460).cookie(b"second!!"));
    p.expect().is_ack();
    end(&mut p, id);
    let first = p.connect(DATA, true);
    assert_eq!(p.expect().data(DATA).grants(FastOpenForm::Standard).as_bytes(), b"second!!");
    let port = p.local_port;
    let other = p.connect(DATA, true);
    let asks = p.expect().is_syn().empty().fast_open;
    assert_eq!(asks, Some(FastOpen::Request(FastOpenForm::Standard)));
    assert_eq!(p.stack.info(other).unwrap().cookie_age, None);
    p.abort(other);
    p.release(other);
    // Without an answer, the cookie may be valid, and is used again.
    p.local_port = port;
    p.abort(first);
    p.release(first);
    p.pass(5_000);
    let id = p.connect(DATA, true);
    assert_eq!(p.expect().data(DATA).grants(FastOpenForm::Standard).as_bytes(), b"second!!");
    assert_eq!(p.stack.info(id).unwrap().cookie_age.map(|age| age.as_secs()), Some(5));
}
