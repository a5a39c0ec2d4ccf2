//! Data that must run at most once, in UDP: it is executed once, whatever is lost, late, copied or moved.
#![allow(clippy::needless_range_loop, reason = "the body lends the world that owns the connections")]

use crate::certified::{certificate, certified, policy};
use crate::pair::{End, Pair, SERVER_UDP};
use crate::translator::translate;
use firstflight_credential::{Outcome, Reason};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, ListenerId};
use firstflight_wire::encapsulation::{self, Carried};
use firstflight_wire::ip::{self, Ecn, Packet, Protocol};
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp::{self, Datagram};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(50);
const REQUEST: &[u8] = b"POST /pay HTTP/1.0\r\n\r\n";

fn new() -> (Pair, ListenerId) {
    let mut pair = Pair::in_udp(PathConfig::with_delay(DELAY), 1, false);
    let listener = pair.listen_with(|config| config.asap = Some(policy(&[1])));
    (pair, listener)
}

/// Connects with data that must not run twice, to a server that is known to run it once.
fn visit(p: &mut Pair) -> ConnId {
    let address = p.client.config().addresses[0];
    let mut asap = certified(certificate(1, 2, address), p.now);
    asap.once = true;
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(false).encapsulation(Some(SERVER_UDP));
    p.client.connect(p.server_addr(), REQUEST, &config, p.now).unwrap().0
}

fn segment_flags(packet: &[u8]) -> Option<(Flags, usize)> {
    let ip = Packet::parse(packet).ok()?;
    let datagram = Datagram::parse(ip.payload).ok()?;
    let Ok(Carried::Segment(bytes)) = Carried::parse(datagram.payload) else { return None };
    let segment = Segment::parse(bytes).ok()?;
    Some((segment.flags, segment.payload.len()))
}

/// What the application does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Nothing,
    Abort,
    Answer,
    AnswerAndClose,
}

/// Runs the application for this time. Returns the number of requests that it has read completely.
fn run(p: &mut Pair, listener: ListenerId, time: Duration, then: Then) -> usize {
    let end = p.now + time;
    let mut open: Vec<(ConnId, Vec<u8>)> = Vec::new();
    let mut executed = 0;
    while p.now < end {
        let step = p.now + Duration::from_millis(5);
        p.idle(step - p.now);
        while let Some(id) = p.server.accept(listener) {
            open.push((id, Vec::new()));
        }
        let now = p.now;
        for (id, bytes) in &mut open {
            let got = p.server_reads(*id);
            if got.is_empty() {
                continue;
            }
            bytes.extend(got);
            if bytes == REQUEST {
                executed += 1;
                match then {
                    Then::Nothing => {}
                    Then::Abort => {
                        p.server.abort(*id, now);
                        p.server.release(*id, now);
                    }
                    Then::Answer => {
                        let _ = p.server.write(*id, b"done", now);
                    }
                    Then::AnswerAndClose => {
                        let _ = p.server.write(*id, b"done", now);
                        let _ = p.server.shutdown(*id, now);
                        p.server.release(*id, now);
                    }
                }
            }
        }
    }
    executed
}

/// Control: the request is executed once.
#[test]
fn control() {
    for then in [Then::Nothing, Then::Abort, Then::Answer, Then::AnswerAndClose] {
        let (mut p, listener) = new();
        visit(&mut p);
        assert_eq!(run(&mut p, listener, Duration::from_secs(70), then), 1, "{then:?}");
    }
}

/// The translator forgets its mapping between the SYN and the plain SYN after it.
#[test]
fn a_rebinding_between_the_syn_and_the_plain_syn() {
    for then in [Then::Nothing, Then::Answer, Then::AnswerAndClose] {
        let (mut p, listener) = new();
        let translator = translate(&mut p);
        visit(&mut p);
        p.idle(DELAY / 2);
        // The SYN is in flight. The answer to it meets a mapping that no longer exists.
        translator.rebind();
        assert_eq!(run(&mut p, listener, Duration::from_secs(20), then), 1, "{then:?}");
    }
}

/// Nothing comes back for `dead`. Then the path works again.
fn silence(dead: Duration, then: Then) -> usize {
    let (mut p, listener) = new();
    let (ends, clock) = (p.now + dead, Rc::new(Cell::new(p.now)));
    let own = Rc::clone(&clock);
    p.middlebox = Some(Box::new(move |end, _| end == End::Client || own.get() >= ends));
    visit(&mut p);
    let mut executed = 0;
    let mut open: Vec<(ConnId, Vec<u8>)> = Vec::new();
    for _ in 0..(150 * 100) {
        clock.set(p.now);
        p.idle(Duration::from_millis(10));
        while let Some(id) = p.server.accept(listener) {
            open.push((id, Vec::new()));
        }
        let now = p.now;
        for n in 0..open.len() {
            let got = p.server_reads(open[n].0);
            if got.is_empty() {
                continue;
            }
            open[n].1.extend(got);
            if open[n].1 == REQUEST {
                executed += 1;
                let id = open[n].0;
                if then == Then::AnswerAndClose {
                    let _ = p.server.write(id, b"done", now);
                    let _ = p.server.shutdown(id, now);
                    p.server.release(id, now);
                }
            }
        }
    }
    executed
}

#[test]
fn silence_of_35_s() {
    for then in [Then::Nothing, Then::AnswerAndClose] {
        assert_eq!(silence(Duration::from_secs(35), then), 1, "{then:?}");
    }
}

/// The server gives the half-open child up after about 63 s. The client sends SYNs until 63 s, and waits until 127
/// s.
#[test]
fn silence_of_62_s() {
    for then in [Then::Nothing, Then::AnswerAndClose] {
        assert_eq!(silence(Duration::from_millis(62_000), then), 1, "{then:?}");
    }
}

#[test]
fn silence_of_each_length() {
    let twice: Vec<u64> = (1..130).filter(|s| silence(Duration::from_secs(*s), Then::Nothing) != 1).collect();
    assert!(twice.is_empty(), "executed twice after a silence of {twice:?} s");
}

/// The application ends the connection while nothing comes back: SYN-ACK and RST are lost, and no child remains to
/// answer the plain SYN.
#[test]
fn an_early_child_that_is_aborted_in_a_short_silence() {
    let (mut p, listener) = new();
    let (ends, clock) = (p.now + Duration::from_millis(500), Rc::new(Cell::new(p.now)));
    let own = Rc::clone(&clock);
    p.middlebox = Some(Box::new(move |end, _| end == End::Client || own.get() >= ends));
    visit(&mut p);
    let mut executed = run(&mut p, listener, Duration::from_millis(500), Then::Abort);
    clock.set(p.now);
    executed += run(&mut p, listener, Duration::from_secs(20), Then::Abort);
    assert_eq!(executed, 1);
}

/// The SYN with the block is delayed by `late`, and the plain SYN overtakes it.
fn late_block(late: Duration, client_closes_first: bool) -> usize {
    let (mut p, listener) = new();
    let held: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let own = Rc::clone(&held);
    p.middlebox = Some(Box::new(move |end, packet| {
        let carries = segment_flags(packet).is_some_and(|(flags, len)| flags.contains(Flags::SYN) && len > 0);
        if end == End::Client && carries && own.borrow().is_none() {
            *own.borrow_mut() = Some(packet.to_vec());
            return false;
        }
        true
    }));
    let id = visit(&mut p);
    let (began, mut executed, mut open) = (p.now, 0, Vec::<(ConnId, Vec<u8>)>::new());
    let mut sent = false;
    for _ in 0..6_000 {
        p.idle(Duration::from_millis(5));
        if !sent && p.now - began >= late {
            sent = true;
            let packet = held.borrow().clone().unwrap();
            p.server.handle_packet(p.now, &packet);
            p.verify();
        }
        while let Some(child) = p.server.accept(listener) {
            open.push((child, Vec::new()));
        }
        let now = p.now;
        for n in 0..open.len() {
            let (child, got) = (open[n].0, p.server_reads(open[n].0));
            if !got.is_empty() {
                open[n].1.extend(got);
                if open[n].1 == REQUEST {
                    executed += 1;
                    let _ = p.server.write(child, b"done", now);
                    if !client_closes_first {
                        let _ = p.server.shutdown(child, now);
                        p.server.release(child, now);
                    }
                }
            } else if p.server.read(child, &mut [0; 8], now) == Ok(0) {
                let _ = p.server.shutdown(child, now);
                p.server.release(child, now);
            }
        }
        let now = p.now;
        let read = p.client_reads(id);
        if read == b"done" || p.client.read(id, &mut [0; 8], now) == Ok(0) {
            let _ = p.client.shutdown(id, now);
            p.client.release(id, now);
        }
    }
    executed
}

/// Before, during and after the handshake of the plain SYN, and while the connection is open.
#[test]
fn a_late_block_while_the_connection_is_there() {
    for ms in (900..1_300).step_by(20) {
        for first in [false, true] {
            assert_eq!(late_block(Duration::from_millis(ms), first), 1, "{ms} ms, client first: {first}");
        }
    }
}

/// The server has closed first, so it has a TIME-WAIT of the four-tuple.
#[test]
fn a_late_block_after_the_server_closed_first() {
    for ms in [1_500, 2_000, 5_000, 20_000] {
        assert_eq!(late_block(Duration::from_millis(ms), false), 1, "{ms} ms");
    }
}

/// The client has closed first, so the server has no state of the four-tuple.
#[test]
fn a_late_block_after_the_client_closed_first() {
    for ms in [1_500, 2_000, 5_000, 20_000] {
        assert_eq!(late_block(Duration::from_millis(ms), true), 1, "{ms} ms");
    }
}

/// The server's SYN-ACK is lost and its application aborts, so a RST comes. `delay` decides whether it comes before
/// or after the client has sent the plain SYN, 1 s after the first one.
fn aborted(delay: Duration) -> usize {
    let (mut p, listener) = new();
    p.wire = firstflight_link::path::Duplex::symmetric(PathConfig::with_delay(delay), 1).unwrap();
    let lost = Cell::new(false);
    p.middlebox = Some(Box::new(move |end, packet| {
        let syn_ack = segment_flags(packet).is_some_and(|(flags, _)| flags.contains(Flags::SYN));
        !(end == End::Server && syn_ack && !lost.replace(true))
    }));
    visit(&mut p);
    run(&mut p, listener, Duration::from_secs(20), Then::Abort)
}

#[test]
fn an_early_child_that_is_aborted_and_its_reset_before_the_timeout() {
    assert_eq!(aborted(Duration::from_millis(50)), 1);
}

#[test]
fn an_early_child_that_is_aborted_and_its_reset_after_the_timeout() {
    assert_eq!(aborted(Duration::from_millis(600)), 1);
}

/// The network makes a copy of the SYN, or an eavesdropper sends one. The SYN-ACK is lost, the application aborts,
/// its RST arrives, and the copy reaches the server before the client's plain SYN does. The guard has seen the
/// request, and the client gets a SYN-ACK with this status, which echoes its first SYN.
#[test]
fn a_copy_of_the_syn_between_the_reset_and_the_plain_syn() {
    let (mut p, listener) = new();
    let lost = Cell::new(false);
    let copy: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let own = Rc::clone(&copy);
    p.middlebox = Some(Box::new(move |end, packet| {
        let Some((flags, len)) = segment_flags(packet) else { return true };
        let syn = flags.contains(Flags::SYN);
        if end == End::Client && syn && len > 0 {
            *own.borrow_mut() = Some(packet.to_vec());
        }
        !(end == End::Server && syn && !lost.replace(true))
    }));
    visit(&mut p);
    // The SYN has reached the server after 50 ms, and the RST the client after about 105 ms.
    let mut executed = run(&mut p, listener, Duration::from_millis(115), Then::Abort);
    let packet = copy.borrow().clone().unwrap();
    p.server.handle_packet(p.now, &packet);
    p.verify();
    executed += run(&mut p, listener, Duration::from_secs(20), Then::Abort);
    assert_eq!(executed, 1);
}

/// The same segment in a packet from another UDP port, or as a plain SYN from the same one.
fn altered(packet: &[u8], port: Option<u16>) -> Vec<u8> {
    let ip = Packet::parse(packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    let Ok(Carried::Segment(bytes)) = Carried::parse(datagram.payload) else { panic!() };
    let mut segment = bytes.to_vec();
    if port.is_none() {
        segment.truncate(20);
        segment[12] = 5 << 4;
    }
    let mut out = vec![0; udp::HEADER + encapsulation::HEADER];
    encapsulation::emit_segment_header(&mut out[udp::HEADER..]).unwrap();
    out.extend_from_slice(&segment);
    let header = udp::Header { src_port: port.unwrap_or(datagram.src_port), dst_port: datagram.dst_port };
    header.emit(out.len() - udp::HEADER, &mut out).unwrap();
    udp::fill_checksum(&mut out, ip.src, ip.dst);
    let header = ip::Header {
        src: ip.src,
        dst: ip.dst,
        protocol: Protocol::Udp,
        hop_limit: 64,
        ecn: Ecn::default(),
        dont_fragment: true,
        identification: 0,
    };
    let mut packet = vec![0; header.len() + out.len()];
    let at = header.emit(out.len(), &mut packet).unwrap();
    packet[at..].copy_from_slice(&out);
    packet
}

/// The client's SYN is lost. An eavesdropper sends a copy from another port, which is executed, and then a plain SYN in the
/// client's name. Its SYN-ACK has no reply, and in UDP nothing removes one on the way.
#[test]
fn a_plain_syn_in_the_clients_name_behind_a_copy() {
    let (mut p, listener) = new();
    let own: Rc<RefCell<Option<Vec<u8>>>> = Rc::default();
    let kept = Rc::clone(&own);
    p.middlebox = Some(Box::new(move |end, packet| {
        let syn = segment_flags(packet).is_some_and(|(flags, len)| flags.contains(Flags::SYN) && len > 0);
        let is_own = end == End::Client && syn;
        if is_own {
            *kept.borrow_mut() = Some(packet.to_vec());
        }
        !is_own
    }));
    let id = visit(&mut p);
    p.idle(Duration::from_millis(1));
    let syn = own.borrow().clone().unwrap();
    p.server.handle_packet(p.now, &altered(&syn, Some(30_000)));
    p.verify();
    let mut executed = run(&mut p, listener, Duration::from_millis(100), Then::Answer);
    assert_eq!(executed, 1);
    p.server.handle_packet(p.now, &altered(&syn, None));
    executed += run(&mut p, listener, Duration::from_secs(70), Then::Answer);
    assert_eq!(executed, 1);
    assert_eq!(p.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::Unknown));
}
