//! Golden traces: what travels in a dozen exchanges, as text, in `tests/golden`. A change of the wire format or of what is
//! sent when shows as a difference there. `UPDATE=1 cargo test -p firstflight-stack --test stack golden` writes the files
//! anew; read the difference before you commit it.

use crate::certified;
use crate::pair::{End, Middlebox, Pair, key, policy};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnectConfig, ListenConfig, ListenerId};
use firstflight_wire::Pretty;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(50);
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
const RESPONSE: &[u8] = &[b'x'; 1000];

/// How the client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Handshake,
    FastOpen,
    /// With a certificate; whether the server is known to take one.
    Certificate {
        known: bool,
    },
}

struct Exchange {
    pair: Pair,
    listener: ListenerId,
    text: String,
}

impl Exchange {
    fn new(udp: bool, listen: impl FnOnce(&mut ListenConfig)) -> Self {
        let path = PathConfig::with_delay(DELAY);
        let mut pair = if udp { Pair::in_udp(path, 1, false) } else { Pair::new(path, 1, false, |_, _| {}) };
        pair.keep_log = true;
        let listener = pair.listen_with(listen);
        Self { pair, listener, text: String::new() }
    }

    fn fast_open(udp: bool) -> Self {
        Self::new(udp, |config| config.fast_open = Some(policy(key(1), 10)))
    }

    fn asap(udp: bool) -> Self {
        Self::new(udp, |config| config.asap = Some(certified::policy(&[1])))
    }

    /// A request and its response. The server closes first.
    fn visit(mut self, title: &str, by: By) -> Self {
        let p = &mut self.pair;
        let (began, from) = (p.now, p.log.len());
        let mut config = ConnectConfig::default().encapsulation(p.encapsulation).replay_safe(true);
        match by {
            By::Handshake => {}
            By::FastOpen => config.fast_open = true,
            By::Certificate { known } => {
                let certificate = certified::certificate(1, 2, p.client.config().addresses[0]);
                config.asap = Some(certified::certified(certificate, p.now));
                config.asap.as_mut().unwrap().known = known;
            }
        }
        let (id, _) = p.client.connect(p.server_addr(), REQUEST, &config, p.now).unwrap();
        let (listener, mut children, mut got) = (self.listener, Vec::new(), 0);
        p.run(Duration::from_secs(10), |p| {
            // A second attempt of the client makes another child.
            children.extend(std::iter::from_fn(|| p.server.accept(listener)).map(|id| (id, Vec::new())));
            children.retain_mut(|(child, request)| {
                request.extend(p.server_reads(*child));
                let whole = request == REQUEST;
                if whole {
                    p.server.write(*child, RESPONSE, p.now).unwrap();
                    p.server.release(*child, p.now);
                }
                !whole
            });
            got += p.client_reads(id).len();
            got == RESPONSE.len()
        });
        let outcome = p.client.info(id).unwrap().outcome;
        p.client.release(id, p.now);
        p.idle(Duration::from_secs(3));
        writeln!(self.text, "# {title}").unwrap();
        for (at, end, packet) in &p.log[from..] {
            let ms = (*at - began).as_micros() as f64 / 1000.0;
            writeln!(self.text, "{ms:8.1} {end:?} {}", Pretty(packet)).unwrap();
        }
        writeln!(self.text, "  outcome: {outcome:?}\n").unwrap();
        self
    }

    fn meets(mut self, middlebox: Middlebox) -> Self {
        self.pair.middlebox = Some(middlebox);
        self
    }

    /// Compares with the file of this name.
    #[track_caller]
    fn is(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            return std::fs::write(path, self.text).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        for (n, (before, now)) in before.lines().zip(self.text.lines()).enumerate() {
            assert_eq!(before, now, "line {} of {}; UPDATE=1 writes it anew", n + 1, path.display());
        }
        assert_eq!(before.lines().count(), self.text.lines().count(), "{}", path.display());
    }
}

/// Drops what `drops` says of the segments on IP.
fn dropping(mut drops: impl FnMut(End, &Segment<'_>) -> bool + 'static) -> Middlebox {
    Box::new(move |end, packet| {
        let ip = Packet::parse(packet).unwrap();
        !drops(end, &Segment::parse(ip.payload).unwrap())
    })
}

#[test]
fn the_ordinary_handshake() {
    Exchange::new(false, |_| ()).visit("request and response", By::Handshake).is("handshake");
}

#[test]
fn the_ordinary_handshake_in_udp() {
    Exchange::new(true, |_| ()).visit("request and response, in UDP", By::Handshake).is("udp-handshake");
}

#[test]
fn fast_open() {
    let title = ["the first visit asks for a cookie", "the next visit carries the request in the SYN"];
    Exchange::fast_open(false).visit(title[0], By::FastOpen).visit(title[1], By::FastOpen).is("fast-open");
}

#[test]
fn fast_open_in_udp() {
    let title = ["the first visit, in UDP", "the next visit, in UDP"];
    Exchange::fast_open(true).visit(title[0], By::FastOpen).visit(title[1], By::FastOpen).is("udp-fast-open");
}

#[test]
fn fast_open_with_a_stale_cookie() {
    let mut exchange = Exchange::fast_open(false).visit("the first visit", By::FastOpen);
    exchange.pair.server.set_fast_open(exchange.listener, Some(policy(key(9), 10)));
    exchange.visit("the server has another key", By::FastOpen).is("fast-open-stale");
}

#[test]
fn fast_open_where_syns_with_data_are_dropped() {
    Exchange::fast_open(false)
        .visit("the first visit", By::FastOpen)
        .meets(dropping(|_, segment| segment.flags.contains(Flags::SYN) && !segment.payload.is_empty()))
        .visit("SYNs with data are dropped", By::FastOpen)
        .visit("a plain SYN directly follows the next one", By::FastOpen)
        .is("fast-open-dropped");
}

#[test]
fn fast_open_where_all_data_after_it_is_dropped() {
    let mut marked = None;
    Exchange::fast_open(false)
        .visit("the first visit", By::FastOpen)
        .meets(dropping(move |end, segment| {
            if end == End::Client && segment.flags.contains(Flags::SYN) && !segment.payload.is_empty() {
                marked = Some(segment.src_port);
                return false;
            }
            let ours = [segment.src_port, segment.dst_port].iter().any(|port| Some(*port) == marked);
            ours && !segment.payload.is_empty()
        }))
        .visit("after a SYN with data, all that carries data is dropped", By::FastOpen)
        .is("fast-open-swallowed");
}

#[test]
fn fast_open_with_a_lost_syn_ack() {
    let mut lost = 0;
    Exchange::fast_open(false)
        .visit("the first visit", By::FastOpen)
        .meets(dropping(move |end, segment| {
            lost += u32::from(end == End::Server && segment.flags.contains(Flags::SYN));
            end == End::Server && segment.flags.contains(Flags::SYN) && lost == 1
        }))
        .visit("the first SYN-ACK is lost", By::FastOpen)
        .is("fast-open-lost-syn-ack");
}

#[test]
fn asap() {
    let (unknown, known) = (By::Certificate { known: false }, By::Certificate { known: true });
    Exchange::asap(false)
        .visit("an unknown server is asked", unknown)
        .visit("a known server gets certificate and request in the SYN", known)
        .is("asap");
}

#[test]
fn asap_in_udp() {
    let known = By::Certificate { known: true };
    Exchange::asap(true).visit("the first contact, in UDP", known).is("udp-asap");
}

#[test]
fn asap_at_a_server_that_trusts_another_verifier() {
    Exchange::new(false, |config| config.asap = Some(certified::policy(&[7])))
        .visit("the server trusts another verifier", By::Certificate { known: true })
        .is("asap-untrusted");
}

#[test]
fn a_syn_cookie() {
    Exchange::new(false, |config| config.syn_backlog = 0)
        .visit("no room for half-open connections", By::Handshake)
        .is("syn-cookie");
}
