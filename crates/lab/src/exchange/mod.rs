//! A client and a server on one path in virtual time, with any application at either end: the world of `transfer` and
//! `compare`.

pub mod session;
#[cfg(test)]
mod tests;

use crate::attack::world::clock_at;
use crate::certified;
use crate::pair::{Between, End, Pair};
use firstflight_credential::asap::{BudgetConfig, PrivateKey};
use firstflight_credential::{
    CookieKey, FastOpenPolicy, GuardKey, KeyRing, PendingLimit, ReplayTable, Scheme, Window,
};
use firstflight_link::path::{Duplex, PathConfig, PathError};
use firstflight_stack::{
    Config, ConnId, ConnectConfig, EncapsulationConfig, ListenConfig, ListenerId, Stack,
};
use firstflight_wire::Instant;
use firstflight_wire::ip::Packet;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use session::Session;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The client's address on another network.
pub const MOVED: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
/// An address whose packets only an attacker sends.
pub const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80));
pub const PORT: u16 = 80;
/// UDP ports of the encapsulation.
const CLIENT_UDP: u16 = 5000;
pub const SERVER_UDP: u16 = 4433;
/// When everything begins.
pub const BEGIN: Instant = Instant::from_secs(1000);
/// Most first flights of the server that wait for their ACK.
const PENDING: u32 = 1024;
/// Entries of the server's memory of requests.
const REPLAYS: usize = 1 << 10;
/// Length of a message of a transport like UDT's cookie exchange, with its headers: IP, UDP, UDT's header and handshake
/// (draft-gg-udt-03, 4.3).
const GREETING_LEN: usize = 20 + 8 + 16 + 48;
/// How long UDT waits before it repeats one (`CUDT::connect` of UDT 4).
const GREETING_EVERY: Duration = Duration::from_millis(250);

/// Changes a packet, and says whether it may pass.
pub type Gate = Box<dyn FnMut(&mut Vec<u8>) -> bool>;
/// Makes the application of each connection that the server accepts.
pub type Service = Box<dyn FnMut() -> Box<dyn Session>>;

pub struct Setting {
    /// Each direction of the path.
    pub path: PathConfig,
    /// Settings of all connections.
    pub tcp: firstflight_tcp::Config,
    /// Chooses what happens on the path, and the stacks' own numbers.
    pub seed: u64,
}

/// What changes and sees the packets.
#[derive(Default)]
pub struct Middle {
    /// In front of the server.
    pub gate: Option<Gate>,
    /// Changes the client's packets as they leave.
    pub leave: Option<Gate>,
    /// IP bytes that the server has sent to [`VICTIM`].
    pub reflected: u64,
    /// The client's packets, if they are kept.
    pub overheard: Option<Vec<Vec<u8>>>,
}

impl Between for Middle {
    fn leaves(&mut self, from: End, packet: &mut Vec<u8>) -> bool {
        match from {
            End::Client => {
                let passes = self.leave.as_mut().is_none_or(|leave| leave(packet));
                if let (true, Some(overheard)) = (passes, &mut self.overheard) {
                    overheard.push(packet.clone());
                }
                passes
            }
            End::Server => {
                let reflected = Packet::parse(packet).is_ok_and(|ip| ip.dst == VICTIM);
                self.reflected += if reflected { packet.len() as u64 } else { 0 };
                !reflected
            }
        }
    }

    fn arrives(&mut self, at: End, packet: &mut Vec<u8>) -> bool {
        at == End::Client || self.gate.as_mut().is_none_or(|gate| gate(packet))
    }
}

/// The world.
pub struct Exchange {
    pub pair: Pair<Middle>,
    /// The server's applications.
    pub serving: BTreeMap<ConnId, Box<dyn Session>>,
    listener: ListenerId,
    service: Service,
    certificate: Arc<firstflight_credential::asap::ClientCertificate>,
    random: ChaCha20Rng,
}

/// The server's cookie keys.
pub fn keys() -> KeyRing {
    KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]))
}

fn stack(ip: &[IpAddr], udp: u16, secret: u8, setting: &Setting) -> Stack {
    let mut bytes = [secret; 32];
    bytes[..8].copy_from_slice(&setting.seed.to_le_bytes());
    let mut config = Config::new(ip.to_vec(), bytes);
    config.encapsulation = Some(EncapsulationConfig::new(udp).probe(false));
    config.tcp = setting.tcp.clone();
    config.limits.asap = BudgetConfig::default();
    let mut stack = Stack::new(config, BEGIN);
    stack.handle_clock(clock_at(BEGIN));
    stack
}

impl Exchange {
    /// Makes both ends. `service` serves each connection.
    /// Errors: a setting of the path is not valid.
    pub fn new(setting: &Setting, service: Service) -> Result<Self, PathError> {
        let mut server = stack(&[SERVER], SERVER_UDP, 2, setting);
        let pending = Arc::new(PendingLimit::with_clients(PENDING, PENDING));
        let mut listen = ListenConfig::new(SocketAddr::new(SERVER, PORT));
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys()), Arc::clone(&pending)));
        let unix_ms = clock_at(BEGIN).unix_ms;
        let guard =
            ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, REPLAYS, unix_ms - 600_000);
        listen.asap = certified::policy(true, Arc::new(guard), &pending);
        let listener = server.listen(listen).unwrap_or_else(|_| unreachable!("nobody else listens"));
        let at = (BEGIN, unix_ms / 1000);
        let key = PrivateKey::from_seed(&[2; 32]);
        let certificate = certified::certificate(key, CLIENT, at, (certified::LASTS, 1))
            .unwrap_or_else(|| unreachable!("a certificate of constants"));
        let client = stack(&[CLIENT, MOVED], CLIENT_UDP, 1, setting);
        let wire = Duplex::symmetric(setting.path.clone(), setting.seed)?;
        Ok(Self {
            pair: Pair::new(BEGIN, (client, server), (wire.a_to_b, wire.b_to_a), Middle::default()),
            serving: BTreeMap::new(),
            listener,
            service,
            certificate: Arc::new(certificate),
            random: ChaCha20Rng::seed_from_u64(setting.seed),
        })
    }

    /// Settings of a connect with the client's certificate.
    pub fn certified(&self) -> ConnectConfig {
        certified::connect(&self.certificate, self.pair.now)
    }

    /// Connects with `data` as the beginning of the stream, runs `session` on the connection until it is over, and
    /// returns it. It is not over if the connection ended before, or after `patience`.
    pub fn visit<S: Session>(
        &mut self,
        data: &[u8],
        config: &ConnectConfig,
        session: S,
        patience: Duration,
    ) -> S {
        let Some(id) = self.open(data, config) else { return session };
        let session = self.resume(id, session, patience);
        self.pair.client.release(id, self.pair.now);
        session
    }

    /// One request on an open connection of [`Exchange::open`].
    pub fn resume<S: Session>(&mut self, id: ConnId, mut session: S, patience: Duration) -> S {
        let end = self.pair.now + patience;
        loop {
            self.serve();
            let over = session.run(&mut self.pair.client, id, self.pair.now);
            let over = over || self.pair.client.info(id).is_none();
            self.pair.flush();
            if over || !self.pair.advance_until(end) {
                return session;
            }
        }
    }

    /// Connects, with `data` as the beginning of the stream.
    pub fn open(&mut self, data: &[u8], config: &ConnectConfig) -> Option<ConnId> {
        let remote = SocketAddr::new(SERVER, PORT);
        self.pair.client.connect(remote, data, config, self.pair.now).ok().map(|(id, _)| id)
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.pair.now + time;
        while self.step(end) {}
        self.pair.now = end;
    }

    /// An exchange of messages before the connection, as of UDT's cookie: one round trip, repeated every 250 ms.
    /// False if no answer came.
    pub fn greet(&mut self, patience: Duration) -> bool {
        let end = self.pair.now + patience;
        while self.pair.now < end {
            self.pair.tell(End::Client, &[], GREETING_LEN);
            let again = (self.pair.now + GREETING_EVERY).min(end);
            while self.pair.advance_until(again) {
                while let Some((at, _)) = self.pair.told() {
                    match at {
                        End::Server => self.pair.tell(End::Server, &[], GREETING_LEN),
                        End::Client => return true,
                    }
                }
                self.serve();
                self.pair.flush();
            }
            self.pair.now = again;
        }
        false
    }

    /// Sends a packet to the server, as if from any address.
    pub fn inject(&mut self, packet: &[u8]) {
        self.pair.up.send(self.pair.now, packet);
    }

    /// Lets both ends act, then goes to the next event before `end`. False if there is none.
    fn step(&mut self, end: Instant) -> bool {
        self.serve();
        self.pair.flush();
        self.pair.advance_until(end)
    }

    /// The server verifies signatures, and its applications run.
    fn serve(&mut self) {
        let Pair { server, client, now, .. } = &mut self.pair;
        while let Some(flights) = server.poll_verifications() {
            let verdicts = flights.verify(&mut self.random);
            server.handle_verified(flights, &verdicts, *now);
        }
        while let Some(id) = server.accept(self.listener) {
            self.serving.insert(id, (self.service)());
        }
        while server.poll_event().is_some() {}
        while client.poll_event().is_some() {}
        self.serving.retain(|id, session| {
            let over = session.run(server, *id, *now) || server.info(*id).is_none();
            if over {
                server.release(*id, *now);
            }
            !over
        });
    }
}
