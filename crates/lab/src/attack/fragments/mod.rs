//! Floods of IP fragments that never form complete packets, while honest clients upload through a router that
//! fragments.

mod cost;
mod forged;

use super::world::{PORT, address};
use crate::table::Table;
use firstflight_link::path::{Path, PathConfig};
use firstflight_stack::{
    Config, ConnId, ConnectConfig, Counters, FragmentLimits, ListenConfig, ListenerId, Stack,
};
use firstflight_wire::Instant;
use firstflight_wire::ip::Packet;
use forged::{Kind, client_at, honest};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of an honest upload, and how many there are.
const UPLOAD: usize = 200_000;
const UPLOADS: u32 = 50;
/// MTU of the router's next link.
const MTU: usize = 1000;
/// Honest clients' rate, bits a second, and the delay of their paths each way.
const RATE_UP: u64 = 10_000_000;
const DELAY: Duration = Duration::from_millis(10);
/// Time step of the simulation.
const TICK: Duration = Duration::from_micros(250);
/// Fragments a second.
const RATE: u32 = 20_000;
/// How long uploads may go on after the flood.
const AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The kind of fragments; `None` means no flood.
    pub kind: Option<Kind>,
    /// Fragments a second.
    pub rate: u32,
    /// The duration, seconds.
    pub seconds: u64,
    /// The server's limits.
    pub limits: FragmentLimits,
}

/// The result of a flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FragmentDamage {
    /// The maximum number of bytes that incomplete packets used at one time.
    pub peak: usize,
    /// The maximum number of incomplete packets at one time.
    pub packets: usize,
    /// Bytes still in use after the last packet had expired.
    pub left: usize,
    /// Honest uploads that were complete at the latest ten seconds after the flood.
    pub done: usize,
    /// The slowest of them, seconds.
    pub slowest: f64,
    /// The server's counters.
    pub counters: Counters,
}

/// A client that uploads.
struct Upload {
    stack: Stack,
    up: Path,
    down: Path,
    id: ConnId,
    began: Instant,
    /// Bytes not written yet, and bytes that the server has read.
    left: usize,
    arrived: usize,
    done: Option<Instant>,
}

impl Upload {
    /// Client number `n` connects.
    fn new(n: u32, now: Instant) -> Option<Self> {
        let mut stack = Stack::new(Config::new(vec![honest(n)], [n as u8 + 1; 32]), now);
        let server = SocketAddr::new(address(1), PORT);
        let (id, _) = stack.connect(server, &[], &ConnectConfig::default(), now).ok()?;
        let down = PathConfig::with_delay(DELAY);
        let up = down.clone().rate_bits_per_s(Some(RATE_UP)).mtu(MTU).fragments(true);
        let (up, down) = (Path::new(up, 1).ok()?, Path::new(down, 1).ok()?);
        Some(Self { stack, up, down, id, began: now, left: UPLOAD, arrived: 0, done: None })
    }

    /// Receives, writes and sends what is possible now.
    fn work(&mut self, now: Instant, out: &mut [u8]) {
        while let Some(packet) = self.down.poll_deliver(now) {
            self.stack.handle_packet(now, &packet);
        }
        self.stack.handle_timeout(now);
        while self.stack.poll_event().is_some() {}
        let block = [b'u'; 16_384];
        while let Some(part) = block.get(..block.len().min(self.left)).filter(|part| !part.is_empty())
            && let Ok(written @ 1..) = self.stack.write(self.id, part, now)
        {
            self.left -= written;
        }
        while let Some(len) = self.stack.poll_transmit(now, out) {
            self.up.send(now, &out[..len]);
        }
    }
}

/// The server and its honest clients.
struct FragmentSite {
    now: Instant,
    server: Stack,
    listener: ListenerId,
    uploads: Vec<Upload>,
    open: BTreeMap<ConnId, usize>,
    out: Vec<u8>,
}

impl FragmentSite {
    fn new(limits: FragmentLimits) -> Option<Self> {
        let now = Instant::from_secs(1000);
        let mut config = Config::new(vec![address(1)], [7; 32]);
        config.limits.fragments = limits;
        let mut server = Stack::new(config, now);
        let listener = server.listen(ListenConfig::new(SocketAddr::new(address(1), PORT))).ok()?;
        Some(Self { now, server, listener, uploads: Vec::new(), open: BTreeMap::new(), out: vec![0; 2048] })
    }

    /// Runs one time step for the server and all clients.
    fn tick(&mut self) {
        self.now += TICK;
        let Self { now, server, uploads, open, out, .. } = self;
        for upload in uploads.iter_mut().filter(|upload| upload.done.is_none()) {
            upload.work(*now, out);
            while let Some(packet) = upload.up.poll_deliver(*now) {
                server.handle_packet(*now, &packet);
            }
        }
        server.handle_timeout(*now);
        while server.poll_event().is_some() {}
        while let Some(id) = server.accept(self.listener) {
            let client = server.info(id).and_then(|info| client_at(info.remote.ip()));
            open.extend(client.map(|client| (id, client)));
        }
        let mut block = [0; 16_384];
        open.retain(|id, client| {
            let Some(upload) = uploads.get_mut(*client) else { return false };
            while let Ok(read @ 1..) = server.read(*id, &mut block, *now) {
                upload.arrived += read;
            }
            if upload.arrived == UPLOAD {
                upload.done = Some(*now);
                server.release(*id, *now);
            }
            upload.done.is_none()
        });
        while let Some(len) = server.poll_transmit(*now, out) {
            let client = Packet::parse(&out[..len]).ok().and_then(|packet| client_at(packet.dst));
            if let Some(upload) = client.and_then(|client| uploads.get_mut(client)) {
                upload.down.send(*now, &out[..len]);
            }
        }
    }
}

impl Flood {
    /// Runs the flood and the uploads.
    pub fn run(self) -> Option<FragmentDamage> {
        let mut site = FragmentSite::new(self.limits)?;
        let mut random = ChaCha20Rng::seed_from_u64(1);
        let began = site.now;
        let end = began + Duration::from_secs(self.seconds);
        let every = Duration::from_secs(self.seconds) / UPLOADS;
        let (mut sent, mut damage) = (0, None::<FragmentDamage>);
        while site.now < end + AFTER {
            let passed = site.now - began;
            let begun = site.uploads.len() as u32;
            if begun < UPLOADS && passed >= every * begun {
                site.uploads.push(Upload::new(begun, site.now)?);
            }
            let due = (passed.min(end - began).as_secs_f64() * f64::from(self.rate)) as u32;
            for n in self.kind.map_or(0..0, |_| sent..due) {
                let packet = self.kind?.packet(n, &mut random);
                site.server.handle_packet(site.now, &packet);
                sent = n + 1;
            }
            site.tick();
            let gauges = site.server.gauges();
            let (peak, packets) = (gauges.fragment_bytes, gauges.fragmented);
            let damage = damage.get_or_insert_with(|| FragmentDamage {
                peak: 0,
                packets: 0,
                left: 0,
                done: 0,
                slowest: 0.0,
                counters: Counters::default(),
            });
            damage.peak = damage.peak.max(peak);
            damage.packets = damage.packets.max(packets);
        }
        let mut damage = damage?;
        let times =
            site.uploads.iter().filter_map(|upload| Some((upload.done? - upload.began).as_secs_f64()));
        damage.done = times.clone().count();
        damage.slowest = times.fold(0.0, f64::max);
        site.server.handle_timeout(site.now + self.limits.lifetime);
        damage.left = site.server.gauges().fragment_bytes;
        damage.counters = *site.server.counters();
        Some(damage)
    }
}

/// The rows of `attack fragments`.
pub fn tables(seconds: u64) -> Vec<Table> {
    let base = Flood { kind: None, rate: RATE, seconds, limits: FragmentLimits::default() };
    let of = |kind| Flood { kind: Some(kind), ..base };
    let rows = [
        ("none", base),
        ("none; reassembly is off", Flood { limits: FragmentLimits::OFF, ..base }),
        ("first fragments of 1,400 bytes, one source", of(Kind::First)),
        ("first fragments of 1,400 bytes, 50,000 sources", of(Kind::FirstOfMany)),
        (
            "first fragments of 1,400 bytes, 50,000 sources, 500,000/s",
            Flood { rate: 25 * RATE, ..of(Kind::FirstOfMany) },
        ),
        ("first fragments of 8 bytes, one source", of(Kind::Tiny)),
        ("last 8 bytes of 1,500, 50,000 sources", of(Kind::TinyLastOfMany)),
        ("pieces of 8 bytes of the same packets", of(Kind::Pieces)),
        ("overlaps", of(Kind::Overlaps)),
        ("one fragment, again and again", of(Kind::Copies)),
        ("with honest clients' addresses", of(Kind::Impersonating)),
    ];
    let mut table = Table::new(
        format!(
            "{RATE} fragments/s for {seconds} s; {UPLOADS} honest uploads of {UPLOAD} bytes through a router that \
             fragments"
        ),
        &[
            "attack",
            "packets max",
            "MB max",
            "MB 15 s later",
            "evicted",
            "timed out",
            "uploads done",
            "slowest, s",
        ],
    );
    for (name, flood) in rows {
        let Some(d) = flood.run() else { continue };
        table.row([
            name.into(),
            d.packets.into(),
            (d.peak as f64 / 1e6).into(),
            (d.left as f64 / 1e6).into(),
            d.counters.reassembly_evicted.into(),
            d.counters.reassembly_timeouts.into(),
            format!("{}/{UPLOADS}", d.done).into(),
            if d.done > 0 { d.slowest.into() } else { "".into() },
        ]);
    }
    vec![table, cost::table()]
}

#[cfg(test)]
mod tests;
