//! One load of a page: the browser, the line, the servers and the resolver.

use super::browser::{Browser, Counts, Jitter, Overhead};
use super::inside::{self, Fronts};
use super::line::Line;
use super::page::{Kind, Page};
use super::server::Servers;
use super::trace::Trace;
use super::way::{Guesses, LoadWay, PacketOpening, sizes};
use crate::certified;
use crate::pair::{End, Pair};
use firstflight_credential::asap::{AsapPolicy, ClientCertificate, PrivateKey};
use firstflight_credential::{
    CookieKey, FastOpenPolicy, GuardKey, KeyRing, PendingLimit, ReplayTable, Scheme, Window,
};
use firstflight_stack::{Config, ConnectConfig, EncapsulationConfig, ListenConfig, ListenerId, Stack};
use firstflight_tcp::congestion::{Algorithm, InitialWindow};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// UDP ports of connections that begin inside a lookup.
pub const CLIENT_UDP: u16 = 5000;
pub const SERVER_UDP: u16 = 4433;
/// The wall clock when a load begins, Unix seconds.
pub const UNIX_S: u64 = 1_800_000_000;
/// A page that takes longer never loads.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long after the visit that got the cookies the page is loaded.
const LATER: Duration = Duration::from_secs(100);

/// What one load depends on, apart from page and way.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub line: Line,
    pub window: InitialWindow,
    pub congestion: Algorithm,
    /// Share of PRECONNECT's guesses that are right, from 0 to 1.
    pub hits: f64,
    /// Mean time that a server thinks about a resource; four times as long about the document.
    pub think: Duration,
    pub overhead: Overhead,
}

/// What one load took.
#[derive(Debug, Clone)]
pub struct Load {
    /// From the address that was typed to the `load` event.
    pub time: Duration,
    pub counts: Counts,
    /// Packets of the client, and those without payload.
    pub sent: u64,
    /// Packets that a full buffer dropped.
    pub dropped: u64,
    /// First flights that servers got from name servers.
    pub by_lookup: usize,
    /// What happened when.
    pub trace: Trace,
}

impl Load {
    /// Connections that carried no request.
    pub fn unused(&self) -> usize {
        self.trace.connections.iter().filter(|connection| connection.requests == 0).count()
    }
}

/// Random times of one run. They depend on the run alone, so that all ways meet the same.
pub fn jitter(page: &Page, think: Duration, seed: u64, run: u32) -> Jitter {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    random.set_stream(u64::from(run));
    let mut unit = || f64::from(random.next_u32()) / f64::from(u32::MAX);
    let mut times = Jitter { think: Vec::new(), work: Vec::new(), places: Vec::new(), guess: Vec::new() };
    for resource in &page.resources {
        let factor = if resource.kind == Kind::Html { 4.0 } else { 1.0 };
        let (mean, factor) = resource.think.map_or((think, factor), |measured| (measured, 1.0));
        times.think.push(mean.mul_f64(factor * (0.5 + unit())));
        times.work.push(resource.work().mul_f64(0.9 + 0.2 * unit()));
    }
    times.guess.extend((0..page.hosts).map(|_| unit()));
    times.places.extend(page.resources.iter().map(|_| random.next_u32()));
    times
}

/// The servers' addresses; with guesses, as many again that nothing needs.
fn addresses(page: &Page, way: LoadWay) -> Vec<SocketAddr> {
    (0..page.hosts * if way.guesses == Guesses::None { 1 } else { 2 })
        .map(|host| match u8::try_from(1 + host) {
            Ok(last @ 1..=254) => Ipv4Addr::new(198, 51, 100, last),
            // A page of many hosts: the network for benchmarks (RFC 2544).
            _ => Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + host as u32),
        })
        .map(|address| SocketAddr::new(address.into(), 80))
        .collect()
}

/// With TCP in UDP at `encapsulation`, if that is set.
fn stack(addresses: Vec<IpAddr>, setting: &Setting, secret: u8, encapsulation: Option<u16>) -> Stack {
    let mut config = Config::new(addresses, [secret; 32]);
    config.encapsulation = encapsulation.map(|port| EncapsulationConfig::new(port).probe(false));
    config.tcp.set_nodelay(true);
    config.mtu = setting.line.mtu;
    config.tcp.set_initial_window(setting.window);
    config.tcp.set_congestion(setting.congestion);
    let mut stack = Stack::new(config, Instant::ZERO);
    stack.handle_clock(Clock { mono: Instant::ZERO, unix_ms: UNIX_S * 1000, uncertainty: Duration::ZERO });
    stack
}

/// Each host has its own limits, as it has its own machine.
fn listen(server: &mut Stack, addresses: &[SocketAddr]) -> Vec<ListenerId> {
    let keys = Arc::new(KeyRing::new(Scheme::default(), CookieKey::from_bytes([5; 16])));
    let listeners = addresses.iter().map(|address| {
        let mut config = ListenConfig::new(*address);
        config.fast_open =
            Some(FastOpenPolicy::new(Arc::clone(&keys), Arc::new(PendingLimit::with_clients(64, 64))));
        let guard =
            ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 12, (UNIX_S - 600) * 1000);
        let policy = certified::policy(true, Arc::new(guard), &Arc::new(PendingLimit::with_clients(64, 64)));
        let relayed = Some(Arc::new(PendingLimit::with_clients(64, 4)));
        config.asap = policy.map(|policy| AsapPolicy { relayed, ..policy });
        server.listen(config).unwrap_or_else(|_| unreachable!("each address is listened on once"))
    });
    listeners.collect()
}

/// The settings of the browser's connections.
fn connect(way: LoadWay, mtu: usize, certificate: &Arc<ClientCertificate>, now: Instant) -> ConnectConfig {
    let config = match way.opening {
        PacketOpening::Handshake | PacketOpening::Bound => ConnectConfig::default(),
        PacketOpening::FastOpen | PacketOpening::ColdFastOpen => {
            ConnectConfig::default().fast_open(true).replay_safe(true)
        }
        PacketOpening::Asap | PacketOpening::AsapInside => {
            let mut config = certified::connect(certificate, now);
            if let Some(asap) = &mut config.asap {
                asap.mss = u16::try_from(mtu.saturating_sub(40)).ok();
            }
            config
        }
    };
    config.syn_timeout((!way.measured).then_some(Duration::from_secs(1)))
}

/// Loads `page`. `None` if it never loads.
pub fn load(page: &Page, way: LoadWay, setting: &Setting, jitter: &Jitter, seed: u64) -> Option<Load> {
    load_on(page, way, setting, jitter, seed, |_| ())
}

/// Like [`load`], on a line that is changed first.
pub fn load_on(
    page: &Page,
    way: LoadWay,
    setting: &Setting,
    jitter: &Jitter,
    seed: u64,
    change: impl FnOnce(&mut Pair),
) -> Option<Load> {
    let addresses = addresses(page, way);
    let [client_udp, server_udp] =
        [CLIENT_UDP, SERVER_UDP].map(|port| (way.opening == PacketOpening::AsapInside).then_some(port));
    let client = stack(vec![CLIENT], setting, 1, client_udp);
    let mut server = stack(addresses.iter().map(SocketAddr::ip).collect(), setting, 2, server_udp);
    let listeners = listen(&mut server, &addresses);
    let mut servers = Servers::new(listeners, way);
    let mut net = Pair::new(Instant::ZERO, (client, server), setting.line.paths(seed).ok()?, ());
    if way.opening == PacketOpening::FastOpen {
        visit(&mut net, &mut servers, &addresses);
    }
    change(&mut net);
    let key = PrivateKey::from_seed(&[2; 32]);
    let at = (net.now, UNIX_S + net.now.as_millis() / 1000);
    let certificate = Arc::new(certified::certificate(key, CLIENT, at, (certified::LASTS, 1))?);
    let began = net.now;
    let (sent, dropped) = (net.up.counters().sent, drops(&net));
    let settings = |now| connect(way, setting.line.mtu, &certificate, now);
    let (mut fronts, sealer) = Fronts::new(&addresses)?;
    let mut browser = Browser::new(page, way, jitter, setting.overhead, began, &addresses, settings);
    browser.seal(sealer);
    match way.guesses {
        Guesses::None => {}
        Guesses::Some => browser.guess(setting.hits, &mut net),
        Guesses::All => browser.guess(1.0, &mut net),
    }
    // What the resolver asks the name servers, and their answers, if it has nothing cached.
    let far = if way.uncached { setting.line.rtt / 2 } else { Duration::ZERO };
    let (mut asked, mut answers) = (VecDeque::new(), VecDeque::new());
    loop {
        while let Some((end, message)) = net.told() {
            let host = host(&message)?;
            match end {
                End::Server => asked.push_back((net.now + far, host, message)),
                End::Client if inside::has_address(&message) => browser.resolved(host, &mut net),
                End::Client => {}
            }
        }
        while let Some((_, host, message)) = asked.pop_front_if(|(at, ..)| *at <= net.now) {
            let (answer, len) = match fronts.handle(host, &message, &mut net) {
                Some(len) => (inside::name_answer(host), len),
                None => (message, sizes::LOOKUP.1),
            };
            answers.push_back((net.now + far, answer, len));
        }
        while let Some((_, answer, len)) = answers.pop_front_if(|(at, ..)| *at <= net.now) {
            net.tell(End::Server, &answer, len);
        }
        browser.run(&mut net);
        servers.run(&mut net);
        if browser.has_loaded() {
            break;
        }
        let waits = [asked.front().map(|(at, ..)| *at), answers.front().map(|(at, ..)| *at)];
        let wake = waits.into_iter().chain([browser.wake(), servers.wake(net.now)]).flatten().min();
        if !net.step(wake) || net.now > began + PATIENCE {
            return None;
        }
        drain(&mut net);
    }
    Some(Load {
        time: net.now - began,
        counts: browser.counts,
        sent: net.up.counters().sent - sent,
        dropped: drops(&net) - dropped,
        by_lookup: fronts.handed,
        trace: browser.trace.since(began),
    })
}

fn drops(net: &Pair) -> u64 {
    net.up.counters().queue_dropped + net.down.counters().queue_dropped
}

fn host(message: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(message.get(..4)?.try_into().ok()?) as usize)
}

/// The browser and the servers look at their connections at every step, so they need no events.
fn drain(net: &mut Pair) {
    while net.client.poll_event().is_some() {}
    while net.server.poll_event().is_some() {}
}

/// An earlier visit, which gets a cookie of each host.
fn visit(net: &mut Pair, servers: &mut Servers, addresses: &[SocketAddr]) {
    let config = ConnectConfig::default().fast_open(true);
    let opened =
        addresses.iter().filter_map(|address| net.client.connect(*address, b"", &config, net.now).ok());
    let ids: Vec<_> = opened.map(|(id, _)| id).collect();
    let until = net.now + LATER;
    let mut released = false;
    while net.now < until {
        servers.run(net);
        if !released && ids.iter().all(|id| net.client.info(*id).is_some_and(|info| info.confirmed)) {
            ids.iter().for_each(|id| net.client.release(*id, net.now));
            released = true;
        }
        net.step(Some(until));
        drain(net);
    }
}
