//! A front's counts for the recorder of the [`metrics`] crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_dns_queries_total` | `transport` | messages received over `udp` or `tcp` |
//! | `firstflight_dns_bytes_total` | `direction` | bytes of messages, `in` and `out` |
//! | `firstflight_dns_answers_total` | `kind` | answers sent, including those that the limit made empty ([`Kind::as_str`]) |
//! | `firstflight_dns_truncated_total` | `reason` | answers sent empty so that the resolver asks over TCP: too long (`size`), above the limit (`rate`) |
//! | `firstflight_dns_dropped_total` | `reason` | messages without an answer: not a query (`ignored`), above the limit (`rate`), could not be written (`internal`) |
//! | `firstflight_dns_fragments_total` | `outcome` | fragments: `taken`, `duplicate`, `late`, `conflict`, `malformed` |
//! | `firstflight_dns_sets_total` | `outcome` | sets of fragments: `begun`, `completed`, `repaired` (completed with the parity), `mismatch`, `expired`, `evicted` |
//! | `firstflight_dns_sets` | | sets of fragments in the table now, including those completed recently |
//! | `firstflight_dns_first_flights_total` | `outcome` | complete first flights: `relayed`, `budget`, `unknown_key`, `not_opened`, `repeated`, `failed` |
//! | `firstflight_dns_forwarded_total` | `direction` | fragments sent to the front of the zone that owns them (`out`), and accepted from others (`in`) |
//! | `firstflight_dns_forward_dropped_total` | `reason` | fragments that were not forwarded (`budget_out`, `not_sent`) or not accepted (`budget_in`), and datagrams at the port for other fronts that were dropped: `malformed`, `unknown_key`, `time`, `old_boot`, `replayed`, `behind`, `forged`, `content`, `address`, `same_number`, `too_many` |
//! | `firstflight_dns_fronts_alive` | | fronts of the zone that are alive, including this one; 0 without others |
//!
//! The counts of a server to which fronts on other machines relay ([`RelayPublisher`]):
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_relay_datagrams_total` | `outcome` | datagrams: `taken`, and those dropped, by reason: `malformed`, `unknown_key`, `time`, `old_boot`, `replayed`, `behind`, `forged`, `content`, `too_many` |
//! | `firstflight_relay_clock_checks_total` | `outcome` | datagrams with a wrong time that were opened to check the front's clock: `genuine`, `forged` |

use crate::forward::ForwardCounters;
use crate::front::{FrontCounters, Kind};
use crate::reassembly::ReassemblyCounters;
use crate::relay::RelayCounters;
use crate::service::FrontHandle;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const SETS: &str = "firstflight_dns_sets";
const ALIVE: &str = "firstflight_dns_fronts_alive";

type Counters = (FrontCounters, ReassemblyCounters, ForwardCounters);

/// Publishes the counts of one front.
#[derive(Debug)]
pub struct Publisher {
    handle: FrontHandle,
    published: Counters,
}

impl Publisher {
    /// A publisher for the service with this handle. Nothing is published yet.
    #[must_use]
    pub fn new(handle: FrontHandle) -> Self {
        Self { handle, published: Default::default() }
    }

    /// Tells the recorder of the [`metrics`] crate what has changed since the last call.
    pub fn publish(&mut self) {
        let ((front, table), forwarding) = (self.handle.counters(), self.handle.forwarding());
        let (forward, alive) = forwarding.unwrap_or_default();
        let now = (front, table, forward);
        increment(counts(&now), counts(&self.published));
        gauge!(SETS).set(self.handle.sets() as f64);
        gauge!(ALIVE).set(alive as f64);
        self.published = now;
    }
}

/// Publishes the counts of a server that accepts datagrams from fronts on other machines.
#[derive(Debug, Default)]
pub struct RelayPublisher(RelayCounters);

impl RelayPublisher {
    /// A publisher that has not published anything yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the recorder of the [`metrics`] crate what has changed since the last call.
    pub fn publish(&mut self, now: &RelayCounters) {
        increment(relay_counts(now), relay_counts(&self.0));
        self.0 = *now;
    }
}

fn increment(now: Vec<Count>, before: Vec<Count>) {
    for (new, old) in now.into_iter().zip(before) {
        let (key, value) = new.label;
        counter!(new.name, key => value).increment(new.value.saturating_sub(old.value));
    }
}

struct Count {
    name: &'static str,
    label: (&'static str, &'static str),
    value: u64,
    says: &'static str,
}

fn counts((front, table, forward): &Counters) -> Vec<Count> {
    let mut counts = Vec::with_capacity(60);
    let mut add = |name, says, key, values: &[(&'static str, u64)]| {
        let count = |&(label, value): &(_, _)| Count { name, label: (key, label), value, says };
        counts.extend(values.iter().map(count));
    };
    let transports = [("udp", front.udp), ("tcp", front.tcp)];
    add("firstflight_dns_queries_total", "Messages that came", "transport", &transports);
    let bytes = [("in", front.bytes_in), ("out", front.bytes_out)];
    add("firstflight_dns_bytes_total", "Bytes of messages", "direction", &bytes);
    let answers = Kind::ALL.map(|kind| (kind.as_str(), front.answers(kind)));
    add("firstflight_dns_answers_total", "Answers sent", "kind", &answers);
    let cut = [("size", front.truncated), ("rate", front.slipped)];
    add("firstflight_dns_truncated_total", "Answers sent empty", "reason", &cut);
    let dropped = [("ignored", front.ignored), ("rate", front.limited), ("internal", front.unanswered)];
    add("firstflight_dns_dropped_total", "Messages without an answer", "reason", &dropped);
    let not_taken = table.duplicates + table.late + table.conflicts;
    let fragments = [
        ("taken", table.fragments.saturating_sub(not_taken)),
        ("duplicate", table.duplicates),
        ("late", table.late),
        ("conflict", table.conflicts),
        ("malformed", front.malformed_fragments),
    ];
    add("firstflight_dns_fragments_total", "Fragments, and what became of them", "outcome", &fragments);
    let sets = [
        ("begun", table.sets),
        ("completed", table.completed),
        ("repaired", table.repaired),
        ("mismatch", table.mismatches),
        ("expired", table.expired),
        ("evicted", table.evicted_full + table.evicted_share),
    ];
    add("firstflight_dns_sets_total", "Sets of fragments, and what became of them", "outcome", &sets);
    let flights = [
        ("relayed", front.relayed),
        ("budget", front.over_budget),
        ("unknown_key", front.unknown_key),
        ("not_opened", front.not_opened),
        ("repeated", front.repeated),
        ("failed", front.relay_failed),
    ];
    add("firstflight_dns_first_flights_total", "First flights that were whole", "outcome", &flights);
    let forwarded = [("out", forward.forwarded), ("in", forward.taken)];
    add("firstflight_dns_forwarded_total", "Fragments handed to other fronts", "direction", &forwarded);
    let dropped = [
        ("budget_out", forward.over_budget_out),
        ("budget_in", forward.over_budget_in),
        ("not_sent", forward.not_sent),
        ("address", forward.address),
        ("same_number", forward.same_number),
    ];
    let dropped = [&dropped[..], &dropped_datagrams(&forward.datagrams)].concat();
    let says = "Fragments not forwarded or not taken, and datagrams dropped";
    add("firstflight_dns_forward_dropped_total", says, "reason", &dropped);
    counts
}

/// Datagrams that were dropped, by reason.
const fn dropped_datagrams(of: &RelayCounters) -> [(&'static str, u64); 9] {
    [
        ("malformed", of.malformed),
        ("unknown_key", of.unknown_key),
        ("time", of.time),
        ("old_boot", of.old_boot),
        ("replayed", of.replayed),
        ("behind", of.behind),
        ("forged", of.forged),
        ("content", of.content),
        ("too_many", of.too_many_fronts),
    ]
}

fn relay_counts(relay: &RelayCounters) -> Vec<Count> {
    let datagrams = [("taken", relay.accepted)].into_iter().chain(dropped_datagrams(relay)).map(|value| {
        ("firstflight_relay_datagrams_total", "Datagrams from fronts, and what became of them", value)
    });
    let checks = [("genuine", relay.time_genuine), ("forged", relay.time_forged)].map(|value| {
        ("firstflight_relay_clock_checks_total", "Datagrams with a wrong time that were opened", value)
    });
    let count = |(name, says, (label, value))| Count { name, label: ("outcome", label), value, says };
    datagrams.chain(checks).map(count).collect()
}

/// Describes the names of a [`RelayPublisher`] to the recorder of the [`metrics`] crate. One call is
/// sufficient.
pub fn describe_relay() {
    for count in relay_counts(&RelayCounters::default()) {
        describe_counter!(count.name, Unit::Count, count.says);
    }
}

/// Describes the names to the recorder of the [`metrics`] crate. One call is sufficient.
pub fn describe() {
    for count in counts(&Default::default()) {
        let unit = if count.name.contains("bytes") { Unit::Bytes } else { Unit::Count };
        describe_counter!(count.name, unit, count.says);
    }
    describe_gauge!(SETS, Unit::Count, "Sets of fragments that are held");
    describe_gauge!(ALIVE, Unit::Count, "Fronts of the zone that are alive, this one included");
}
