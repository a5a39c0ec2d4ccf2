//! SYN cookies (RFC 4987 §3.6): a listener under attack keeps nothing and loses little.

use crate::peer::{CLIENT_PORT, Peer, seg};
use firstflight_stack::StateName;

/// RFC 4987 §3.6: no state is kept; the ACK brings it back, and the timestamp carries the options.
#[test]
fn syn_cookies_when_the_syn_queue_is_full() {
    for timestamps in [true, false] {
        let mut p = Peer::new();
        let listener = p.listen_with(|c| c.syn_backlog = 1);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack();
        p.flow(CLIENT_PORT + 1, 5_000);
        let syn = seg().syn().mss(1400).sack_ok().scale(7);
        p.send(if timestamps { syn.ts(100) } else { syn });
        let syn_ack = p.expect().syn_ack().ack(1);
        assert_eq!(syn_ack.scale.is_some(), timestamps);
        assert_eq!(syn_ack.sack_ok, timestamps);
        assert_eq!(syn_ack.ts.map(|t| t.echo), timestamps.then_some(100));
        assert_eq!(p.stack.connections(), 1);
        assert_eq!(p.stack.counters().syn_cookies_sent, 1);
        p.pass(50);
        let with = |s: crate::peer::Seg, n| if timestamps { s.ts(n) } else { s };
        p.send(with(seg().seq(1).ack(1).win(1_000), 101));
        let id = p.accept(listener);
        assert_eq!(p.state(id), StateName::Established);
        assert_eq!(p.stack.info(id).unwrap().mss, 1400);
        p.send(with(seg().seq(1).ack(1).data(b"late").win(1_000), 102));
        assert_eq!(p.read(id), b"late");
        p.drain();
        // The scale came back with the timestamp: 1,000 is 128,000, so cwnd limits, else 1,000.
        p.write(id, &[0; 20_000]);
        let got = p.drain();
        let bytes: usize = got.iter().map(|g| g.data.len()).sum();
        assert_eq!(bytes > 1_000, timestamps, "{bytes}");
        assert_eq!(got[0].ts.is_some(), timestamps);
        if timestamps {
            // SACK-permitted came back, too.
            p.send(seg().seq(9).ack(1).ts(103).data(b"y"));
            assert_eq!(p.drain().pop().unwrap().sack, [(9, 10)]);
        }
    }
}

/// The SYN-ACK of a cookie offers what the child will do: it uses the listener's settings, not the stack's.
#[test]
fn syn_cookie_speaks_for_the_listeners_settings() {
    let mut p = Peer::new();
    let own = firstflight_tcp::Config::default().timestamps(false).mss(1000);
    p.listen_with(|c| {
        c.syn_backlog = 0;
        c.tcp = Some(std::sync::Arc::new(own));
    });
    p.send(seg().syn().mss(1460).ts(5));
    let syn_ack = p.expect().syn_ack();
    assert_eq!((syn_ack.ts, syn_ack.mss), (None, Some(1000)));
}

/// An ACK with a guessed cookie has a chance of one in 2^28; without recent cookies it has none.
#[test]
fn forged_acks_do_not_open_connections() {
    let mut p = Peer::new();
    let listener = p.listen_with(|c| c.syn_backlog = 0);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    for wrong in [0, 2, 0x0100_0001, 0x8000_0001] {
        p.send(seg().seq(1).ack(wrong));
        p.expect().is_rst().seq(wrong);
    }
    p.send(seg().seq(2).ack(1));
    p.expect().is_rst();
    p.flow(CLIENT_PORT + 1, crate::peer::PEER_ISN);
    p.send(seg().seq(1).ack(1));
    p.expect().is_rst();
    p.nothing_to_accept(listener);
    // The cookie is old: it lives for at most two periods of 64 s.
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.pass(129_000);
    p.send(seg().seq(1).ack(1));
    p.expect().is_rst();
    p.nothing_to_accept(listener);
}

/// The ACK of a cookie must not bypass a full accept queue.
#[test]
fn syn_cookie_ack_waits_for_room_in_the_accept_queue() {
    let mut p = Peer::new();
    let listener = p.listen_with(|c| {
        c.syn_backlog = 0;
        c.backlog = 1;
    });
    for port in [CLIENT_PORT, CLIENT_PORT + 1] {
        p.flow(port, 77);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack();
        p.send(seg().seq(1).ack(1));
    }
    p.quiet();
    assert_eq!(p.stack.queues(listener), Some((1, 0)));
    p.accept(listener);
    p.send(seg().seq(1).ack(1).data(b"again"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"again");
}
