//! What both ends report about one first flight, and that counters and gauges agree.

use crate::pair::{Pair, key, policy};
use firstflight_credential::Reason::{
    DataNotAcknowledged, FailureMemory, NoCredential, NoData, NotRequested, PeerWithoutFastOpen,
    PendingLimit as Full, Policy, StaleOrWrongCredential, SynCookie, SynTimedOut, Unknown,
};
use firstflight_credential::{FastOpenPolicy, Outcome, Reason};
use firstflight_link::path::FilterVerdict;
use firstflight_stack::{Gauges, ListenConfig, ListenerId, Outcomes};
use std::time::Duration;

const DATA: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn by(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

/// A pair whose client has a cookie of key 1, and the listener that gave it.
fn visited() -> (Pair, ListenerId) {
    let mut p = Pair::perfect(Duration::from_millis(10));
    let listener = p.listen(Some(policy(key(1), 10)));
    both(&mut p, listener, DATA, true, NoCredential, NoCredential);
    (p, listener)
}

/// The same listener with other settings.
fn listen_again(p: &mut Pair, old: ListenerId, tune: impl FnOnce(&mut ListenConfig)) -> ListenerId {
    p.server.unlisten(old, p.now);
    p.listen_with(tune)
}

/// Connects. Checks what each end reports, and that each end counted that and nothing else.
fn ends(p: &mut Pair, listener: ListenerId, data: &[u8], fast_open: bool, client: Outcome, server: Outcome) {
    let before = (p.client.counters().client, p.server.counters().server);
    let ours = p.connect(data, fast_open);
    let theirs = p.accept(listener);
    p.connected(ours);
    p.idle(Duration::from_millis(100));
    assert_eq!(p.client.info(ours).unwrap().outcome, client, "the client's view");
    assert_eq!(p.server.info(theirs).unwrap().outcome, server, "the server's view");
    one_more(&before.0, &p.client.counters().client, client);
    one_more(&before.1, &p.server.counters().server, server);
    p.client.abort(ours, p.now);
    p.idle(Duration::from_millis(100));
    p.client.release(ours, p.now);
    p.server.release(theirs, p.now);
    p.flush();
    one_more(&before.0, &p.client.counters().client, client);
    one_more(&before.1, &p.server.counters().server, server);
}

fn both(p: &mut Pair, listener: ListenerId, data: &[u8], fast_open: bool, client: Reason, server: Reason) {
    ends(p, listener, data, fast_open, by(client), by(server));
}

fn one_more(before: &Outcomes, after: &Outcomes, of: Outcome) {
    for ((outcome, old), (_, new)) in before.iter().zip(after.iter()) {
        assert_eq!(new - old, u64::from(outcome == of), "{outcome:?}, counting {of:?}");
        assert_eq!(after.count(outcome), new);
    }
}

/// Both ends use the same name for what both see on the wire.
#[test]
fn both_ends_agree_on_what_both_see() {
    let (mut p, mut listener) = visited();
    both(&mut p, listener, DATA, false, NotRequested, NotRequested);
    ends(&mut p, listener, DATA, true, Outcome::Accepted, Outcome::Accepted);
    listener = listen_again(&mut p, listener, |c| c.fast_open = Some(policy(key(2), 10)));
    both(&mut p, listener, DATA, true, StaleOrWrongCredential, StaleOrWrongCredential);
    ends(&mut p, listener, DATA, true, Outcome::Accepted, Outcome::Accepted);
}

/// Only the server knows why it grants no cookie: RFC 7413 has no way to express it.
#[test]
fn a_server_that_declines_does_not_say_why() {
    let mut p = Pair::perfect(Duration::from_millis(10));
    let listener = p.listen(None);
    both(&mut p, listener, DATA, true, PeerWithoutFastOpen, Policy);

    let (mut p, listener) = visited();
    let listener = listen_again(&mut p, listener, |c| c.fast_open = Some(policy(key(1), 0)));
    both(&mut p, listener, DATA, true, DataNotAcknowledged, Full);
    p.client.forget_credentials();
    both(&mut p, listener, DATA, true, PeerWithoutFastOpen, Full);

    let (mut p, listener) = visited();
    let listener = listen_again(&mut p, listener, |c| {
        c.fast_open = Some(policy(key(1), 10));
        c.syn_backlog = 0;
    });
    both(&mut p, listener, DATA, true, DataNotAcknowledged, SynCookie);
}

/// The server never sees what the path removed, or what the client did not send.
#[test]
fn the_path_and_the_client_s_memory_are_seen_by_the_client_only() {
    let (mut p, listener) = visited();
    // SYNs with data are lost.
    p.wire.a_to_b.set_filter(Box::new(|packet| {
        let with_data = packet.windows(DATA.len()).any(|part| part == DATA) && packet[33] & 2 != 0;
        if with_data { FilterVerdict::Drop } else { FilterVerdict::Forward }
    }));
    (0..4).for_each(|_| both(&mut p, listener, DATA, true, SynTimedOut, NotRequested));
    p.wire.a_to_b.clear_filter();
    both(&mut p, listener, DATA, true, FailureMemory, NotRequested);
}

/// The server opens at once, as for a SYN with data, but the SYN carried none.
#[test]
fn a_cookie_without_data_is_no_data_for_the_client() {
    let (mut p, listener) = visited();
    ends(&mut p, listener, b"", true, by(NoData), Outcome::Accepted);
}

/// No answer comes. The client cannot know the outcome, and counts that once.
#[test]
fn a_first_flight_without_any_answer_is_unknown() {
    let (mut p, _) = visited();
    p.wire.b_to_a.set_filter(Box::new(|_| FilterVerdict::Drop));
    let before = p.client.counters().client;
    let id = p.connect(DATA, true);
    p.run(Duration::from_secs(600), |p| p.client.close_reason(id).is_some());
    one_more(&before, &p.client.counters().client, by(Unknown));
    assert_eq!(p.client.info(id).unwrap().outcome, by(Unknown));
}

#[test]
fn gauges_follow_what_is_held() {
    let (mut p, listener) = visited();
    let shared: FastOpenPolicy = policy(key(1), 7);
    let listener = listen_again(&mut p, listener, |c| c.fast_open = Some(shared.clone()));
    // A second listener with the same limit. The limit counts once.
    p.listen_with(|c| {
        c.local.set_port(81);
        c.fast_open = Some(shared);
    });
    let idle = p.server.gauges();
    assert_eq!((idle.pending, idle.pending_limit), (0, 7));
    // The client's ACKs are lost: the first flight stays pending, and the plain handshake stays in the SYN queue.
    let mut packets = 0;
    p.wire.a_to_b.set_filter(Box::new(move |_| {
        packets += 1;
        if packets <= 2 { FilterVerdict::Forward } else { FilterVerdict::Drop }
    }));
    let early = p.connect(DATA, true);
    p.connect(b"", false);
    p.idle(Duration::from_millis(25));
    let held = p.server.gauges();
    let wanted = Gauges {
        connections: idle.connections + 2,
        syn_queue: 1,
        accept_queue: 1,
        pending: 1,
        buffer_bytes: held.buffer_bytes,
        ..idle
    };
    assert_eq!(held, wanted);
    assert!(held.buffer_bytes >= DATA.len());
    // The first flight was accepted and then reset, so its permit is kept for a minute.
    p.server.accept(listener).unwrap();
    p.wire.a_to_b.clear_filter();
    p.client.abort(early, p.now);
    p.idle(Duration::from_millis(15));
    let reset = p.server.gauges();
    assert_eq!((reset.accept_queue, reset.pending, reset.quarantined), (0, 1, 1));
    p.idle(Duration::from_secs(61));
    let later = p.server.gauges();
    assert_eq!((later.pending, later.quarantined), (0, 0));
}

/// A log may contain a stack, but not what its streams carried: neither sent, received nor forgotten data.
#[test]
fn debug_shows_nothing_that_a_stream_carried() {
    let marker = b"\xfe\xca\xfe\xca";
    let mut pair = Pair::perfect(Duration::from_millis(10));
    let listener = pair.listen(None);
    let id = pair.connect(marker, false);
    pair.connected(id);
    pair.idle(Duration::from_millis(50));
    let child = pair.accept(listener);
    let unread = format!("{:?} {:?}", pair.client, pair.server);
    assert_eq!(pair.server_reads(child), marker);
    pair.server.write(child, marker, pair.now).unwrap();
    let forgotten_and_waiting = format!("{:?} {:?}", pair.client, pair.server);
    for text in [unread, forgotten_and_waiting] {
        assert!(text.contains("connections: 1") && text.len() < 20_000, "{text}");
        assert!(!text.contains("254, 202") && !text.contains("fecafeca"), "{text}");
    }
}
