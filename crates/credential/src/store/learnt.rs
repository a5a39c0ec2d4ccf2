//! What a store learnt that the other stores of its client must know.

use super::cookies::StoredCookie;
use crate::identity::Identity;
use crate::network::NetworkId;
use alloc::collections::VecDeque;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// The most records that wait to be taken. Beyond this number the oldest is lost, and the other stores learn it from
/// their own visits.
pub(super) const MOST: usize = 4096;

/// Something that a store learnt of a server. Give it to [`CredentialStore::repeat`](crate::CredentialStore::repeat) of the other stores.
#[derive(Debug, Clone)]
pub struct LearntOfServer {
    pub(super) network: NetworkId,
    pub(super) server: IpAddr,
    pub(super) what: What,
}

/// What was learnt.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// The server granted this cookie.
    Cookie(Cookie, FastOpenForm, Instant),
    /// This cookie is used up or refused; true if the server grants cookies for one use.
    Spent(Cookie, bool),
    /// This cookie is good for many uses.
    Plain(StoredCookie),
    /// The server's cookies were dropped.
    NoCookies,
    Unanswered(FastOpenForm),
    Failure(Instant),
    /// A first flight that left at the first time got no answer, which was noted at the second.
    Lost(Option<Instant>, Instant),
    /// The first flight of a SYN that left at this time was accepted.
    Passed(Instant),
    Success,
    Mss(u16),
    PathMss(u16, Instant),
    Rtt(Duration, Duration, Instant),
    Asap(Identity, bool, Instant),
    Mismatch(IpAddr, Instant),
}

/// The records of one store.
#[derive(Debug, Default)]
pub(super) struct Telling(pub VecDeque<LearntOfServer>);

impl Telling {
    pub(super) fn add(&mut self, learnt: LearntOfServer) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(learnt);
    }
}
