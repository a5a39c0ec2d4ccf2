//! The client: its questions, and when it connects.

use super::RequestWay;
use super::names::{NAME, asked, carrying, query};
use super::thesis;
use super::world::{CLIENT, CLIENT_UDP, FIRST_LINE, PORT, REQUEST, REST, SERVER, SERVER_UDP, stack};
use crate::certified;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_dns::{ConnectionInfo, Name};
use firstflight_stack::{ConnId, ConnectConfig, FirstData, Stack};
use firstflight_tcp::congestion::InitialWindow;
use firstflight_wire::Instant;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::SocketAddr;
use std::sync::Arc;

/// Id of the question for the address.
const PLAIN: u16 = 1;
/// Id of the question in the thesis' form.
const CARRIED: u16 = 2;

pub struct Client {
    stack: Stack,
    certificate: Arc<ClientCertificate>,
    dns_path_key: [u8; 32],
    random: ChaCha20Rng,
    way: RequestWay,
    cookie: bool,
    id: Option<ConnId>,
    /// A round trip must come before the connect.
    greeting: bool,
    first_byte: Option<Instant>,
    whole: Option<Instant>,
}

fn remote() -> SocketAddr {
    SocketAddr::new(SERVER.into(), PORT)
}

impl Client {
    /// A client with a certificate. `dns_path_key` is what the server publishes.
    pub fn new(dns_path_key: [u8; 32], unix_s: u64, window: InitialWindow) -> Self {
        let key = PrivateKey::from_seed(&[2; 32]);
        let at = (Instant::ZERO, unix_s);
        let certificate = certified::certificate(key, CLIENT.into(), at, (certified::LASTS, 1))
            .unwrap_or_else(|| unreachable!("a certificate of constants"));
        Self {
            stack: stack(CLIENT.into(), CLIENT_UDP, 1, window),
            certificate: Arc::new(certificate),
            dns_path_key,
            random: ChaCha20Rng::from_seed([31; 32]),
            way: RequestWay::Today,
            cookie: false,
            id: None,
            greeting: false,
            first_byte: None,
            whole: None,
        }
    }

    pub const fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    pub const fn whole(&self) -> Option<Instant> {
        self.whole
    }

    /// Forgets the previous page.
    pub fn forget(&mut self) {
        (self.first_byte, self.whole, self.id) = (None, None, None);
    }

    /// Starts a page. Returns the questions to send. If `cookie` is set, requests a cookie.
    pub fn begin(&mut self, way: RequestWay, now: Instant, cookie: bool) -> Vec<Vec<u8>> {
        (self.way, self.cookie) = (way, cookie);
        let mut questions = Vec::new();
        questions.extend(NAME.parse().ok().and_then(|name: Name| query(PLAIN, &name)));
        match way {
            RequestWay::DnsPath | RequestWay::NewZone | RequestWay::Sdns => {
                questions.extend(self.fragments(REQUEST, now))
            }
            RequestWay::FirstLine => {
                questions.extend(self.fragments(FIRST_LINE, now));
                if let Some(id) = self.id {
                    // It leaves once the server has answered.
                    let _ = self.stack.write(id, &REST, now);
                }
            }
            RequestWay::Thesis(_) => questions.extend(self.thesis(now)),
            RequestWay::Today | RequestWay::UdtLike | RequestWay::FastOpen | RequestWay::Asap => {}
        }
        questions
    }

    fn config(&self, now: Instant) -> ConnectConfig {
        let asap = certified::connect(&self.certificate, now);
        match self.way {
            RequestWay::Today => ConnectConfig::default().fast_open(self.cookie),
            RequestWay::FastOpen => ConnectConfig::default().fast_open(true).replay_safe(true),
            RequestWay::UdtLike => ConnectConfig::default().encapsulation(Some(SERVER_UDP)),
            RequestWay::Asap | RequestWay::Thesis(_) => asap,
            RequestWay::DnsPath | RequestWay::NewZone | RequestWay::Sdns | RequestWay::FirstLine => {
                asap.encapsulation(Some(SERVER_UDP))
            }
        }
    }

    fn fragments(&mut self, data: &[u8], now: Instant) -> Vec<Vec<u8>> {
        let Ok(in_lookup) =
            self.stack.connect_in_lookup(PORT, FirstData::whole(data), &self.config(now), now)
        else {
            return Vec::new();
        };
        let seen = SocketAddr::new(CLIENT.into(), CLIENT_UDP);
        self.id = Some(in_lookup.id);
        carrying(&mut self.stack, &in_lookup, seen, self.dns_path_key, &mut self.random).unwrap_or_default()
    }

    fn thesis(&mut self, now: Instant) -> Option<Vec<u8>> {
        let in_lookup = self
            .stack
            .lab_connect_in_lookup_on_ip(PORT, FirstData::whole(REQUEST), &self.config(now), now)
            .ok()?;
        let seen = SocketAddr::new(CLIENT.into(), CLIENT_UDP);
        let info = ConnectionInfo::from_segment(seen, &in_lookup.segment).ok()?;
        let mut bytes = [0; ConnectionInfo::MAX_LEN];
        let len = info.emit(&mut bytes).ok()?;
        self.stack.lab_expect_unproved_answer(in_lookup.id);
        self.id = Some(in_lookup.id);
        query(CARRIED, &thesis::name(bytes.get(..len)?)?)
    }

    /// Handles an answer of the resolver.
    pub fn handle_answer(&mut self, now: Instant, message: &[u8]) {
        if asked(message).is_some_and(|(id, _)| id == PLAIN) {
            self.resolved(now);
        }
    }

    /// The address is known, so the request is sent to it.
    pub fn resolved(&mut self, now: Instant) {
        if let (true, Some(id)) = (self.way.inside(), self.id) {
            // Nothing is sent if the answer has already arrived (`docs/spec/dns-path.md` §2.1).
            let _ = self.stack.send_direct(id, SERVER.into(), now);
            return;
        }
        if self.way == RequestWay::UdtLike {
            self.greeting = true;
        } else {
            self.connect(now);
        }
    }

    /// Whether a round trip for a cookie must come before the connect.
    pub const fn greets(&self) -> bool {
        self.greeting
    }

    /// The server's answer to that.
    pub fn greeted(&mut self, now: Instant) {
        if std::mem::take(&mut self.greeting) {
            self.connect(now);
        }
    }

    fn connect(&mut self, now: Instant) {
        let config = self.config(now);
        let made = self.stack.connect(remote(), REQUEST, &config, now);
        self.id = made.ok().map(|(id, _)| id);
    }

    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        self.stack.handle_packet(now, packet);
        self.read(now);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.stack.handle_timeout(now);
    }

    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        while self.stack.poll_event().is_some() {}
        self.stack.poll_transmit(now, out)
    }

    fn read(&mut self, now: Instant) {
        let Some(id) = self.id else { return };
        let mut buffer = [0; 4096];
        loop {
            match self.stack.read(id, &mut buffer, now) {
                Ok(0) => {
                    self.whole = self.whole.or(Some(now));
                    self.stack.release(id, now);
                    return;
                }
                Ok(_) => self.first_byte = self.first_byte.or(Some(now)),
                Err(_) => return,
            }
        }
    }
}
