//! Datagrams at the server's port for fronts, from an attacker that has no key but can reach the port.

use super::site::{DnsSite, Outcome, RELAY_KEY_ID};
use super::{HONEST, resolver};
use crate::table::Table;
use firstflight_dns::front::RateLimit;
use firstflight_dns::relay::RelayCounters;
use rand_chacha::rand_core::Rng;
use std::time::Duration;

/// Datagrams a second.
const RATE: u32 = 10_000;
/// Fields of the header (section 9 of the DNS path).
const KEY_ID: usize = 3;
const BOOT: core::ops::Range<usize> = 6..10;
const SEQUENCE: core::ops::Range<usize> = 10..16;
const TIME: core::ops::Range<usize> = 16..22;

/// What the attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagrams {
    /// None.
    Nothing,
    /// Datagrams with another key's number.
    OtherKey,
    /// Datagrams with the right key number, the front's next start and the present time, but a wrong key.
    WrongKey,
    /// Copies of the front's datagrams, while their time is valid.
    Copies,
    /// The front's datagrams with one bit changed.
    Altered,
    /// Datagrams that the front sent before its last start.
    OldBoot,
    /// The front's datagrams with the present time.
    NewTime,
}

/// A flood of datagrams.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The kind of datagrams.
    pub datagrams: Datagrams,
    /// The duration, seconds. The front restarts in the middle.
    pub seconds: u64,
}

impl Flood {
    /// Runs the flood; `None` if the site cannot be created.
    pub fn run(self, seed: u64) -> Option<(Outcome, RelayCounters, u64)> {
        let mut site = DnsSite::new(seed, RateLimit::default())?;
        let (began, every) = (site.now, Duration::from_secs(1) / RATE);
        let end = began + Duration::from_secs(self.seconds);
        let (mut visits, mut sent, mut before) = (0, 0, None);
        while site.now < end {
            if before.is_none() && site.now >= began + Duration::from_secs(self.seconds) / 2 {
                site.restart_front();
                before = Some(site.overheard.len());
            }
            if site.now >= began + Duration::from_secs(1) * visits / HONEST {
                site.visit(visits, resolver(visits));
                visits += 1;
            }
            if let Some(datagram) = self.datagram(&mut site, before) {
                site.send(datagram, Duration::ZERO);
                sent += 1;
            }
            site.run(site.now + every);
        }
        for _ in 0..30 {
            site.run(site.now + Duration::from_secs(1));
        }
        Some((site.outcome(), *site.receiver.counters(), sent))
    }

    /// The next datagram. `before` is the number of datagrams that the front sent before its last start.
    fn datagram(self, site: &mut DnsSite, before: Option<usize>) -> Option<Vec<u8>> {
        if self.datagrams == Datagrams::Nothing {
            return None;
        }
        let sent = match self.datagrams {
            Datagrams::OldBoot => before?,
            _ => site.overheard.len(),
        };
        // One of the last twenty, which are at most five seconds old.
        let back = site.random.next_u64() as usize % 20;
        let mut datagram = site.overheard.get(sent.checked_sub(1 + back)?)?.clone();
        let now = (super::super::world::clock_at(site.now).unix_ms).to_be_bytes();
        match self.datagrams {
            Datagrams::Nothing | Datagrams::Copies | Datagrams::OldBoot => {}
            Datagrams::OtherKey => *datagram.get_mut(KEY_ID)? = RELAY_KEY_ID + 1,
            Datagrams::WrongKey => {
                datagram.get_mut(BOOT)?.copy_from_slice(&u32::MAX.to_be_bytes());
                let sequence = site.random.next_u64().to_be_bytes();
                datagram.get_mut(SEQUENCE)?.copy_from_slice(&sequence[2..]);
                datagram.get_mut(TIME)?.copy_from_slice(&now[2..]);
            }
            Datagrams::Altered => {
                let body = TIME.end;
                let at = body + site.random.next_u64() as usize % (datagram.len() - body);
                *datagram.get_mut(at)? ^= 1;
                // A sequence number that was not used, as far as the header shows.
                let sequence = site.random.next_u64().to_be_bytes();
                datagram.get_mut(SEQUENCE)?.copy_from_slice(&sequence[2..]);
            }
            Datagrams::NewTime => datagram.get_mut(TIME)?.copy_from_slice(&now[2..]),
        }
        Some(datagram)
    }
}

const ROWS: [(&str, Datagrams); 7] = [
    ("none, for comparison", Datagrams::Nothing),
    ("under another key's number", Datagrams::OtherKey),
    ("all right but the key", Datagrams::WrongKey),
    ("the front's own, copied", Datagrams::Copies),
    ("the same, made young", Datagrams::NewTime),
    ("the same, altered", Datagrams::Altered),
    ("from before the front's restart", Datagrams::OldBoot),
];

/// The rows of the third table.
pub fn table(seconds: u64, seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "{RATE} datagrams/s at the server's port for fronts for {seconds} s, a restart of the front, {HONEST} \
             honest first flights/s, seed {seed}"
        ),
        &[
            "datagrams",
            "sent",
            "no key",
            "time",
            "old start",
            "seen",
            "forged",
            "taken",
            "honest served",
            "executed twice",
        ],
    );
    for (name, datagrams) in ROWS {
        let Some((o, c, sent)) = (Flood { datagrams, seconds }).run(seed) else { continue };
        table.row([
            name.into(),
            sent.into(),
            c.unknown_key.into(),
            c.time.into(),
            c.old_boot.into(),
            (c.replayed + c.behind).into(),
            c.forged.into(),
            // The front's own datagrams are accepted, once each.
            (c.accepted - o.honest as u64).into(),
            format!("{}/{}", o.served, o.honest).into(),
            o.twice.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
