//! Publishes an engine's counters to the recorder of the [`metrics`] crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_first_flights_total` | `side`, `outcome`, `reason` | connections by outcome of the first flight |
//! | `firstflight_connections_opened_total` | `side` | connections begun |
//! | `firstflight_handshakes_completed_total` | | handshakes completed, either side |
//! | `firstflight_cookies_granted_total` | | Fast Open cookies granted in SYN-ACKs |
//! | `firstflight_syn_cookies_sent_total` | | SYN cookies sent |
//! | `firstflight_syn_cookies_returned_total` | | SYN cookies that were returned and valid |
//! | `firstflight_resets_sent_total` | | RSTs for segments of no connection |
//! | `firstflight_encapsulation_paths_checked_total` | | checks of another UDP port of a connection's client |
//! | `firstflight_encapsulation_paths_moved_total` | | connections that moved to another UDP port of their client, or back |
//! | `firstflight_packets_total` | `direction` | packets received (reassembled packets included) and sent |
//! | `firstflight_fragments_total` | | fragments among the received packets |
//! | `firstflight_packets_reassembled_total` | | packets reassembled from fragments |
//! | `firstflight_reassemblies_abandoned_total` | `reason` | packets abandoned before all their fragments arrived |
//! | `firstflight_packets_dropped_total` | | packets that never reached a connection |
//! | `firstflight_segments_dropped_total` | | segments dropped by their connection |
//! | `firstflight_repeats_reset_total` | | connections reset because their first flight was accepted before, perhaps at another server |
//! | `firstflight_blocks_unreported_total` | | refused certificates of which the store of a farm was not told, because there were too many |
//! | `firstflight_store_questions_total` | `answer` | questions to the store of a farm |
//! | `firstflight_clients_limited_total` | | connections reset because their client had reached its limit |
//! | `firstflight_stuck_reset_total` | | connections reset to free memory, because their peers accepted nothing |
//! | `firstflight_time_waits_evicted_total` | | TIME-WAIT records removed early to make space |
//! | `firstflight_card_packets_dropped_total` | `reason` | packets dropped at a network card (feature `xdp`) |
//! | `firstflight_connections` | | gauge: connections, TIME-WAIT not counted |
//! | `firstflight_time_waits` | | gauge: connections in TIME-WAIT |
//! | `firstflight_buffer_bytes` | | gauge: bytes that send and receive buffers hold |
//! | `firstflight_fragment_bytes` | | gauge: bytes of packets with missing fragments |
//! | `firstflight_syn_queue` | | gauge: handshakes under way at listeners |
//! | `firstflight_accept_queue` | | gauge: connections that wait to be accepted |
//! | `firstflight_deferred_first_flights` | | gauge: first flights that wait for a verdict |
//! | `firstflight_pending_first_flights` | | gauge: accepted first flights that wait for their client's ACK |
//! | `firstflight_pending_first_flights_limit` | | gauge: how many first flights may wait for their client's ACK |
//! | `firstflight_fast_open_server` | | gauge: 1 if the kernel grants cookies to the clients of a [`Server`](crate::Server), 0 if its namespace does not allow it |
//! | `firstflight_cookie_key` | `fingerprint` | gauge: 1 for the primary key that cookies are granted by now, 0 for those before |
//! | `firstflight_quarantined_permits` | | gauge: permits of first flights that were reset, kept for a while |
//!
//! Connections that a [`Server`](crate::Server) accepts on the kernel's TCP count among the first flights of side `server`.
//!
//! `side` is `client` or `server`. `direction` is `in` or `out`. The `reason` of an abandoned reassembly is `timeout`
//! or `memory`. For first flights, `outcome` and `reason` are the labels of [`Outcome::as_str`] and
//! [`Reason::as_str`](firstflight_credential::Reason::as_str), as in
//! `firstflight_first_flights_total{side="server",outcome="accepted",reason=""}`. `answer` is `accepted`, `refused`, `activated` (a one-time
//! cookie), `timed-out`, `failed` or `turned-away` (not asked, because too many were open). A reason has a series after it
//! first occurred; `accepted` always has one.

#[cfg(all(feature = "xdp", target_os = "linux"))]
mod card;

#[cfg(all(feature = "xdp", target_os = "linux"))]
pub use card::CardPublisher;

use crate::{Counters, Endpoint, Gauges, Outcomes, StoreCounters};
use firstflight_credential::{Fingerprint, Outcome};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const COOKIE_KEY: &str = "firstflight_cookie_key";
const CARD_DROPPED: &str = "firstflight_card_packets_dropped_total";
const FIRST_FLIGHTS: &str = "firstflight_first_flights_total";
const STORE_QUESTIONS: &str = "firstflight_store_questions_total";
const FAST_OPEN_SERVER: &str = "firstflight_fast_open_server";

/// Publishes one engine's counters. The values of several publishers add up, so that an application with many engines
/// has one set of series.
///
/// ```
/// # use firstflight::{Endpoint, metrics::Publisher};
/// async fn keep_publishing(endpoint: Endpoint) {
///     let mut publisher = Publisher::new(endpoint);
///     loop {
///         publisher.publish();
///         tokio::time::sleep(std::time::Duration::from_secs(10)).await;
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Publisher {
    endpoint: Endpoint,
    counters: Counters,
    gauges: Gauges,
    store: StoreCounters,
}

impl Publisher {
    /// A publisher for `endpoint`. It has not published anything yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let (counters, gauges) = (Counters::default(), Gauges::default());
        Self { endpoint, counters, gauges, store: StoreCounters::default() }
    }

    /// Gives the recorder of the [`metrics`] crate the changes since the last call. Call it before the recorder is
    /// read, or periodically.
    pub fn publish(&mut self) {
        let (counters, gauges) = (self.endpoint.counters(), self.endpoint.gauges());
        publish_outcomes("client", &self.counters.client, &counters.client);
        publish_outcomes("server", &self.counters.server, &counters.server);
        for (count, new) in counts(&counters).into_iter().enumerate() {
            let old = counts(&self.counters).get(count).map_or(0, |old| old.value);
            let handle = match new.label {
                Some((key, value)) => counter!(new.name, key => value),
                None => counter!(new.name),
            };
            handle.increment(new.value.saturating_sub(old));
        }
        for ((name, new, _), (_, old, _)) in levels(&gauges).into_iter().zip(levels(&self.gauges)) {
            gauge!(name).increment(new - old);
        }
        let store = self.endpoint.store_counters();
        publish_answers(&self.store, &store);
        (self.counters, self.gauges, self.store) = (counters, gauges, store);
    }
}

/// Sets this publisher's share of the gauges back to zero in the recorder.
impl Drop for Publisher {
    fn drop(&mut self) {
        for (name, value, _) in levels(&self.gauges) {
            gauge!(name).decrement(value);
        }
    }
}

/// A server accepted a connection on the kernel's TCP.
pub(crate) fn accepted_by_kernel(outcome: Outcome) {
    count_outcome("server", outcome, 1);
}

/// Whether the kernel grants cookies.
pub(crate) fn kernel_grants(grants: bool) {
    gauge!(FAST_OPEN_SERVER).set(f64::from(u8::from(grants)));
}

/// Listeners grant cookies by the primary key with this fingerprint now, and by the one `before` no longer.
pub(crate) fn cookie_key(before: Option<Fingerprint>, now: Fingerprint) {
    if let Some(before) = before.filter(|before| *before != now) {
        gauge!(COOKIE_KEY, "fingerprint" => before.to_string()).set(0.0);
    }
    gauge!(COOKIE_KEY, "fingerprint" => now.to_string()).set(1.0);
}

fn count_outcome(side: &'static str, outcome: Outcome, count: u64) {
    let reason = outcome.reason().map_or("", |reason| reason.as_str());
    counter!(FIRST_FLIGHTS, "side" => side, "outcome" => outcome.as_str(), "reason" => reason)
        .increment(count);
}

fn publish_outcomes(side: &'static str, old: &Outcomes, new: &Outcomes) {
    for ((outcome, new), (_, old)) in new.iter().zip(old.iter()) {
        if new > 0 || outcome == Outcome::Accepted {
            count_outcome(side, outcome, new.saturating_sub(old));
        }
    }
}

/// An answer has a series after it first occurred.
fn publish_answers(old: &StoreCounters, new: &StoreCounters) {
    for ((answer, old), (_, new)) in answers(old).into_iter().zip(answers(new)) {
        if new > 0 {
            counter!(STORE_QUESTIONS, "answer" => answer).increment(new.saturating_sub(old));
        }
    }
}

/// What became of questions to a store.
fn answers(counters: &StoreCounters) -> [(&'static str, u64); 6] {
    let StoreCounters { asked: _, accepted, refused, activated, timed_out, failed, turned_away } = *counters;
    [
        ("accepted", accepted),
        ("refused", refused),
        ("activated", activated),
        ("timed-out", timed_out),
        ("failed", failed),
        ("turned-away", turned_away),
    ]
}

/// A counter other than those of the outcomes.
struct Count {
    name: &'static str,
    label: Option<(&'static str, &'static str)>,
    value: u64,
    says: &'static str,
}

fn counts(counters: &Counters) -> [Count; 22] {
    let plain = |name, value, says| Count { name, label: None, value, says };
    let labelled = |name, label, value, says| Count { name, label: Some(label), value, says };
    let (opened, packets) = ("firstflight_connections_opened_total", "firstflight_packets_total");
    let abandoned = "firstflight_reassemblies_abandoned_total";
    let why = "Packets given up before all their fragments arrived";
    let c = counters;
    [
        plain("firstflight_fragments_total", c.fragments_in, "Fragments among the packets given in"),
        plain(
            "firstflight_packets_reassembled_total",
            c.packets_reassembled,
            "Packets reassembled from fragments",
        ),
        labelled(abandoned, ("reason", "timeout"), c.reassembly_timeouts, why),
        labelled(abandoned, ("reason", "memory"), c.reassembly_evicted, why),
        labelled(opened, ("side", "client"), c.active_opens, "Connections begun"),
        labelled(opened, ("side", "server"), c.passive_opens, "Connections begun"),
        labelled(packets, ("direction", "in"), c.packets_in, "Packets given in and out"),
        labelled(packets, ("direction", "out"), c.packets_out, "Packets given in and out"),
        plain("firstflight_handshakes_completed_total", c.established, "Handshakes completed, either side"),
        plain("firstflight_cookies_granted_total", c.cookies_granted, "Fast Open cookies granted"),
        plain("firstflight_syn_cookies_sent_total", c.syn_cookies_sent, "SYN cookies sent"),
        plain(
            "firstflight_syn_cookies_returned_total",
            c.syn_cookies_good,
            "SYN cookies that came back right",
        ),
        plain("firstflight_resets_sent_total", c.resets_sent, "RSTs for segments of no connection"),
        plain(
            "firstflight_encapsulation_paths_checked_total",
            c.encapsulation_paths_checked,
            "Checks of another UDP port of a connection's client",
        ),
        plain(
            "firstflight_encapsulation_paths_moved_total",
            c.encapsulation_paths_moved,
            "Connections that moved to another UDP port of their client, or back",
        ),
        plain(
            "firstflight_packets_dropped_total",
            c.dropped_in_all(),
            "Packets that never reached a connection",
        ),
        plain(
            "firstflight_segments_dropped_total",
            c.segments_dropped,
            "Segments dropped by their connection",
        ),
        plain(
            "firstflight_repeats_reset_total",
            c.repeats_reset,
            "Connections reset because their first flight was accepted before, perhaps at another server",
        ),
        plain(
            "firstflight_blocks_unreported_total",
            c.blocks_unreported,
            "Refused certificates of which the store of a farm was not told, because there were too many",
        ),
        plain(
            "firstflight_clients_limited_total",
            c.clients_limited,
            "Connections reset because their client had reached its limit",
        ),
        plain(
            "firstflight_stuck_reset_total",
            c.stuck_reset,
            "Connections reset to free memory, because their peers accepted nothing",
        ),
        plain(
            "firstflight_time_waits_evicted_total",
            c.time_waits_evicted,
            "TIME-WAIT records that made way before their time",
        ),
    ]
}

/// Name, level, meaning.
fn levels(gauges: &Gauges) -> [(&'static str, f64, &'static str); 10] {
    // The conversion is exact below 2⁵³.
    let size = |level: usize| level as f64;
    [
        ("firstflight_connections", size(gauges.connections), "Connections, TIME-WAIT not counted"),
        ("firstflight_time_waits", size(gauges.time_waits), "Connections in TIME-WAIT"),
        ("firstflight_buffer_bytes", size(gauges.buffer_bytes), "Bytes that send and receive buffers hold"),
        (
            "firstflight_fragment_bytes",
            size(gauges.fragment_bytes),
            "Bytes of packets of which fragments are missing",
        ),
        ("firstflight_syn_queue", size(gauges.syn_queue), "Handshakes under way at listeners"),
        ("firstflight_accept_queue", size(gauges.accept_queue), "Connections that wait to be accepted"),
        (
            "firstflight_deferred_first_flights",
            size(gauges.deferred),
            "First flights that wait for a verdict",
        ),
        (
            "firstflight_pending_first_flights",
            gauges.pending as f64,
            "Accepted first flights that wait for their client's ACK",
        ),
        (
            "firstflight_pending_first_flights_limit",
            gauges.pending_limit as f64,
            "How many first flights may wait for their client's ACK",
        ),
        (
            "firstflight_quarantined_permits",
            size(gauges.quarantined),
            "Places of first flights that were reset, kept for a while",
        ),
    ]
}

/// Describes the series to the recorder of the [`metrics`] crate. Call it once.
pub fn describe() {
    describe_counter!(CARD_DROPPED, Unit::Count, "Packets dropped at the network card, by reason");
    let says = "Connections by what became of their first flight, and why it was not accepted";
    describe_counter!(FIRST_FLIGHTS, Unit::Count, says);
    for count in counts(&Counters::default()) {
        describe_counter!(count.name, Unit::Count, count.says);
    }
    let says = "Questions to the store of a farm, by answer";
    describe_counter!(STORE_QUESTIONS, Unit::Count, says);
    let says = "1 for the key that cookies are granted by now, 0 for those before";
    describe_gauge!(COOKIE_KEY, Unit::Count, says);
    describe_gauge!(
        FAST_OPEN_SERVER,
        Unit::Count,
        "Whether the kernel grants cookies: 1, or 0 if its settings forbid it"
    );
    for (name, _, says) in levels(&Gauges::default()) {
        let unit = if name.ends_with("_bytes") { Unit::Bytes } else { Unit::Count };
        describe_gauge!(name, unit, says);
    }
}

/// Runs a test that reads with the function what is recorded.
#[cfg(test)]
pub(crate) fn recorded(test: impl FnOnce(&dyn Fn() -> String)) {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || test(&|| recorder.handle().render()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_store_are_counted_once() {
        recorded(|read: &dyn Fn() -> String| {
            let old = StoreCounters { accepted: 3, ..StoreCounters::default() };
            publish_answers(&StoreCounters::default(), &old);
            publish_answers(&old, &StoreCounters { failed: 2, ..old });
            let text = read();
            let line = |answer, count| format!("{STORE_QUESTIONS}{{answer=\"{answer}\"}} {count}\n");
            assert!(text.contains(&line("accepted", 3)) && text.contains(&line("failed", 2)), "{text}");
            assert!(!text.contains("refused"), "{text}");
        });
    }
}
