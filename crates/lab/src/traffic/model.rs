//! When requests are sent and answered: drawn from distributions, and then scaled so that the handshakes' shares are
//! exactly those that are wanted.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A service, with the shares that the paper reports.
#[derive(Debug)]
pub struct Service {
    pub name: &'static str,
    /// Its share of all requests.
    weight: f64,
    /// The share of its requests that are on new connections.
    new: f64,
    /// The handshakes' share of the time of cold requests.
    cold: f64,
    /// The handshakes' share of the time of all requests.
    all: f64,
    /// Median round-trip time, ms.
    rtt: f64,
    /// Median size of a response, bytes.
    size: f64,
    pub tls: bool,
    pub v6: bool,
    pub vlan: Option<u16>,
    number: u8,
}

/// Most of them are like the services of the paper's Figure 1: 8 to 28 % of cold requests, 5 to 7 % of all, except for
/// mail. The others stand for the rest of the web, so that a third of all requests is on new connections (section 2.2).
pub const SERVICES: [Service; 8] = [
    service(1, "search", 0.16, [0.18, 0.20, 0.06], (78.0, 9_000.0)),
    service(2, "images", 0.14, [0.143, 0.28, 0.07], (126.0, 5_000.0)),
    Service { v6: true, ..service(3, "photos", 0.08, [0.45, 0.08, 0.05], (70.0, 40_000.0)) },
    Service { vlan: Some(7), ..service(4, "maps", 0.12, [0.25, 0.15, 0.06], (80.0, 6_000.0)) },
    service(5, "news", 0.10, [0.157, 0.24, 0.065], (88.0, 7_000.0)),
    Service { tls: true, ..service(6, "mail", 0.08, [0.064, 0.10, 0.012], (70.0, 2_400.0)) },
    service(7, "the web, near", 0.18, [0.68, 0.195, 0.155], (95.0, 2_400.0)),
    Service {
        v6: true,
        tls: true,
        ..service(8, "the web, far", 0.14, [0.60, 0.22, 0.165], (165.0, 2_400.0))
    },
];

const fn service(
    number: u8,
    name: &'static str,
    weight: f64,
    [new, cold, all]: [f64; 3],
    (rtt, size): (f64, f64),
) -> Service {
    Service { name, weight, new, cold, all, rtt, size, tls: false, v6: false, vlan: None, number }
}

impl Service {
    /// Its address.
    pub fn server(&self) -> SocketAddr {
        let ip = if self.v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(self.number)))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, self.number))
        };
        SocketAddr::new(ip, if self.tls { 443 } else { 80 })
    }

    /// An address of a client.
    pub fn client(&self, connection: usize) -> SocketAddr {
        let host = (connection / 20_000) as u16;
        let port = 20_000 + (connection % 20_000) as u16;
        let ip = if self.v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host))
        } else {
            let [high, low] = host.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(10, 9, high, low))
        };
        SocketAddr::new(ip, port)
    }
}

/// Random numbers of a seed.
#[derive(Debug)]
pub struct Dice(ChaCha20Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.uniform() * count as f64) as usize
    }

    pub fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Log-normal.
    pub fn around(&mut self, median: f64, sigma: f64) -> f64 {
        // Box and Muller.
        let (radius, angle) = ((1.0 - self.uniform()).ln() * -2.0, self.uniform() * std::f64::consts::TAU);
        median * (sigma * radius.sqrt() * angle.cos()).exp()
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    /// The silence before it, ms.
    pub pause: f64,
    /// Beyond the round trip until the response is complete, ms: drawn, then scaled.
    pub beyond: f64,
    /// Bytes of the response.
    pub size: usize,
}

/// How much of a connection the capture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// It begins before the capture.
    Later,
    /// Nobody answers its SYN.
    NeverOpens,
}

#[derive(Debug, Clone)]
pub struct Connection {
    pub service: &'static Service,
    /// When it begins, ms.
    pub at: f64,
    pub rtt: f64,
    /// How long its first SYN was lost, ms.
    pub syn_lost: f64,
    pub extent: Extent,
    pub requests: Vec<Request>,
}

impl Connection {
    /// The time before which it has no packet, ms.
    pub fn begins(&self) -> f64 {
        self.at
    }

    fn handshake(&self) -> f64 {
        self.rtt + self.syn_lost
    }
}

/// Sums of a service.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    pub cold: u64,
    pub warm: u64,
    handshake: f64,
    cold_time: f64,
    warm_time: f64,
}

impl Sums {
    pub fn new_share(&self) -> f64 {
        self.cold as f64 / (self.cold + self.warm) as f64
    }

    pub fn cold_share(&self) -> f64 {
        self.handshake / self.cold_time
    }

    pub fn all_share(&self) -> f64 {
        self.handshake / (self.cold_time + self.warm_time)
    }
}

/// All connections, in the order in which they begin.
#[derive(Debug)]
pub struct Plan {
    pub connections: Vec<Connection>,
    /// What is wanted of each service.
    pub sums: Vec<Sums>,
    pub repeated: u64,
    pub before: u64,
    pub failed: u64,
}

/// Requests a second of the whole capture.
const RATE: f64 = 40.0;
/// How many times the RTT a handshake of TLS takes, for cryptography too.
pub const TLS_TIME: f64 = 1.05;
/// One connection of so many repeats its SYN, begins before the capture, never opens.
const ODD: [usize; 3] = [300, 80, 400];
/// The time until a SYN is repeated, ms.
const RTO: f64 = 1000.0;
const MOST_SEGMENTS: f64 = 64.0;

impl Plan {
    /// A plan for about this many requests.
    pub fn new(seed: u64, requests: u32) -> Self {
        let mut dice = Dice::new(seed);
        let mut plan = Self { connections: Vec::new(), sums: Vec::new(), repeated: 0, before: 0, failed: 0 };
        let lasts = f64::from(requests) / RATE * 1e3;
        for service in &SERVICES {
            let count = (f64::from(requests) * service.weight).round().max(8.0) as usize;
            let mut own = plan.draw(service, count, lasts, &mut dice);
            let sums = scale(service, &mut own);
            plan.sums.push(sums);
            plan.connections.extend(own);
        }
        plan.connections.sort_by(|a, b| a.at.total_cmp(&b.at));
        plan
    }

    fn draw(
        &mut self,
        service: &'static Service,
        count: usize,
        lasts: f64,
        dice: &mut Dice,
    ) -> Vec<Connection> {
        let whole = ((count as f64 * service.new).round() as usize).clamp(1, count);
        let mut own: Vec<Connection> = Vec::new();
        for _ in 0..whole {
            let repeats = dice.below(ODD[0]) == 0;
            self.repeated += u64::from(repeats);
            own.push(Connection {
                service,
                at: dice.uniform() * lasts,
                rtt: dice.around(service.rtt, 0.35).clamp(5.0, 900.0),
                syn_lost: if repeats { RTO } else { 0.0 },
                extent: Extent::Whole,
                requests: vec![request(service, dice)],
            });
        }
        for _ in whole..count {
            let at = dice.below(own.len());
            if let Some(connection) = own.get_mut(at) {
                connection.requests.push(request(service, dice));
            }
        }
        for (odd, extent, counted) in
            [(ODD[1], Extent::Later, &mut self.before), (ODD[2], Extent::NeverOpens, &mut self.failed)]
        {
            for _ in 0..(whole / odd).max(1) {
                *counted += 1;
                self.repeated += u64::from(extent == Extent::NeverOpens);
                own.push(Connection {
                    service,
                    at: dice.uniform() * lasts,
                    rtt: dice.around(service.rtt, 0.35).clamp(5.0, 900.0),
                    syn_lost: 0.0,
                    extent,
                    requests: vec![request(service, dice)],
                });
            }
        }
        own
    }

    /// The sums of all services.
    pub fn all(&self) -> Sums {
        let mut all = Sums::default();
        for sums in &self.sums {
            all.cold += sums.cold;
            all.warm += sums.warm;
            all.handshake += sums.handshake;
            all.cold_time += sums.cold_time;
            all.warm_time += sums.warm_time;
        }
        all
    }
}

fn request(service: &Service, dice: &mut Dice) -> Request {
    Request {
        // Above the silence that tells bursts of TLS apart.
        pause: 30.0 + dice.around(400.0, 1.0).min(20_000.0),
        beyond: dice.around(1.0, 0.45),
        // The paper's objects: the mean is three times the median.
        size: dice.around(service.size, 1.49).clamp(200.0, MOST_SEGMENTS * 1_400.0) as usize,
    }
}

/// Scales the times of a service's requests to the wanted shares.
fn scale(service: &Service, own: &mut [Connection]) -> Sums {
    let tls = if service.tls { TLS_TIME } else { 0.0 };
    let whole = |connection: &&mut Connection| connection.extent == Extent::Whole;
    let mut sums = Sums::default();
    // What cannot be scaled, and what can, of cold and of warm requests.
    let (mut fixed, mut free) = ([0.0; 2], [0.0; 2]);
    for connection in own.iter_mut().filter(whole) {
        sums.handshake += connection.handshake();
        fixed[0] += connection.handshake() + connection.rtt * (1.0 + tls);
        for (n, request) in connection.requests.iter_mut().enumerate() {
            request.beyond *= connection.rtt;
            free[n.min(1)] += request.beyond;
            if n > 0 {
                fixed[1] += connection.rtt;
            }
        }
        sums.cold += 1;
        sums.warm += connection.requests.len() as u64 - 1;
    }
    sums.cold_time = sums.handshake / service.cold;
    sums.warm_time = (sums.handshake / service.all - sums.cold_time).max(fixed[1]);
    let factor =
        |n: usize, time: f64| if free[n] > 0.0 { ((time - fixed[n]) / free[n]).max(0.0) } else { 0.0 };
    let factors = [factor(0, sums.cold_time), factor(1, sums.warm_time)];
    for connection in own.iter_mut() {
        for (n, request) in connection.requests.iter_mut().enumerate() {
            request.beyond *= factors[n.min(1)];
        }
    }
    sums
}
