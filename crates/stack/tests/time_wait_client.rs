//! A client's SYN meets an earlier connection of its four-tuple at the server, usually one in TIME-WAIT. This costs
//! one round trip, and says nothing about the path (RFC 9293 §3.5.1, §3.10.7.3).

use crate::pair::{Pair, addresses};
use crate::peer::primed::{AFTER, DATA, end, failures, outcome, primed, with_cookie};
use crate::peer::{Got, PORT, Peer, Seg, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{ConnectConfig, Stack, StateName};
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use std::net::SocketAddr;
use std::time::Duration;

/// A number of the earlier connection, far above ours.
const OLD: u32 = 1 << 30;

/// The ACK with which a TIME-WAIT answers a SYN that it does not accept: it has the TIME-WAIT's own numbers.
fn challenge() -> Seg {
    seg().seq(5_000).ack(OLD)
}

/// The stack's RST for [`challenge`], then its next SYN, both sent now.
#[track_caller]
fn reset_and_syn(p: &mut Peer) -> Got {
    p.expect().is_rst().seq(OLD).at(p.ms());
    p.expect().is_syn().at(p.ms())
}

/// The RST ends the TIME-WAIT, and the SYN after it opens the connection: this takes a round trip, not a second.
#[test]
fn the_syn_goes_again_right_behind_the_rst() {
    let mut p = Peer::new();
    p.port = PORT;
    let id = p.connect(b"", false);
    let first = p.expect().is_syn();
    p.pass(10);
    p.send(challenge());
    let again = reset_and_syn(&mut p);
    assert_eq!((again.raw_seq, again.port), (first.raw_seq, first.port), "the same connection");
    p.quiet();
    p.pass(10);
    p.send(seg().syn().ack(1).mss(1_000));
    p.expect().is_ack().seq(1).ack(1).empty();
    let info = p.stack.info(id).unwrap();
    assert_eq!((info.state, p.ms(), info.handshake_retransmits), (StateName::Established, 20, 1));
    assert_eq!(info.cwnd, 10_000, "nothing was lost");
}

/// Without an answer, the new SYN is sent again after a second, like a first one, and then with backoff.
#[test]
fn the_timer_counts_from_the_new_syn() {
    for data in [DATA, b""] {
        let mut p = primed();
        p.connect(data, true);
        let start = p.ms();
        p.expect();
        p.pass(10);
        p.send(challenge());
        reset_and_syn(&mut p);
        p.sends_at(start + 8_000, &[1_010, 3_010, 7_010].map(|ms| start + ms));
    }
}

/// An attacker who forges such answers gets one RST for each, as from any host, and one SYN from each connect.
#[test]
fn forged_answers_make_one_syn() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    let start = p.ms();
    with_cookie(p.expect());
    let mut syns = 0;
    for n in 0..200 {
        p.send(seg().seq(n).ack(OLD + n));
        let got = p.drain();
        syns += got.iter().filter(|got| got.flags.contains(firstflight_wire::tcp::Flags::SYN)).count();
    }
    assert_eq!(syns, 1);
    // The timer keeps running, and another answer does not change it.
    p.at(start + 1_500);
    p.expect().is_syn().at(start + 1_000);
    p.send(challenge());
    p.expect().is_rst();
    p.quiet();
    assert_eq!(p.state(id), StateName::SynSent);
}

/// The SYN that is sent again at once does not count as a retry: a forged answer does not halve the time of a
/// connect.
#[test]
fn the_new_syn_is_no_retry() {
    let mut p = Peer::with(|c| c.tcp.set_syn_retries(1));
    p.port = PORT;
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(challenge());
    reset_and_syn(&mut p);
    p.sends_at(2_900, &[1_000]);
    assert_eq!(p.state(id), StateName::SynSent);
    p.at(3_100);
    assert_eq!(p.state(id), StateName::Closed);
}

/// A RST with a wrong number does not cause another SYN.
#[test]
fn a_reset_brings_no_syn() {
    let mut p = primed();
    p.connect(DATA, true);
    p.expect();
    p.send(challenge().rst());
    p.quiet();
}

/// The answer may come after the first timeout, which follows the round-trip time of earlier visits. It is still no
/// sign of a path that drops the first SYN.
#[test]
fn an_answer_after_the_timeout_counts() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect());
    p.pass(60);
    p.expect().is_syn().empty().no_fast_open();
    p.send(challenge());
    reset_and_syn(&mut p).empty().no_fast_open();
    p.send(challenge());
    p.expect().is_rst();
    p.quiet();
    p.send(seg().syn().ack(1).mss(1_460));
    p.expect().data(DATA);
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::OldConnection), 0));
}

/// The first flight met an earlier connection. The SYN is sent again plain, and the data after the handshake. This
/// is no failure of the path, and the next SYN carries data.
#[test]
fn it_is_no_failure_of_fast_open() {
    for lost in [false, true] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        p.pass(10);
        p.send(challenge());
        reset_and_syn(&mut p).empty().no_fast_open();
        if lost {
            // The loss is congestion, because the first SYN had arrived.
            p.pass(1_100);
            p.expect().is_syn().empty().no_fast_open();
        }
        p.send(seg().syn().ack(1).mss(1_460));
        p.expect().data(DATA);
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::OldConnection));
        assert_eq!(p.stack.info(id).unwrap().cwnd, if lost { 1_460 } else { 14_600 });
        assert_eq!(failures(&p), 0, "lost: {lost}");
        end(&mut p, id);
        p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
    }
}

/// The timestamp that the SYN-ACK echoes distinguishes the first SYN from the second, unless both were sent in one
/// millisecond.
#[test]
fn an_echo_of_both_syns_is_no_sign_of_the_first() {
    for (wait, echo_first, reason) in [
        (0, true, Reason::OldConnection),
        (10, false, Reason::OldConnection),
        (10, true, Reason::DataNotAcknowledged),
    ] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        let first = p.expect().ts.unwrap().value;
        p.pass(wait);
        p.send(challenge());
        let again = reset_and_syn(&mut p).ts.unwrap().value;
        p.send(seg().syn().ack(1).mss(1_460).ts_echo(77, if echo_first { first } else { again }));
        p.expect().data(DATA);
        assert_eq!(
            (outcome(&p, id), failures(&p)),
            (Outcome::Handshake(reason), 0),
            "{wait} ms, {echo_first}"
        );
    }
}

/// A cookie request met an earlier connection: the next connect requests again, in the same form.
#[test]
fn a_request_that_met_one_is_made_again() {
    let mut p = Peer::new();
    let id = p.connect(DATA, true);
    p.expect();
    p.send(challenge());
    reset_and_syn(&mut p).empty().no_fast_open();
    p.send(seg().syn().ack(1).mss(1_460));
    p.expect().data(DATA);
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::OldConnection), 0));
    end(&mut p, id);
    p.connect(DATA, true);
    assert_eq!(p.expect().fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
}

/// The answer was forged, and the server had accepted the first SYN: its data counts as accepted, once.
#[test]
fn a_forged_answer_does_not_send_the_data_twice() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
    p.send(challenge());
    reset_and_syn(&mut p).empty().no_fast_open();
    p.send(seg().syn().ack(AFTER).mss(1_460));
    p.expect().is_ack().seq(AFTER).empty();
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Accepted, 0));
    p.pass(10);
    p.quiet();
}

/// The listener did not take a one-time cookie, so it is shown again.
#[test]
fn the_cookie_stays() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    p.expect();
    // A server that grants another cookie each time.
    p.send(seg().syn().ack(AFTER).mss(1_460).cookie(b"second!!"));
    p.expect();
    end(&mut p, id);
    for met_old in [true, false] {
        let id = p.connect(DATA, true);
        assert_eq!(p.expect().data(DATA).grants(FastOpenForm::Standard).as_bytes(), b"second!!");
        if met_old {
            p.send(challenge());
            reset_and_syn(&mut p);
            p.send(seg().syn().ack(1).mss(1_460));
            p.expect();
            end(&mut p, id);
        }
    }
}

/// The second attempt, from another port, may meet an earlier connection as well.
#[test]
fn the_second_attempt_goes_on_too() {
    let mut p = primed();
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    p.port = PORT;
    let id = p.connect_with(DATA, &config);
    let first = p.expect();
    p.pass(110);
    let second = p.drain().into_iter().find(|got| got.raw_seq != first.raw_seq).expect("no second attempt");
    p.local_port = u16::from_be_bytes([second.packet[20], second.packet[21]]);
    p.send(challenge());
    reset_and_syn(&mut p).empty();
    p.send(seg().syn().ack(1).mss(1_460));
    p.drain();
    assert_eq!(p.state(id), StateName::Established);
}

/// A client with new secrets reuses a port while the server still has the last connection of that port in
/// TIME-WAIT. Half of the SYNs look old. The RST that follows such a SYN ends the TIME-WAIT, so it costs one more
/// round trip.
#[test]
fn a_restarted_client_gets_its_port_again_from_our_server() {
    const DELAY: Duration = Duration::from_millis(20);
    let mut refused = 0;
    for secret in 0..12 {
        let mut pair = Pair::perfect(DELAY);
        let listener = pair.listen(None);
        let at = SocketAddr::new(addresses(false).0, 40_000);
        let config = ConnectConfig::default().local(Some(at));
        let (id, _) = pair.client.connect(pair.server_addr(), b"", &config, pair.now).unwrap();
        let child = pair.accept(listener);
        // The server closes first, so it keeps the TIME-WAIT.
        pair.server.release(child, pair.now);
        pair.run(DELAY * 4, |p| p.client.info(id).is_some_and(|info| info.state == StateName::CloseWait));
        pair.client.release(id, pair.now);
        pair.run(DELAY * 4, |p| p.server.time_waits() == 1 && p.client.connections() == 0);
        assert_eq!((pair.server.time_waits(), pair.client.connections()), (1, 0));

        let mut settings = pair.client.config().clone();
        settings.secret = [100 + secret; 32];
        pair.client = Stack::new(settings, pair.now);
        let began = pair.now;
        let (id, _) = pair.client.connect(pair.server_addr(), b"", &config, pair.now).unwrap();
        pair.run(Duration::from_secs(70), |p| {
            p.client.info(id).is_none_or(|info| info.state != StateName::SynSent)
        });
        let info = pair.client.info(id).expect("the connect succeeds");
        let took = pair.now - began;
        assert!(info.state == StateName::Established && took <= DELAY * 4, "{:?} after {took:?}", info.state);
        refused += u32::from(took > DELAY * 2);
    }
    assert!(refused > 0, "no SYN looked old");
}
