//! How long a transfer stands still after its receiver has opened a closed window, over lossy paths in virtual time.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds of each case instead of the default, `FIRSTFLIGHT_SEED=n` one of them; with
//! `--nocapture` it prints how long the transfers stood still.

use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::ConnId;
use std::time::Duration;

const WINDOW: usize = 60_000;

/// A server that writes without end, and a client that reads nothing until its window has been closed for a while.
struct Reopening {
    pair: Pair,
    server: ConnId,
    client: ConnId,
}

impl Reopening {
    /// The window has been closed for `closed`; each packet is lost with the probability `loss`.
    fn after(closed: Duration, delay: Duration, loss: f64, seed: u64) -> Self {
        let path = PathConfig::with_delay(delay);
        let mut pair = Pair::new(path, seed, false, |config, _| config.tcp.receive_buffer = WINDOW as u32);
        let listener = pair.listen(None);
        let client = pair.connect(b"", false);
        let server = pair.accept(listener);
        pair.wire.a_to_b.config_mut().loss = loss;
        pair.wire.b_to_a.config_mut().loss = loss;
        let mut this = Self { pair, server, client };
        let full =
            |this: &mut Self| this.pair.client.info(client).unwrap().totals.bytes_received >= WINDOW as u64;
        assert!(this.run(Duration::from_secs(36_000), full), "the window is never full");
        this.run(closed, |_| false);
        this
    }

    /// Lets the server write for `time` or until `done`, and returns whether it is done.
    fn run(&mut self, time: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.pair.now + time;
        loop {
            while self.pair.server.write(self.server, &[7; 16_384], self.pair.now).is_ok() {}
            self.pair.flush();
            if done(self) {
                return true;
            }
            match self.pair.next() {
                Some(next) if next <= end => self.pair.advance(next.max(self.pair.now)),
                _ => {
                    self.pair.advance(end);
                    return false;
                }
            }
        }
    }

    /// The client reads everything and goes on reading. Returns the time until new data arrives.
    fn open(&mut self) -> Duration {
        let opened = self.pair.now;
        assert_eq!(self.pair.client_reads(self.client).len(), WINDOW);
        let new = |this: &mut Self| !this.pair.client_reads(this.client).is_empty();
        assert!(self.run(Duration::from_secs(3600), new), "it never goes on");
        self.pair.now - opened
    }
}

/// The window update and the probe after it are lost. Probes leave 0.31·(2ⁿ − 1) s after the window was closed on this
/// path: after 65 s, the next ones leave at 79 s and at 158 s.
#[test]
fn two_lost_packets_do_not_cost_a_minute_and_a_half() {
    let mut this = Reopening::after(Duration::from_secs(65), Duration::from_millis(55), 0.0, 1);
    let mut packets = [0; 2];
    this.pair.middlebox = Some(Box::new(move |end, _| {
        packets[end as usize] += 1;
        packets[end as usize] > 1
    }));
    let took = this.open();
    assert!(took < Duration::from_secs(1), "it goes on {took:?} after the window was opened");
}

/// As above, with a receiver that does not repeat its update, as Linux: the lost probe is repeated soon.
#[test]
fn a_lost_probe_does_not_cost_another_interval() {
    let mut this = Reopening::after(Duration::from_secs(65), Duration::from_millis(55), 0.0, 1);
    let mut probes = 0;
    this.pair.middlebox = Some(Box::new(move |end, _| {
        probes += u32::from(end == End::Server);
        probes > 1
    }));
    let took = this.open();
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
                Reopening::after(closed, Duration::from_millis(50), loss, seed).open().as_millis()
            };
            let mut took: Vec<u128> = seeds(200).map(took).collect();
            took.sort_unstable();
            let at = |per_mille: usize| took[(took.len() * per_mille / 1000).min(took.len() - 1)];
            let over = |ms: u128| took.iter().filter(|t| **t > ms).count();
            println!(
                "closed for {closed} to {} s, loss {loss}: median {} ms, 90 % {}, 99 % {}, 99.9 % {}, most {}; \
                 {} of {} over 1 s, {} over 5 s, {} over 30 s",
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
