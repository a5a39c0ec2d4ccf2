//! Attacks on Fast Open, ASAP and the name server that accepts first flights, in virtual time: what the attacker
//! achieves, and how honest clients are affected.

mod certificates;
mod dns;
mod flood;
mod fragments;
mod off_path;
mod reflection;
mod replay;
mod rollover;
mod shared_address;
mod slow;
pub mod world;

use crate::table::Table;
use clap::{Args, ValueEnum};
use firstflight_credential::{
    CookieKey, Farm, FastOpenPolicy, KeyRing, OneTimeCookies, OneTimeKeys, PendingLimit, Replays, Scheme,
    SerialTable,
};
use std::sync::Arc;
use world::clock_at;

/// Simulated attacks: floods with stolen cookies, reflection at a victim, replays, a farm's roll-over, off-path
/// resets, slow readers, IP fragments; and attacks with certificates and on a name server.
#[derive(Debug, Args)]
pub struct Attack {
    /// The attack; all of them by default
    #[arg(value_enum)]
    which: Option<Which>,
    /// How long floods last, virtual seconds
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Seed of the random numbers in the attacks on certificates
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// SYNs with stolen valid cookies, answered with RST or not at all
    Flood,
    /// Many honest clients behind one address, all at once: how many first flights the limits against floods permit
    OneAddress,
    /// Bytes that reach a victim for each byte the attacker sends
    Reflection,
    /// One recorded SYN, sent repeatedly
    Replay,
    /// A farm's key changes while clients visit
    RollOver,
    /// An off-path attacker who knows a connection's four-tuple tries to reset it
    OffPath,
    /// Clients that request much and read nothing
    SlowReaders,
    /// IP fragments that never become packets
    Fragments,
    /// Wrong requests, garbage, replays, stolen certificates, reflection
    Certificates,
    /// Fragments of first flights in names, forged and copied, and forged relay datagrams
    Dns,
}

/// Runs the attacks. Returns the text to print.
pub fn run(attack: &Attack) -> String {
    let wanted = |which| attack.which.is_none_or(|w| w == which);
    let mut tables: Vec<Table> = Vec::new();
    if wanted(Which::Flood) {
        tables.push(flood::table(attack.seconds));
    }
    if wanted(Which::OneAddress) {
        tables.push(shared_address::table(attack.seed));
    }
    if wanted(Which::Reflection) {
        tables.push(reflection::table());
    }
    if wanted(Which::Replay) {
        tables.push(replay::table());
    }
    if wanted(Which::RollOver) {
        tables.push(rollover::table());
    }
    if wanted(Which::OffPath) {
        tables.push(off_path::table());
    }
    if wanted(Which::SlowReaders) {
        tables.push(slow::table());
    }
    if wanted(Which::Fragments) {
        tables.extend(fragments::tables(attack.seconds));
    }
    if wanted(Which::Certificates) {
        tables.extend(certificates::tables(attack.seconds, attack.seed));
    }
    if wanted(Which::Dns) {
        tables.extend(dns::tables(attack.seconds, attack.seed));
    }
    if attack.json {
        return serde_json::Value::from_iter(tables.iter().map(Table::json)).to_string();
    }
    tables.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The keys of all servers in this module.
fn keys() -> KeyRing {
    KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]))
}

/// Which cookies a server grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cookies {
    /// Plain cookies, which are valid until the key changes.
    Plain,
    /// One-time cookies of this issuer. Its counter on disk is at `mark`.
    Once { issuer: u16, mark: u64 },
    /// One-time cookies of this issuer in a farm with a shared store.
    Shared { issuer: u16 },
}

/// The policy of a server.
fn policy(cookies: Cookies, pending: &Arc<PendingLimit>) -> FastOpenPolicy {
    let mut policy = FastOpenPolicy::new(Arc::new(keys()), Arc::clone(pending));
    let (issuer, mark, farm) = match cookies {
        Cookies::Plain => return policy,
        Cookies::Once { issuer, mark } => (issuer, mark, Farm::Alone),
        Cookies::Shared { issuer } => (issuer, 1, Farm::Shared),
    };
    let serials = SerialTable::own(issuer, mark, 10_000);
    serials.extend(mark + 10_000);
    let cookies = OneTimeCookies::new(OneTimeKeys::from_bytes([9; 32]), Arc::new(serials)).with_farm(farm);
    policy.verifier = Some(Arc::new(cookies));
    policy.replays = Replays::AtMostOnce;
    policy
}
