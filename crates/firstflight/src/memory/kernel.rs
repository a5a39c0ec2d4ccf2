//! What is remembered of servers and paths for the kernel's sockets.

use super::closed::ClosedPorts;
use super::contacts::Contacts;
use super::cookie_requests::CookieRequests;
use super::file::{CredentialCache, Keeper, Snapshot};
use super::health::Networks;
use super::history::{History, HistoryWay};
use super::records::Records;
use super::{Fact, HolderMemory, Others};
use crate::client::authority::Authority;
use crate::clock::Monotonic;
use firstflight_credential::{CredentialStore, NetworkId, Permission};
use firstflight_kernel::TcpInfo;
use firstflight_wire::Instant;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Servers remembered, as in a stack.
const SERVERS: usize = 4096;
/// A round-trip time that was measured before this time is not used.
const RTT_LASTS: Duration = Duration::from_secs(60 * 60);
/// A second attempt begins no earlier and no later than this.
const LEAST_DELAY: Duration = Duration::from_millis(50);
const MOST_DELAY: Duration = Duration::from_secs(1);
/// How long the kernel waits before it sends a SYN again (RFC 6298 §2.1).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory, on one network at a time.
#[derive(Debug)]
pub(crate) struct Memory {
    network: NetworkId,
    servers: CredentialStore,
    history: History,
    closed: ClosedPorts,
    udp: Networks,
    records: Records,
    contacts: Contacts,
    asked: CookieRequests,
    time: Monotonic,
    /// Saves what is learnt.
    keeper: Option<Keeper>,
}

impl Memory {
    pub(crate) fn new(network: NetworkId) -> Self {
        Self {
            network,
            servers: CredentialStore::new(SERVERS),
            history: History::default(),
            closed: ClosedPorts::default(),
            udp: Networks::default(),
            records: Records::default(),
            contacts: Contacts::default(),
            asked: CookieRequests::default(),
            time: Monotonic::begin(),
            keeper: None,
        }
    }

    /// Loads what `cache` holds, and keeps its file up to date from now on. False on an unknown network.
    pub(crate) fn keep(&mut self, cache: CredentialCache) -> bool {
        if !self.network.is_known() {
            return false;
        }
        let clock = self.time.clock();
        let keeper = Keeper::load(cache, &clock, |fact| match fact {
            Fact::Server(network, ip, entry) => self.servers.restore(network, ip, entry),
            Fact::LostRace(way, at) => self.history.lost(way, at),
            Fact::Closed(network, remote, at) => self.closed.note(network, remote, at),
            Fact::UdpPause(network, pause) => self.udp.restore(network, pause),
            Fact::Record(server, known) => self.records.restore(server, known),
        });
        let (learnt, _) = self.learnt();
        let keeper = keeper.start(&learnt, &clock).without_cookies();
        self.keeper = Some(keeper);
        true
    }

    /// What is known, and what saves it.
    fn learnt(&mut self) -> (HolderMemory<'_>, Option<&mut Keeper>) {
        let Self { servers, history, closed, udp, records, keeper, .. } = self;
        let others = Some(Others { closed, udp, records });
        (HolderMemory { servers, history, others }, keeper.as_mut())
    }

    /// How long to wait before the file is written, if anything has changed.
    pub(crate) fn save_in(&mut self) -> Option<Duration> {
        let now = self.time.now();
        let (learnt, keeper) = self.learnt();
        Some(keeper?.due(&learnt)?.saturating_since(now))
    }

    /// What is to be written to the file, if anything.
    pub(crate) fn save(&mut self) -> Option<Snapshot> {
        let clock = self.time.clock();
        let (learnt, keeper) = self.learnt();
        keeper?.last(&learnt, &clock)
    }

    pub(crate) fn move_to(&mut self, network: NetworkId) {
        if network == self.network {
            return;
        }
        self.leave_unknown();
        self.udp.left(self.network);
        self.network = network;
    }

    /// Forgets what was learnt, if the network is unknown. Returns whether it is.
    pub(crate) fn leave_unknown(&mut self) -> bool {
        let unknown = !self.network.is_known();
        if unknown {
            // Nothing of an unknown network is in the file.
            self.servers.flush();
            self.history.leave(self.network);
            self.closed.leave(self.network);
            self.udp.left(self.network);
            self.records.leave(self.network);
            self.contacts.clear();
            self.asked.leave(self.network);
        }
        unknown
    }

    pub(crate) fn forget(&mut self) {
        self.servers.flush();
        self.history.clear();
        self.closed.clear();
        self.udp.clear();
        self.records.clear();
        self.contacts.clear();
        self.asked.clear();
        if let Some(keeper) = &mut self.keeper {
            keeper.forget();
        }
    }

    /// The present network.
    pub(crate) const fn network(&self) -> NetworkId {
        self.network
    }

    /// A connect to `server` has ended.
    pub(crate) fn note_contact(&mut self, server: &Authority, succeeded: bool) {
        self.contacts.note(self.network, server, succeeded);
    }

    /// Whether the last connect to `server` succeeded.
    pub(crate) fn answered(&self, server: &Authority) -> bool {
        self.contacts.answered(self.network, server)
    }

    /// `remote` refused an ordinary SYN.
    pub(crate) fn note_closed(&mut self, remote: SocketAddr) {
        self.closed.note(self.network, remote, self.time.now());
    }

    /// A connection to `remote` is open.
    pub(crate) fn opened(&mut self, remote: SocketAddr) {
        self.closed.opened(self.network, remote);
    }

    /// Whether `remote` refused an ordinary SYN lately.
    pub(crate) fn was_closed(&self, remote: SocketAddr) -> bool {
        self.closed.contains(self.network, remote, self.time.now())
    }

    /// Whether a first flight may go in UDP, as far as is known of this network.
    pub(crate) fn allows_udp(&self, replayable: bool) -> bool {
        self.udp.allows(self.network, replayable, self.time.now())
    }

    /// Whether UDP to this address lost a race lately.
    pub(crate) fn is_slow_in_udp(&self, remote: SocketAddr, port: u16) -> bool {
        self.history.is_slow(&HistoryWay::new(self.network, remote, Some(port)), self.time.now())
    }

    /// A server answered in UDP.
    pub(crate) fn udp_answered(&mut self, remote: SocketAddr, port: Option<u16>) {
        self.udp.answered(self.network, self.time.now());
        self.history.won(&HistoryWay::new(self.network, remote, port));
    }

    /// A connect in UDP ended without an answer, or its caller gave up.
    pub(crate) fn udp_silent(&mut self) {
        self.udp.silent(self.network);
    }

    /// The kernel's TCP was faster, although UDP began first.
    pub(crate) fn udp_lost(&mut self, remote: SocketAddr, port: Option<u16>) {
        let now = self.time.now();
        self.udp.lost(self.network, remote.ip(), now);
        self.history.lost(HistoryWay::new(self.network, remote, port), now);
    }

    /// What servers publish, and the time.
    pub(crate) fn records(&mut self) -> (&mut Records, Instant) {
        (&mut self.records, self.time.now())
    }

    /// What the next SYN to `server` may carry.
    pub(crate) fn permission(&self, server: IpAddr) -> Permission {
        self.servers.permission(self.network, server, self.time.now())
    }

    /// How long the first attempt has before the second one begins, if the round-trip time is known: max(50 ms,
    /// 2 × SRTT, SRTT + 4 × RTTVAR), at most 1 s.
    pub(crate) fn race_delay(&mut self, server: IpAddr) -> Option<Duration> {
        let now = self.time.now();
        let rtt = self.servers.lookup(self.network, server)?.rtt?;
        let current = now.saturating_since(rtt.at()) < RTT_LASTS;
        current.then(|| race_delay(rtt.srtt(), rtt.rttvar()))
    }

    /// Those of `addresses` that lost lately, and the others, each in their order.
    pub(crate) fn split(&self, addresses: &[SocketAddr]) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let now = self.time.now();
        addresses.iter().copied().partition(|remote| self.history.is_slow(&self.way(*remote), now))
    }

    /// `winner` won, and the attempts at the addresses in `before` lost.
    pub(crate) fn raced(&mut self, winner: SocketAddr, before: &[SocketAddr]) {
        let now = self.time.now();
        for remote in before.iter().filter(|remote| **remote != winner) {
            let way = self.way(*remote);
            self.history.lost(way, now);
        }
        let way = self.way(winner);
        self.history.won(&way);
        self.opened(winner);
    }

    /// The handshake with `server` is complete.
    pub(crate) fn learn(&mut self, server: IpAddr, info: &TcpInfo) {
        if !info.srtt.is_zero() && is_exact(info.retransmissions, info.timestamps, info.srtt) {
            self.servers.learn_rtt(self.network, server, info.srtt, info.rttvar, self.time.now());
        }
    }

    /// The round-trip time to `server` was measured in another way.
    pub(crate) fn learn_rtt(&mut self, server: IpAddr, srtt: Duration, rttvar: Duration) {
        self.servers.learn_rtt(self.network, server, srtt, rttvar, self.time.now());
    }

    /// The kernel had no cookie for `server` when a SYN left, `ago`, and asked for one; the connection is complete. Whether the
    /// server had been asked before.
    pub(crate) fn asked_again(&mut self, server: IpAddr, ago: Duration) -> bool {
        let sent = self.before(ago);
        self.asked.again(self.network, server, sent, self.time.now())
    }

    /// Whether `server` was asked for a cookie and has granted none.
    pub(crate) fn grants_none(&self, server: IpAddr) -> bool {
        self.asked.contains(self.network, server)
    }

    /// The kernel had a cookie for `server`.
    pub(crate) fn granted(&mut self, server: IpAddr) {
        self.asked.granted(self.network, server);
    }

    /// A first flight to `server` was accepted, whose SYN left `ago`.
    pub(crate) fn accepted(&mut self, server: IpAddr, ago: Duration) {
        let sent = self.before(ago);
        self.servers.note_passed(self.network, server, sent);
        self.servers.note_success(self.network, server);
    }

    /// A SYN with an option or data, which left `ago`, got no answer, and a plain one to the same address did.
    pub(crate) fn lost_race(&mut self, server: IpAddr, ago: Duration) {
        let (sent, now) = (self.before(ago), self.time.now());
        self.servers.note_lost_race(self.network, server, Some(sent), now);
    }

    /// A SYN with an option or data was refused, and a plain one to the same address was not.
    pub(crate) fn refused(&mut self, server: IpAddr) {
        self.servers.note_failure(self.network, server, self.time.now());
    }

    /// The time that was `ago`.
    fn before(&self, ago: Duration) -> Instant {
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(self.time.now().as_nanos().saturating_sub(ago))
    }

    fn way(&self, remote: SocketAddr) -> HistoryWay {
        HistoryWay::new(self.network, remote, None)
    }
}

/// Whether a round-trip time is one. Of a SYN that was sent again, the kernel may have measured either copy. A timestamp
/// tells which SYN came first, not which one the answer that arrived is for: if the first answer was lost, the wait of a
/// second for it is measured, too.
fn is_exact(retransmissions: u32, timestamps: bool, srtt: Duration) -> bool {
    retransmissions == 0 || (timestamps && srtt < SYN_TIMEOUT)
}

fn race_delay(srtt: Duration, rttvar: Duration) -> Duration {
    (srtt * 2).max(srtt + rttvar * 4).clamp(LEAST_DELAY, MOST_DELAY)
}

#[cfg(test)]
mod tests;
