//! Rows that the engine runs: TCP's handshake, connections that stay open, T/TCP, Fast Open and ASAP.

use super::memory::{FLIGHTS, live};
use super::tao::{self, Tao};
use super::{Base, ModelFailed, Numbers, PATIENCE, REQUEST, RESPONSE, WATCHED};
use crate::attack::world::spoof;
use crate::certified;
use crate::exchange::session::{Client, Server, Session};
use crate::exchange::{CLIENT, Exchange, MOVED, SERVER, Setting, VICTIM, keys};
use firstflight_credential::{Flow, asap::PrivateKey};
use firstflight_link::path::PathConfig;
use firstflight_stack::ConnectConfig;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, Flags, OptionsBuf, Segment};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// A way to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Handshake,
    Persistent,
    Ttcp,
    FastOpen,
    Asap,
}

/// Time between two visits: the first one is over.
const BETWEEN: Duration = Duration::from_secs(2);

/// A world, and the number of requests that its server has executed.
pub struct Scene {
    pub world: Exchange,
    pub executed: Rc<Cell<u32>>,
    kind: Kind,
    base: Base,
}

impl Scene {
    pub fn new(kind: Kind, base: Base) -> Result<Self, ModelFailed> {
        let executed = Rc::new(Cell::new(0));
        let count = Rc::clone(&executed);
        let path = PathConfig::with_delay(base.rtt / 2);
        let tcp = firstflight_tcp::Config::default().nodelay(true);
        let service =
            move || -> Box<dyn Session> { Box::new(Server::new(REQUEST.len(), RESPONSE, Rc::clone(&count))) };
        let setting = Setting { path, tcp, seed: base.seed };
        let made = Exchange::new(&setting, Box::new(service));
        let mut world = made.map_err(|error| ModelFailed("the path", error.to_string()))?;
        if kind == Kind::Ttcp {
            world.pair.between.leave = Some(tao::client());
            world.pair.between.gate = Some(Tao::gate());
        }
        Ok(Self { world, executed, kind, base })
    }

    fn config(&self) -> ConnectConfig {
        match self.kind {
            Kind::Handshake | Kind::Persistent => ConnectConfig::default(),
            Kind::Ttcp => ConnectConfig::default().fast_open(true).replay_safe(true).no_cookie(true),
            Kind::FastOpen => ConnectConfig::default().fast_open(true).replay_safe(true),
            Kind::Asap => self.world.certified(),
        }
    }

    /// Round trips of a visit, from this address.
    fn visit(&mut self, from: Option<std::net::IpAddr>) -> Result<f64, ModelFailed> {
        let config = self.config().local(from.map(|ip| SocketAddr::new(ip, 0)));
        let began = self.world.pair.now;
        let seen = self.world.visit(&REQUEST, &config, Client::new(RESPONSE), PATIENCE);
        let first =
            seen.first_byte.ok_or_else(|| ModelFailed("a visit", format!("{:?}: no byte", self.kind)))?;
        self.world.run(BETWEEN);
        Ok(self.base.trips(first - began))
    }

    /// A second request on a connection that is open.
    fn again(&mut self) -> Result<f64, ModelFailed> {
        let none = || ModelFailed("a visit", "no connection".into());
        let id = self.world.open(&REQUEST, &self.config()).ok_or_else(none)?;
        self.world.resume(id, Client::new(RESPONSE), PATIENCE);
        self.world.run(self.base.rtt);
        let began = self.world.pair.now;
        let seen = self.world.resume(id, Client::asking(REQUEST.to_vec(), RESPONSE), PATIENCE);
        Ok(self.base.trips(seen.first_byte.ok_or_else(none)? - began))
    }
}

/// All numbers of a row.
pub fn numbers(kind: Kind, base: Base) -> Result<Numbers, ModelFailed> {
    let mut scene = Scene::new(kind, base)?;
    let first = scene.visit(None)?;
    let later = if kind == Kind::Persistent { scene.again()? } else { scene.visit(None)? };
    let replayed = replayed(&mut scene)?;
    let moved = scene.visit(Some(MOVED))?;
    Ok(Numbers {
        first: Some(first),
        later: Some(later),
        blind: Some(reflected(kind, base, false)?),
        stolen: match kind {
            Kind::Handshake | Kind::Persistent | Kind::Ttcp => None,
            Kind::FastOpen | Kind::Asap => Some(reflected(kind, base, true)?),
        },
        memory: Some(memory(kind, base)?),
        replayed: Some(replayed),
        moved: Some(moved),
    })
}

/// Executions of copies of a visit's SYN: soon after the connection has ended, and after TIME-WAIT.
fn replayed(scene: &mut Scene) -> Result<u32, ModelFailed> {
    scene.world.pair.between.overheard = Some(Vec::new());
    scene.visit(None)?;
    let packets = scene.world.pair.between.overheard.take().unwrap_or_default();
    let syn = packets.into_iter().find(|packet| is_syn(packet));
    let syn = syn.ok_or_else(|| ModelFailed("a replay", "no SYN was overheard".into()))?;
    let before = scene.executed.get();
    for wait in [1, 100] {
        scene.world.run(Duration::from_secs(wait));
        scene.world.inject(&syn);
    }
    scene.world.run(Duration::from_secs(100));
    Ok(scene.executed.get() - before)
}

fn is_syn(packet: &[u8]) -> bool {
    let Ok(ip) = Packet::parse(packet) else { return false };
    Segment::parse(ip.payload)
        .is_ok_and(|segment| segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK))
}

/// A first flight in the victim's name, by an attacker who has the victim's credential or not. It comes from a port of
/// the victim.
fn forged(kind: Kind, port: u16, stolen: bool, random: &mut ChaCha20Rng) -> Vec<u8> {
    let mut options = OptionsBuf::new();
    let mut fits = options.mss(1460);
    let victim = SocketAddr::new(VICTIM, port);
    let isn = random.next_u32();
    let data: &[u8] = match kind {
        Kind::Handshake | Kind::Persistent => &[],
        Kind::Ttcp => {
            // Any larger count passes.
            fits &= options.raw(&tao::option(1 << 20));
            &REQUEST
        }
        Kind::FastOpen => {
            let of = if stolen { VICTIM } else { CLIENT };
            let cookie = keys().grant(&Flow { client: of, server: SERVER });
            fits &= options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
            &REQUEST
        }
        // With the victim's certificate but not its key, another key has to sign.
        Kind::Asap => return forged_block(victim, isn, stolen, random),
    };
    debug_assert!(fits, "at most 16 of 40 bytes");
    spoof(victim, SERVER, isn, &mut options, data)
}

fn forged_block(victim: SocketAddr, isn: u32, stolen: bool, random: &mut ChaCha20Rng) -> Vec<u8> {
    let now = crate::exchange::BEGIN;
    let unix_ms = crate::attack::world::clock_at(now).unix_ms;
    let of = if stolen { VICTIM } else { CLIENT };
    let (own, thief) = (PrivateKey::from_seed(&[21; 32]), PrivateKey::from_seed(&[22; 32]));
    let made = certified::certificate(own, of, (now, unix_ms / 1000), (certified::LASTS, 1));
    let Some(made) = made else { return Vec::new() };
    let body = *made.body();
    let forge = certified::Forge {
        body,
        digest: certified::digest(&body, VICTIM),
        key: &thief,
        address: VICTIM,
        requested_ms: unix_ms,
        padding: 0,
    };
    let block = forge.block(&REQUEST, random);
    certified::syn(victim, SERVER, isn, &block, &REQUEST)
}

/// The victim has visited the server, as a client of the same kind at its address would.
fn prepare(scene: &mut Scene) {
    if scene.kind == Kind::Ttcp {
        scene.world.pair.between.gate = Some(Tao::knowing(VICTIM).into_gate());
    }
}

/// Bytes that the victim gets for each byte of a first flight in its name.
fn reflected(kind: Kind, base: Base, stolen: bool) -> Result<f64, ModelFailed> {
    let mut scene = Scene::new(kind, base)?;
    prepare(&mut scene);
    let syn = forged(kind, 4000, stolen, &mut ChaCha20Rng::seed_from_u64(base.seed));
    scene.world.inject(&syn);
    scene.world.run(WATCHED);
    Ok(scene.world.pair.between.reflected as f64 / syn.len() as f64)
}

/// Bytes that the server keeps for each of many first flights without a credential.
fn memory(kind: Kind, base: Base) -> Result<f64, ModelFailed> {
    let held = |flights: u16| -> Result<f64, ModelFailed> {
        let mut scene = Scene::new(kind, base)?;
        prepare(&mut scene);
        let mut random = ChaCha20Rng::seed_from_u64(base.seed);
        let syns: Vec<Vec<u8>> = (0..flights).map(|n| forged(kind, 4000 + n, false, &mut random)).collect();
        let before = live();
        for syn in &syns {
            scene.world.inject(syn);
            scene.world.run(Duration::from_millis(1));
        }
        drop(syns);
        scene.world.run(base.rtt);
        Ok(live() as f64 - before as f64)
    };
    // Tables grow in steps; what the first flights need once is not counted.
    Ok(((held(2 * FLIGHTS)? - held(FLIGHTS)?) / f64::from(FLIGHTS)).round())
}
