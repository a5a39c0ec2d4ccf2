//! Attacks on ASAP: against the budget for signatures, with copies, with other clients' certificates, and on other
//! hosts' addresses (`docs/spec/asap.md`, section 10).

mod flood;
mod keys;
mod reflection;
mod refused;
mod replay;
mod theft;

use super::world::clock_at;
use crate::certified::{self, LASTS};
use crate::table::Table;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_credential::{GuardKey, ReplayGuard, ReplayTable, Window};
use firstflight_wire::{Clock, Instant};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longer than a guard stays closed after it starts, which is ten seconds.
const OPEN: Duration = Duration::from_secs(15);

/// The tables of `attack certificates`.
pub fn tables(seconds: u64, seed: u64) -> [Table; 6] {
    [
        flood::table(seconds, seed),
        replay::table(seed),
        refused::table(seed),
        theft::table(seed),
        reflection::table(seed),
        keys::table(seed),
    ]
}

/// The key of all guards here. The members of a farm share it.
fn guard_key() -> GuardKey {
    GuardKey::from_bytes([3; 16])
}

/// A guard of a server that starts at the time of `clock`.
fn guard(clock: &Clock) -> Arc<dyn ReplayGuard> {
    Arc::new(ReplayTable::new(guard_key(), Window::REQUESTS, 1 << 20, clock.unix_ms))
}

/// A first certificate for `address`, obtained at `now`.
fn certificate(key: PrivateKey, address: IpAddr, now: Instant) -> Option<ClientCertificate> {
    certified::certificate(key, address, (now, clock_at(now).unix_ms / 1000), (LASTS, 1))
}
