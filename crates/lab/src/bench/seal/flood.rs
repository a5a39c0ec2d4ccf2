//! A server under a flood of flights without a credential block: how many it opens, and what becomes of honest clients.
//!
//! The server is one core with a queue. Clients and attackers arrive at times that are computed; what the server does with
//! each is done, and takes the CPU time that it took here. So the result is that of a machine with nothing else to do.

use super::ends::{ANSWER, REQUEST, SealEnds, check};
use super::io::{Io, now, poll};
use super::timed;
use crate::bench::BenchError;
use firstflight_tls::Acceptor;
use firstflight_tls::seal::{OpeningBudget, REJECT};
use firstflight_wire::Instant;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Honest clients a second, each in a network of its own, without a block.
pub const HONEST: u32 = 200;
/// How long a client waits until its turn. Then it has opened another connection (RFC 8305 §5).
const PATIENCE: Duration = Duration::from_millis(250);
/// How many times as much as one core can do arrives.
const LOAD: f64 = 2.0;
/// Flights of which the cost is measured.
const PROBES: u32 = 100;

/// What attackers send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Nothing.
    None,
    /// Flights that do not open, from this many networks.
    Garbage(u32),
    /// Copies of one flight that ran, from this many networks.
    Copies(u32),
}

impl Flood {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Garbage(1), Self::Garbage(4096), Self::Copies(1), Self::Copies(4096)];

    /// Words for a table.
    pub fn text(self) -> String {
        let networks =
            |count| if count == 1 { "one network".to_owned() } else { format!("{count} networks") };
        match self {
            Self::None => "no flood".to_owned(),
            Self::Garbage(count) => format!("garbage from {}", networks(count)),
            Self::Copies(count) => format!("copies from {}", networks(count)),
        }
    }

    const fn networks(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Garbage(count) | Self::Copies(count) => count,
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Flights of attackers that arrived a second.
    pub flood_per_s: f64,
    /// Flights that were opened a second, of attackers and of honest clients.
    pub openings_per_s: f64,
    /// Share of the time in which the server worked.
    pub busy: f64,
    /// Shares of the honest clients: answered after their first flight, after a REJECT in ordinary TLS, and not in time.
    pub early: f64,
    pub ordinary: f64,
    pub late: f64,
    /// Median time that those which were answered waited for their turn, milliseconds.
    pub waited_ms: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrivalEnd {
    Early,
    Rejected,
    Closed,
}

struct World {
    ends: SealEnds,
    acceptor: Acceptor,
    /// Takes what the server's own takes, to count openings.
    budget: OpeningBudget,
    garbage: Vec<u8>,
    copy: Vec<u8>,
}

/// Lets the flood arrive for this long, at a server with this many openings a second.
pub fn run(flood: Flood, openings: NonZeroU32, lasts: Duration) -> Result<Outcome, BenchError> {
    let mut world = World::new(openings)?;
    let each = world.probe(flood)?;
    let per_s = if flood == Flood::None { 0.0 } else { LOAD / each.as_secs_f64() };
    let arrivals = arrivals(per_s, lasts);
    let flights = arrivals.iter().filter(|(_, honest)| honest.is_some()).map(|_| world.honest());
    let flights: Vec<_> = flights.collect::<Result<_, _>>()?;
    let (mut free, mut worked, mut opened) = (Duration::ZERO, Duration::ZERO, 0_u32);
    let (mut early, mut ordinary, mut waits) = (0_u32, 0_u32, Vec::new());
    for (number, (at, honest)) in (0_u32..).zip(&arrivals) {
        let begins = free.max(*at);
        if begins - *at > PATIENCE {
            continue;
        }
        world.move_to(begins);
        let peer = match honest {
            Some(count) => Ipv4Addr::from_bits((10 << 24) + (count << 8) + 1),
            None => Ipv4Addr::from_bits((172 << 24) + ((number % flood.networks()) << 8) + 1),
        };
        let taken = world.budget.take(peer.into(), world.ends.clock.now());
        opened += u32::from(taken);
        let took = match honest {
            None => {
                let (fate, took) = world.serve(peer.into(), world.flight(flood), None)?;
                let rejected = !taken || matches!(flood, Flood::Garbage(_));
                check(rejected == (fate == ArrivalEnd::Rejected), "openings")?;
                took
            }
            Some(count) => {
                let (flight, hello) =
                    flights.get(*count as usize).ok_or(BenchError::Wrong("clients".into()))?;
                let (fate, took) = world.serve(peer.into(), flight, Some(hello))?;
                check(taken == (fate == ArrivalEnd::Early), "openings of honest clients")?;
                waits.push((begins - *at).as_secs_f64() * 1000.0);
                early += u32::from(fate == ArrivalEnd::Early);
                ordinary += u32::from(fate == ArrivalEnd::Rejected);
                took
            }
        };
        free = begins + took;
        worked += took;
    }
    let (honest, seconds) = (flights.len() as f64, free.max(lasts).as_secs_f64());
    Ok(Outcome {
        flood_per_s: per_s,
        openings_per_s: f64::from(opened) / seconds,
        busy: worked.as_secs_f64() / seconds,
        early: f64::from(early) / honest,
        ordinary: f64::from(ordinary) / honest,
        late: 1.0 - f64::from(early + ordinary) / honest,
        waited_ms: crate::figure::Figure::new(waits).median(),
    })
}

/// When attackers (`None`) and honest clients (with their number) arrive, in order.
fn arrivals(flood_per_s: f64, lasts: Duration) -> Vec<(Duration, Option<u32>)> {
    let times = |per_s: f64| {
        let count = (per_s * lasts.as_secs_f64()) as u32;
        (0..count).map(move |n| (Duration::from_secs_f64(f64::from(n) / per_s), n))
    };
    let mut all: Vec<_> = times(flood_per_s).map(|(at, _)| (at, None)).collect();
    all.extend(times(f64::from(HONEST)).map(|(at, n)| (at, Some(n))));
    all.sort();
    all
}

impl World {
    fn new(openings: NonZeroU32) -> Result<Self, BenchError> {
        let ends = SealEnds::new()?;
        let acceptor = ends.acceptor(openings)?;
        let copy = ends.first_flight(true)?;
        // The ciphertext and its tag are wrong.
        let mut garbage = copy.clone();
        if let Some(last) = garbage.last_mut() {
            *last ^= 1;
        }
        Ok(Self { ends, acceptor, budget: OpeningBudget::new(openings), garbage, copy })
    }

    /// The flight of an honest client, and the ClientHello that follows a REJECT.
    fn honest(&self) -> Result<(Vec<u8>, Vec<u8>), BenchError> {
        Ok((self.ends.first_flight(true)?, self.ends.first_flight(false)?))
    }

    fn flight(&self, flood: Flood) -> &[u8] {
        if matches!(flood, Flood::Copies(_)) { &self.copy } else { &self.garbage }
    }

    /// What a flight of the flood costs that is opened.
    fn probe(&mut self, flood: Flood) -> Result<Duration, BenchError> {
        let acceptor = self.ends.acceptor(NonZeroU32::MAX)?;
        let acceptor = std::mem::replace(&mut self.acceptor, acceptor);
        let peer = Ipv4Addr::LOCALHOST.into();
        // The first copy is the original.
        self.serve(peer, self.flight(flood), None)?;
        let mut sum = Duration::ZERO;
        for _ in 0..PROBES {
            sum += self.serve(peer, self.flight(flood), None)?.1;
        }
        self.acceptor = acceptor;
        Ok(sum / PROBES)
    }

    /// Serves one connection. `hello` goes on in ordinary TLS after a REJECT; without it the client goes away.
    fn serve(
        &self,
        peer: IpAddr,
        flight: &[u8],
        hello: Option<&Vec<u8>>,
    ) -> Result<(ArrivalEnd, Duration), BenchError> {
        let io = Io::with(flight.to_vec());
        let serving = || {
            let mut accepting = pin!(self.acceptor.accept_over_from(io.clone(), peer));
            let mut fate = ArrivalEnd::Early;
            let mut accepted = poll(accepting.as_mut());
            if accepted.is_pending() {
                fate = ArrivalEnd::Rejected;
                check(io.written() == REJECT, "a server that waits")?;
                let Some(hello) = hello else { return Ok(fate) };
                io.push(hello);
                accepted = poll(accepting.as_mut());
            }
            match accepted {
                Poll::Ready(Ok(mut stream)) => {
                    if fate == ArrivalEnd::Early {
                        now("a read", stream.read_exact(&mut [0; REQUEST.len()]))?;
                    }
                    now("a write", stream.write_all(&ANSWER))?;
                    now("a flush", stream.flush())?;
                    Ok(fate)
                }
                Poll::Ready(Err(_)) => Ok(ArrivalEnd::Closed),
                Poll::Pending => Err(BenchError::Wrong("a server that waits for ordinary TLS".into())),
            }
        };
        let (served, took) = timed(serving)?;
        Ok((served?, took))
    }

    /// Moves the clock.
    fn move_to(&self, at: Duration) {
        let at = Instant::ZERO + at;
        let mut sleep = pin!(self.ends.clock.sleep_until(at));
        while poll(sleep.as_mut()).is_pending() {
            self.ends.clock.advance();
        }
    }
}
