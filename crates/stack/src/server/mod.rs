//! The server's side of first flights: listeners, SYNs that wait for a verdict, and what is kept of admitted ones until
//! their client's ACK.

pub(crate) mod admission;
pub(crate) mod answered;
pub(crate) mod asap;
pub(crate) mod challenged;
pub(crate) mod children;
pub(crate) mod clients;
pub(crate) mod follower;
pub(crate) mod listen;
pub(crate) mod listeners;
pub(crate) mod parked;
pub(crate) mod relayed;
pub(crate) mod returned;
pub(crate) mod stateless;
pub(crate) mod syn;
pub(crate) mod syn_ack;
pub(crate) mod syn_cookie;
pub(crate) mod vouched;
pub(crate) mod waiting;

use crate::config::Limits;
use crate::event::ListenerId;
use crate::server::challenged::Challenged;
use crate::server::clients::Clients;
use crate::server::listeners::Listeners;
use crate::server::parked::ParkingLot;
use crate::server::syn_cookie::SynCookies;
use crate::server::vouched::Vouched;
use alloc::collections::{BTreeMap, VecDeque};
use firstflight_credential::asap::AsapShard;
use firstflight_credential::{Place, Serial};
use firstflight_wire::Instant;

/// See the module.
pub(crate) struct Server {
    pub listeners: Listeners,
    pub parked: ParkingLot,
    pub cookies: SynCookies,
    pub challenged: Challenged,
    /// What is known of certificates and of the clients that show them.
    pub asap: AsapShard,
    /// Children (by index) that a certificate vouches for until their client's ACK.
    pub certified: BTreeMap<u32, Vouched>,
    /// Places of first flights that a RST ended after the application had them, and until when the places stay
    /// taken.
    pub quarantine: VecDeque<(Instant, Place)>,
    /// One-time cookies granted to connections (by index) that have not acknowledged.
    pub grants: BTreeMap<u32, (ListenerId, Serial)>,
    /// The connections of each client, if their number is limited.
    pub clients: Option<Clients>,
}

impl Server {
    pub(crate) fn new(limits: &Limits, cookies: [u8; 16]) -> Self {
        Self {
            listeners: Listeners::default(),
            parked: ParkingLot::new(limits.parked, limits.parked_bytes, limits.parked_for),
            cookies: SynCookies::new(cookies),
            challenged: Challenged::default(),
            asap: AsapShard::new(limits.asap),
            certified: BTreeMap::new(),
            quarantine: VecDeque::new(),
            grants: BTreeMap::new(),
            clients: Clients::new(limits.connections_per_client),
        }
    }
}
