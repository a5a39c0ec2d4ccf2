//! How long a transfer stands still after its receiver has opened a closed window, over lossy paths in virtual time.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds of each case instead of the default, `FIRSTFLIGHT_SEED=n` one of them; with
//! `--nocapture` it prints how long the transfers stood still.

use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::{CloseReason, ConnId};
use firstflight_wire::Instant;
use std::time::Duration;

const WINDOW: usize = 60_000;

/// The server ended the connection: it sent a segment, or probed a closed window, as often as its settings allow, and
/// nothing of the client arrived in that time. On a path that loses much, this is right (RFC 9293 §3.8.3).
#[derive(Debug)]
struct GivenUp;

/// A server that writes without end, and a client that reads nothing until its window has been closed for a while.
struct Reopening {
    pair: Pair,
    server: ConnId,
    client: ConnId,
    /// When a packet of the client last arrived.
    heard: Instant,
    /// How many of them have arrived.
    arrived: u64,
}

impl Reopening {
    /// The window has been closed for `closed`; each packet is lost with the probability `loss`.
    fn after(closed: Duration, delay: Duration, loss: f64, seed: u64) -> Result<Self, GivenUp> {
        let path = PathConfig::with_delay(delay);
        let mut pair = Pair::new(path, seed, false, |config, _| config.tcp.set_receive_buffer(WINDOW as u32));
        let listener = pair.listen(None);
        let client = pair.connect(b"", false);
        let server = pair.accept(listener);
        pair.wire.a_to_b.config_mut().loss = loss;
        pair.wire.b_to_a.config_mut().loss = loss;
        let mut this = Self { pair, server, client, heard: Instant::ZERO, arrived: 0 };
        let full =
            |this: &mut Self| this.pair.client.info(client).unwrap().totals.bytes_received >= WINDOW as u64;
        if !this.run(Duration::from_secs(36_000), full) {
            return Err(this.given_up("the window is never full", seed));
        }
        this.run(closed, |_| false);
        Ok(this)
    }

    /// It was not `done`, so the server must have given up, and for the right reason.
    fn given_up(&self, failure: &str, seed: u64) -> GivenUp {
        let (server, info) = (&self.pair.server, self.pair.server.info(self.server).unwrap());
        let reason = server.close_reason(self.server);
        assert_eq!(reason, Some(CloseReason::TimedOut), "{failure}: seed {seed}, {info:?}");
        // 15 timeouts that double from 300 ms to 120 s take a quarter of an hour.
        let silence = self.pair.now - self.heard;
        assert!(
            silence > Duration::from_secs(600),
            "{failure}: seed {seed}, silent for {silence:?}, {info:?}"
        );
        GivenUp
    }

    /// Lets the server write for `time`, or until `done` or until its connection has ended. Returns whether it is done.
    fn run(&mut self, time: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.pair.now + time;
        loop {
            while self.pair.server.write(self.server, &[7; 16_384], self.pair.now).is_ok() {}
            self.pair.flush();
            if done(self) {
                return true;
            }
            if self.pair.server.close_reason(self.server).is_some() {
                return false;
            }
            match self.pair.next() {
                Some(next) if next <= end => {
                    self.pair.advance(next.max(self.pair.now));
                    let arrived = self.pair.wire.a_to_b.counters().delivered;
                    if arrived > self.arrived {
                        (self.arrived, self.heard) = (arrived, self.pair.now);
                    }
                }
                _ => {
                    self.pair.advance(end);
                    return false;
                }
            }
        }
    }

    /// The client reads everything and goes on reading. Returns the time until new data arrives.
    fn open(&mut self, seed: u64) -> Result<Duration, GivenUp> {
        let opened = self.pair.now;
        assert_eq!(self.pair.client_reads(self.client).len(), WINDOW);
        let new = |this: &mut Self| !this.pair.client_reads(this.client).is_empty();
        if !self.run(Duration::from_secs(3600), new) {
            return Err(self.given_up("it never goes on", seed));
        }
        Ok(self.pair.now - opened)
    }
}

/// The window update and the probe after it are lost. Probes leave 0.31·(2ⁿ − 1) s after the window was closed on this
/// path: after 65 s, the next ones leave at 79 s and at 158 s.
#[test]
fn two_lost_packets_do_not_cost_a_minute_and_a_half() {
    let mut this = Reopening::after(Duration::from_secs(65), Duration::from_millis(55), 0.0, 1).unwrap();
    let mut packets = [0; 2];
    this.pair.middlebox = Some(Box::new(move |end, _| {
        packets[end as usize] += 1;
        packets[end as usize] > 1
    }));
    let took = this.open(1).unwrap();
    assert!(took < Duration::from_secs(1), "it goes on {took:?} after the window was opened");
}

/// As above, with a receiver that does not repeat its update, as Linux: the lost probe is repeated soon.
#[test]
fn a_lost_probe_does_not_cost_another_interval() {
    let mut this = Reopening::after(Duration::from_secs(65), Duration::from_millis(55), 0.0, 1).unwrap();
    let mut probes = 0;
    this.pair.middlebox = Some(Box::new(move |end, _| {
        probes += u32::from(end == End::Server);
        probes > 1
    }));
    let took = this.open(1).unwrap();
    assert!(took < Duration::from_secs(20), "it goes on {took:?} after the window was opened");
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    match number("FIRSTFLIGHT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRSTFLIGHT_SEEDS").unwrap_or(default),
    }
}

/// How long the window was closed does not matter: only several losses in a row take longer than a few timeouts.
#[test]
fn a_transfer_goes_on_soon_after_the_window_opens() {
    for closed in [2, 10, 65] {
        for loss in [0.01, 0.05, 0.1, 0.2, 0.3] {
            let took = |seed| {
                // At any time between two probes.
                let closed = Duration::from_millis(closed * (1000 + seed * 7919 % 2000));
                let mut this = Reopening::after(closed, Duration::from_millis(50), loss, seed)?;
                this.open(seed).map(|took| took.as_millis())
            };
            let took: Vec<_> = seeds(200).map(took).collect();
            let gave_up = took.iter().filter(|took| took.is_err()).count();
            // At a loss of 0.3, one of 50,000 segments needs more than 15 retransmissions; a seed sends about 50.
            let most = if loss < 0.3 { 0 } else { took.len().div_ceil(1000) };
            assert!(gave_up <= most, "closed for {closed} s, loss {loss}: {gave_up} gave up");
            let mut took: Vec<u128> = took.into_iter().flatten().collect();
            if took.is_empty() {
                continue;
            }
            took.sort_unstable();
            let at = |per_mille: usize| took[(took.len() * per_mille / 1000).min(took.len() - 1)];
            let over = |ms: u128| took.iter().filter(|t| **t > ms).count();
            println!(
                "closed for {closed} to {} s, loss {loss}: median {} ms, 90 % {}, 99 % {}, 99.9 % {}, most {}; \
                 {} of {} over 1 s, {} over 5 s, {} over 30 s; {gave_up} gave up",
                3 * closed,
                at(500),
                at(900),
                at(990),
                at(999),
                at(1000),
                over(1_000),
                took.len(),
                over(5_000),
                over(30_000)
            );
            assert!(at(950) <= 3_000, "closed for {closed} s, loss {loss}: {:?}", took.last());
            assert!(at(990) <= 1_500 || loss > 0.1, "closed for {closed} s, loss {loss}: {:?}", took.last());
        }
    }
}
