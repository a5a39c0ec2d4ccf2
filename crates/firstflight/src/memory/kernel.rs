//! What is remembered of servers and paths for the kernel's sockets.

use super::contacts::Contacts;
use super::file::{CredentialCache, Keeper, Snapshot};
use super::history::{History, Way};
use crate::client::Authority;
use crate::clock::Monotonic;
use firstflight_credential::{CredentialStore, NetworkId, Permission};
use firstflight_kernel::TcpInfo;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Servers remembered, as in a stack.
const SERVERS: usize = 4096;
/// Closed ports remembered, and for how long. The next visit asks with an ordinary SYN, which is refused at once.
const CLOSED: usize = 64;
const CLOSED_LASTS: Duration = Duration::from_secs(60);
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
    /// Ports that refused an ordinary SYN, the oldest refusal first.
    closed: VecDeque<(NetworkId, SocketAddr, Instant)>,
    contacts: Contacts,
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
            closed: VecDeque::new(),
            contacts: Contacts::default(),
            time: Monotonic::begin(),
            keeper: None,
        }
    }

    /// Loads what `cache` holds, and keeps its file up to date from now on. False on an unknown network.
    pub(crate) fn keep(&mut self, cache: CredentialCache) -> bool {
        let (clock, servers) = (self.time.clock(), &mut self.servers);
        if !self.network.is_known() {
            return false;
        }
        let keeper = Keeper::load(cache, &clock, |network, ip, entry| servers.restore(network, ip, entry));
        self.keeper = Some(keeper.start(&self.servers).without_cookies());
        true
    }

    /// How long to wait before the file is written, if anything has changed.
    pub(crate) fn save_in(&self) -> Option<Duration> {
        let due = self.keeper.as_ref()?.due(&self.servers)?;
        Some(due.saturating_since(self.time.now()))
    }

    /// What is to be written to the file, if anything.
    pub(crate) fn save(&mut self) -> Option<Snapshot> {
        let clock = self.time.clock();
        self.keeper.as_mut()?.last(&self.servers, &clock)
    }

    pub(crate) fn move_to(&mut self, network: NetworkId) {
        if network == self.network {
            return;
        }
        self.leave_unknown();
        self.network = network;
    }

    /// Forgets what was learnt, if the network is unknown. Returns whether it is.
    pub(crate) fn leave_unknown(&mut self) -> bool {
        let unknown = !self.network.is_known();
        if unknown {
            // Nothing of an unknown network is in the file.
            self.servers.flush();
            self.history.clear();
            self.closed.clear();
            self.contacts.clear();
        }
        unknown
    }

    pub(crate) fn forget(&mut self) {
        self.servers.flush();
        self.history.clear();
        self.closed.clear();
        self.contacts.clear();
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
        let now = self.time.now();
        self.opened(remote);
        if self.closed.len() >= CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back((self.network, remote, now));
    }

    /// A connection to `remote` is open.
    pub(crate) fn opened(&mut self, remote: SocketAddr) {
        let network = self.network;
        self.closed.retain(|(net, closed, _)| (*net, *closed) != (network, remote));
    }

    /// Whether `remote` refused an ordinary SYN lately.
    pub(crate) fn was_closed(&self, remote: SocketAddr) -> bool {
        let now = self.time.now();
        let known = |(network, closed, at): &(NetworkId, SocketAddr, Instant)| {
            (*network, *closed) == (self.network, remote) && now.saturating_since(*at) < CLOSED_LASTS
        };
        self.closed.iter().any(known)
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
    #[cfg(feature = "asap")]
    pub(crate) fn learn_rtt(&mut self, server: IpAddr, srtt: Duration, rttvar: Duration) {
        self.servers.learn_rtt(self.network, server, srtt, rttvar, self.time.now());
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

    fn way(&self, remote: SocketAddr) -> Way {
        Way::new(self.network, remote, None)
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
mod tests {
    use super::*;

    const AGO: Duration = Duration::from_millis(100);
    const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn the_delay_follows_the_round_trip_time() {
        let ms = Duration::from_millis;
        assert_eq!(race_delay(ms(1), ms(0)), ms(50));
        assert_eq!(race_delay(ms(100), ms(10)), ms(200));
        assert_eq!(race_delay(ms(100), ms(50)), ms(300));
        assert_eq!(race_delay(ms(600), ms(0)), ms(1000));
        assert_eq!(Memory::new(NetworkId::UNKNOWN).race_delay(SERVER), None);
    }

    #[test]
    fn the_wait_for_a_lost_answer_is_no_round_trip_time() {
        let ms = Duration::from_millis;
        assert!(is_exact(0, false, ms(20)) && is_exact(0, true, ms(1500)));
        // The SYN was lost, or its answer.
        assert!(is_exact(1, true, ms(20)) && !is_exact(1, true, ms(1020)));
        assert!(!is_exact(1, false, ms(20)));
    }

    #[test]
    fn one_lost_race_is_no_failure_and_two_are() {
        let mut memory = Memory::new(NetworkId([1; 16]));
        memory.lost_race(SERVER, AGO);
        // This one was under way at the same time.
        memory.lost_race(SERVER, AGO);
        assert_eq!(memory.permission(SERVER), Permission::Everything);
        memory.lost_race(SERVER, Duration::ZERO);
        assert_ne!(memory.permission(SERVER), Permission::Everything);
        // It belongs to the network.
        memory.move_to(NetworkId([2; 16]));
        assert_eq!(memory.permission(SERVER), Permission::Everything);
        memory.lost_race(SERVER, AGO);
        assert_eq!(memory.permission(SERVER), Permission::Everything);
    }

    #[test]
    fn an_accepted_first_flight_ends_the_count() {
        let mut memory = Memory::new(NetworkId([1; 16]));
        memory.lost_race(SERVER, AGO);
        memory.accepted(SERVER, AGO * 2);
        memory.lost_race(SERVER, Duration::ZERO);
        assert_eq!(memory.permission(SERVER), Permission::Everything);
    }

    /// The server was overloaded, and lost one first flight of several.
    #[test]
    fn a_lost_race_does_not_count_if_a_later_first_flight_was_accepted() {
        let mut memory = Memory::new(NetworkId([1; 16]));
        for _ in 0..5 {
            memory.accepted(SERVER, AGO);
            memory.lost_race(SERVER, AGO * 3);
        }
        assert_eq!(memory.permission(SERVER), Permission::Everything);
        // These left later than each that was accepted.
        memory.lost_race(SERVER, Duration::ZERO);
        memory.lost_race(SERVER, Duration::ZERO);
        assert_ne!(memory.permission(SERVER), Permission::Everything);
    }

    #[test]
    fn a_closed_port_is_known_until_it_answers() {
        let mut memory = Memory::new(NetworkId([1; 16]));
        let [port, other] = [80, 81].map(|port| SocketAddr::new(SERVER, port));
        memory.note_closed(port);
        assert!(memory.was_closed(port) && !memory.was_closed(other));
        memory.move_to(NetworkId([2; 16]));
        assert!(!memory.was_closed(port), "known on another network");
        memory.move_to(NetworkId([1; 16]));
        memory.raced(port, &[]);
        assert!(!memory.was_closed(port));
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::new(NetworkId::UNKNOWN);
        for port in 0..=CLOSED as u16 {
            memory.note_closed(SocketAddr::new(SERVER, port));
        }
        assert_eq!(memory.closed.len(), CLOSED);
        for n in 0..=SERVERS as u32 {
            memory.lost_race(std::net::Ipv4Addr::from_bits(n).into(), AGO);
        }
        assert_eq!(memory.servers.len(), SERVERS);
    }
}
