//! What a client's SYN offers, to whom, and how much data rides behind it (`docs/spec/asap.md` §§6.1 to 6.3).

use crate::certified::{NOW_MS, certificate_with};
use crate::peer::{Peer, Seg, primed, seg};
use crate::visitor::{AFTER, DATA, Visit, asap_option, end, outcome, reply_with, visit, visit_with};
use firstflight_credential::asap::Identity;
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::ConnectConfig;
use firstflight_wire::Instant;
use firstflight_wire::asap::Status;
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use std::sync::Arc;
use std::time::Duration;

const HOUR_MS: u64 = 3_600_000;

fn syn_ack(ack: u32) -> Seg {
    seg().syn().ack(ack).mss(1460)
}

/// A server that is not known to understand ASAP.
fn unknown(config: &mut ConnectConfig) {
    config.asap.as_mut().unwrap().known = false;
}

/// The server answers a probe, so it understands ASAP.
fn shows_that_it_understands(p: &mut Peer) {
    let flight = visit(p, unknown);
    assert_eq!(asap_option(&flight.syn), Some(false));
    p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
    p.expect().is_ack().seq(1).data(DATA);
    assert_eq!(outcome(p, flight.id), Outcome::Handshake(Reason::CapabilityUnknown));
    end(p, flight.id);
}

/// Whether the next visit to a server that is not configured as capable brings a block.
fn brings_block(p: &mut Peer) -> bool {
    let flight = visit(p, unknown);
    let offered = asap_option(&flight.syn).expect("nothing is offered");
    end(p, flight.id);
    offered
}

// --- to whom -------------------------------------------------------------------------------------------------

#[test]
fn an_unknown_server_gets_a_probe_and_no_payload() {
    let mut p = Peer::new();
    let flight = visit(&mut p, unknown);
    assert_eq!((asap_option(&flight.syn), flight.syn.data.len()), (Some(false), 0));
    // The retransmitted SYN has no option.
    let again = p.sends_at(1_500, &[1000]).remove(0);
    assert_eq!((asap_option(&again), again.data.len()), (None, 0));
}

#[test]
fn a_server_that_answered_is_remembered_for_a_day() {
    let mut p = Peer::new();
    shows_that_it_understands(&mut p);
    assert!(brings_block(&mut p));
    p.at(24 * HOUR_MS - 1000);
    assert!(brings_block(&mut p));
    p.at(24 * HOUR_MS + 1000);
    assert!(!brings_block(&mut p));
}

/// Each answer is valid for a day.
#[test]
fn an_answer_to_a_block_is_remembered_too() {
    for status in [Status::Accepted, Status::Overloaded, Status::Expired] {
        let mut p = Peer::new();
        shows_that_it_understands(&mut p);
        p.at(20 * HOUR_MS);
        let flight = visit(&mut p, unknown);
        let acked = if status == Status::Accepted { AFTER } else { 1 };
        p.send(syn_ack(acked).option(&reply_with(status, flight.tag)));
        end(&mut p, flight.id);
        p.at(40 * HOUR_MS);
        assert!(brings_block(&mut p), "{status:?}");
    }
}

/// The memory is per identity and address.
#[test]
fn it_is_remembered_for_one_identity_and_address() {
    let mut p = Peer::new();
    shows_that_it_understands(&mut p);
    let other = visit(&mut p, |config| {
        unknown(config);
        config.asap.as_mut().unwrap().identity = Identity::name("www.example.net", 80);
    });
    assert_eq!(asap_option(&other.syn), Some(false));
    end(&mut p, other.id);
    p.moves_to("10.0.0.3");
    assert!(!brings_block(&mut p));
    p.moves_to("10.0.0.2");
    assert!(brings_block(&mut p));
    p.stack.forget_credentials();
    assert!(!brings_block(&mut p), "and not on another network");
}

#[test]
fn a_server_that_says_nothing_is_asked_again() {
    for reply in [Vec::new(), reply_with(Status::Disabled, [0; 2])] {
        let mut p = Peer::new();
        let flight = visit(&mut p, unknown);
        p.send(syn_ack(1).option(&reply));
        p.expect().is_ack().data(DATA);
        assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::CapabilityUnknown));
        end(&mut p, flight.id);
        assert!(!brings_block(&mut p));
    }
}

/// The capability was learnt. Then the path removed the reply, or the server no longer understands ASAP.
#[test]
fn a_doubtful_server_is_asked_again() {
    for (acked, status) in [(AFTER, None), (1, Some(Status::Disabled))] {
        let mut p = Peer::new();
        shows_that_it_understands(&mut p);
        let flight = visit(&mut p, unknown);
        let option = status.map_or(Vec::new(), |status| reply_with(status, flight.tag));
        p.send(syn_ack(acked).option(&option));
        end(&mut p, flight.id);
        assert!(!brings_block(&mut p));
        // The server is probed even if a DNS record says that it understands, until its own answer has said so.
        let published = visit(&mut p, |_| {});
        assert_eq!(asap_option(&published.syn), Some(false));
        p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
        end(&mut p, published.id);
        assert!(brings_block(&mut p));
    }
}

/// A lost probe says nothing, so the known capability stays known.
#[test]
fn an_answer_to_a_plain_syn_says_nothing() {
    let mut p = Peer::new();
    shows_that_it_understands(&mut p);
    let flight = visit(&mut p, |config| {
        unknown(config);
        config.replay_safe = false;
    });
    assert_eq!(asap_option(&flight.syn), Some(false), "what must not run twice waits");
    p.pass(60);
    assert_eq!(asap_option(&p.expect().is_syn().empty()), None);
    p.send(syn_ack(1));
    end(&mut p, flight.id);
    p.pass(61_000);
    assert!(brings_block(&mut p));
}

#[test]
fn without_data_or_leave_no_block_goes() {
    let mut p = Peer::new();
    let empty = visit_with(&mut p, b"", |_| {});
    assert_eq!(asap_option(&empty.syn), Some(false));
    end(&mut p, empty.id);
    let careful = visit(&mut p, |config| config.replay_safe = false);
    assert_eq!(asap_option(&careful.syn), Some(false));
    end(&mut p, careful.id);
    let once = visit(&mut p, |config| {
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
    });
    assert_eq!(asap_option(&once.syn), Some(true));
}

#[test]
fn a_certificate_that_is_over_is_not_shown() {
    let address = Peer::new().local().ip();
    for (ms, shown) in [(1_799_000, true), (1_800_000, false), (3_000_000, false)] {
        let mut p = Peer::new();
        p.at(ms);
        let flight = visit(&mut p, |config| {
            let certificate = certificate_with(1, 2, address, (NOW_MS / 1000) as u32, 1800, 1);
            config.asap.as_mut().unwrap().certificate = Arc::new(certificate);
        });
        assert_eq!(asap_option(&flight.syn), Some(shown), "after {ms} ms");
    }
}

/// t_req counts from the certificate's beginning on its own clock, whatever the wall clock says.
#[test]
fn the_wall_clock_does_not_enter_a_request() {
    let made = |unix_ms: u64| {
        let mut p = Peer::new();
        let mono = p.now;
        let clock = firstflight_wire::Clock { mono, unix_ms, uncertainty: Duration::ZERO };
        p.stack.handle_clock(clock);
        let flight = visit(&mut p, |config| {
            config.asap.as_mut().unwrap().now = Instant::ZERO + Duration::from_millis(1234);
        });
        let stamp: [u8; 6] = flight.syn.data[118..124].try_into().unwrap();
        stamp.iter().fold(0, |stamp, byte| stamp << 8 | u64::from(*byte))
    };
    assert_eq!(made(NOW_MS), NOW_MS + 1234);
    assert_eq!(made(NOW_MS + 86_400_000), NOW_MS + 1234);
    assert_eq!(made(0), NOW_MS + 1234);
}

/// Each request has its own id.
#[test]
fn ids_do_not_come_twice() {
    let mut p = Peer::new();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let flight = visit(&mut p, |_| {});
        assert!(ids.insert(flight.syn.data[124..132].to_vec()));
        end(&mut p, flight.id);
    }
}

// --- together with Fast Open -----------------------------------------------------------------------------------

/// If both credentials are available, the cookie is used, because it is cheaper.
#[test]
fn a_cookie_goes_before_a_certificate() {
    let mut p = primed::primed();
    let flight = visit(&mut p, |config| config.fast_open = true);
    assert_eq!(asap_option(&flight.syn), None);
    let syn = primed::with_cookie(flight.syn);
    assert_eq!(syn.data, DATA, "and no block");
}

/// Without a cookie, the SYN with the block requests one. A cookie is never shown together with a block.
#[test]
fn a_block_may_ask_for_a_cookie() {
    let mut p = Peer::new();
    let flight = visit(&mut p, |config| config.fast_open = true);
    assert_eq!(asap_option(&flight.syn), Some(true));
    assert_eq!(flight.syn.fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
    p.send(syn_ack(AFTER).option(&flight.accepted()).cookie(&primed::COOKIE));
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
    end(&mut p, flight.id);
    let next = visit(&mut p, |config| config.fast_open = true);
    assert_eq!(asap_option(&next.syn), None);
    primed::with_cookie(next.syn);
}

/// Data that must not run twice uses a certificate, even if there is a cookie. The cookie is kept for later, also
/// if it is valid once.
#[test]
fn a_cookie_that_is_not_shown_is_kept() {
    let mut p = primed::primed();
    // The server takes the data and grants another cookie. Each is valid once.
    let flight = visit(&mut p, |config| (config.fast_open, config.asap) = (true, None));
    primed::with_cookie(flight.syn);
    p.send(syn_ack(1 + DATA.len() as u32).cookie(b"another!"));
    end(&mut p, flight.id);
    for fast_open in [true, false, true] {
        let flight = visit(&mut p, |config| {
            (config.fast_open, config.replay_safe) = (fast_open, false);
            config.asap.as_mut().unwrap().once = true;
        });
        assert_eq!(asap_option(&flight.syn), Some(true));
        let shown = matches!(flight.syn.fast_open, Some(FastOpen::Cookie(..)));
        assert!(!shown, "a cookie beside a block");
        end(&mut p, flight.id);
    }
    let flight = visit(&mut p, |config| (config.fast_open, config.asap) = (true, None));
    let Some(FastOpen::Cookie(_, cookie)) = flight.syn.fast_open else { panic!("the cookie is lost") };
    assert_eq!(cookie.as_bytes(), b"another!");
}

// --- how much ------------------------------------------------------------------------------------------------

/// Sends `len` bytes. Returns how many ride behind the block.
fn rides(p: &mut Peer, len: usize, mss: Option<u16>) -> (Visit, usize) {
    let data = vec![b'x'; len];
    let flight = visit_with(p, &data, |config| config.asap.as_mut().unwrap().mss = mss);
    assert_eq!(asap_option(&flight.syn), Some(true));
    let rode = flight.syn.data.len() - 196;
    (flight, rode)
}

#[test]
fn without_an_mss_the_families_default_is_the_limit() {
    assert_eq!(rides(&mut Peer::new(), 5000, None).1, 300);
    assert_eq!(rides(&mut Peer::v6(|_| {}), 5000, None).1, 984);
    assert_eq!(rides(&mut Peer::new(), 299, None).1, 299);
}

#[test]
fn a_published_or_cached_mss_is_the_limit() {
    assert_eq!(rides(&mut Peer::new(), 5000, Some(1400)).1, 1400 - 40 - 196);
    assert_eq!(rides(&mut Peer::new(), 5000, Some(u16::MAX)).1, 1460 - 40 - 196, "and the path's");
    let mut p = Peer::new();
    let (flight, _) = rides(&mut p, 10, None);
    p.send(seg().syn().ack(1 + 196 + 10).mss(1000).option(&flight.accepted()));
    end(&mut p, flight.id);
    assert_eq!(rides(&mut p, 5000, None).1, 1000 - 40 - 196);
}

/// A block without data behind it is useless.
#[test]
fn no_room_for_data_is_no_block() {
    for (mss, block) in [(0, false), (88, false), (236, false), (237, true)] {
        let flight = visit(&mut Peer::new(), |config| config.asap.as_mut().unwrap().mss = Some(mss));
        assert_eq!(asap_option(&flight.syn), Some(block), "{mss}");
    }
}

/// Only the data that rides is signed. The rest follows, once, whether the block is accepted or not.
#[test]
fn data_that_does_not_fit_follows() {
    for accepted in [true, false] {
        let mut p = Peer::new();
        let (flight, rode) = rides(&mut p, 700, None);
        assert_eq!(rode, 300);
        let begins = if accepted { 1 + 196 } else { 1 };
        if accepted {
            p.send(syn_ack(1 + 196 + 300).option(&flight.accepted()));
        } else {
            p.send(syn_ack(1).option(&reply_with(Status::Expired, flight.tag)));
        }
        let sent = p.drain();
        let mut next = if accepted { begins + 300 } else { begins };
        for got in sent.iter().filter(|got| !got.data.is_empty()) {
            assert_eq!(got.seq, next);
            next += got.data.len() as u32;
        }
        assert_eq!(next, begins + 700);
        p.send(seg().seq(1).ack(begins + 700));
        assert_eq!(p.stack.info(flight.id).unwrap().totals.bytes_acked, 700);
    }
}

/// A small send buffer takes less than the SYN has room for. Only the data that rides is signed.
#[test]
fn a_small_send_buffer_signs_what_it_takes() {
    let mut p = Peer::with(|config| config.tcp.set_send_buffer(100));
    let data = vec![b'x'; 500];
    let address = p.local().ip();
    let certificate = certificate_with(1, 2, address, (NOW_MS / 1000) as u32, 1800, 1);
    let asap = Some(crate::certified::certified(certificate, Instant::ZERO));
    let config = ConnectConfig::default().asap(asap).replay_safe(true);
    p.port = crate::peer::PORT;
    let (_, taken) = p.stack.connect(p.remote(), &data, &config, p.now).unwrap();
    let syn = p.expect();
    assert_eq!((taken, syn.data.len()), (100, 196 + 100));
}

/// Three stale cookies in a row say nothing about certificates, which the server has shown that it understands.
#[test]
fn stale_cookies_do_not_keep_a_certificate_back() {
    let mut p = primed::primed();
    shows_that_it_understands(&mut p);
    for n in 0..3 {
        let config = ConnectConfig::default().fast_open(true).replay_safe(true);
        let id = p.connect_with(primed::DATA, &config);
        p.expect().is_syn().data(primed::DATA);
        p.send(syn_ack(1).cookie(&[n; 8]));
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::StaleOrWrongCredential));
        end(&mut p, id);
    }
    let flight = visit(&mut p, |config| {
        config.fast_open = true;
        unknown(config);
    });
    assert_eq!(asap_option(&flight.syn), Some(true));
    p.send(syn_ack(AFTER).option(&flight.accepted()));
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
}

/// The server sees this client under another address than the certificate's verifier did.
#[test]
fn a_certificate_for_another_address_is_shown_once() {
    let mut p = Peer::new();
    let flight = visit(&mut p, |_| {});
    assert_eq!(asap_option(&flight.syn), Some(true));
    p.send(syn_ack(1).option(&reply_with(Status::AddressMismatch, flight.tag)));
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::AddressMismatch));
    end(&mut p, flight.id);
    // It is not shown again, and the reason stays true.
    let flight = visit(&mut p, |_| {});
    assert_eq!(asap_option(&flight.syn), Some(false));
    p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
    assert_eq!(outcome(&p, flight.id), Outcome::Handshake(Reason::AddressMismatch));
    end(&mut p, flight.id);
    // A certificate for another address is shown.
    let other = certificate_with(1, 2, "198.51.100.7".parse().unwrap(), (NOW_MS / 1000) as u32, 200_000, 1);
    let flight = visit(&mut p, |config| config.asap.as_mut().unwrap().certificate = Arc::new(other));
    assert_eq!(asap_option(&flight.syn), Some(true));
    end(&mut p, flight.id);
    // The first one is shown again when the address translator may have chosen another address.
    p.pass(600_000);
    assert_eq!(asap_option(&visit(&mut p, |_| {}).syn), Some(true));
}
