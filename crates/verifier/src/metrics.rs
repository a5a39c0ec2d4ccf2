//! A verifier's counts for the recorder of the [`metrics`] crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_verifier_messages_total` | `transport` | messages received over `udp` or `tcp` |
//! | `firstflight_verifier_bytes_total` | `direction` | bytes of messages, `in` and `out` |
//! | `firstflight_verifier_dropped_total` | `reason` | messages without an answer: `short`, `malformed` |
//! | `firstflight_verifier_challenges_total` | `again` | challenges sent; `true`: in answer to one that was wrong or too old |
//! | `firstflight_verifier_certificates_total` | `refreshed` | certificates issued |
//! | `firstflight_verifier_tokens_total` | | vantage tokens given |
//! | `firstflight_verifier_probes_total` | | probes sent from another address |
//! | `firstflight_verifier_refused_total` | `reason` | requests refused |
//! | `firstflight_verifier_signatures_total` | `what` | signatures `made` and `verified` |
//!
//! The `reason` of a refusal is the label of [`Reason::as_str`]. A reason has a series after it first
//! occurred.

use crate::counters::Counters;
use crate::service::CounterHandle;
use firstflight_wire::asap::message::Reason;
use metrics::{Unit, counter, describe_counter};

/// Publishes the counts of one verifier.
#[derive(Debug)]
pub struct Publisher {
    handle: CounterHandle,
    published: Counters,
}

impl Publisher {
    /// A publisher for the service with these counters. Nothing is published yet.
    #[must_use]
    pub fn new(handle: CounterHandle) -> Self {
        Self { handle, published: Counters::default() }
    }

    /// Tells the recorder of the [`metrics`] crate what has changed since the last call.
    pub fn publish(&mut self) {
        let now = self.handle.get();
        for (new, old) in counts(&now).into_iter().zip(counts(&self.published)) {
            let handle = match new.label {
                Some((key, value)) => counter!(new.name, key => value),
                None => counter!(new.name),
            };
            handle.increment(new.value.saturating_sub(old.value));
        }
        for &reason in Reason::ALL {
            let (new, old) = (now.refused(reason), self.published.refused(reason));
            if new > 0 {
                counter!(REFUSED, "reason" => reason.as_str()).increment(new.saturating_sub(old));
            }
        }
        self.published = now;
    }
}

const REFUSED: &str = "firstflight_verifier_refused_total";

struct Count {
    name: &'static str,
    label: Option<(&'static str, &'static str)>,
    value: u64,
    says: &'static str,
}

fn counts(counters: &Counters) -> [Count; 14] {
    let c = counters;
    let count = |name, label, value, says| Count { name, label, value, says };
    let (messages, bytes) = ("firstflight_verifier_messages_total", "firstflight_verifier_bytes_total");
    let (dropped, challenges) =
        ("firstflight_verifier_dropped_total", "firstflight_verifier_challenges_total");
    let (certificates, signatures) =
        ("firstflight_verifier_certificates_total", "firstflight_verifier_signatures_total");
    [
        count(messages, Some(("transport", "udp")), c.datagrams, "Messages that came"),
        count(messages, Some(("transport", "tcp")), c.stream_messages, "Messages that came"),
        count(bytes, Some(("direction", "in")), c.bytes_in, "Bytes of messages"),
        count(bytes, Some(("direction", "out")), c.bytes_out, "Bytes of messages"),
        count(dropped, Some(("reason", "short")), c.dropped_short, "Messages without an answer"),
        count(dropped, Some(("reason", "malformed")), c.dropped_malformed, "Messages without an answer"),
        count(challenges, Some(("again", "false")), c.challenges - c.challenges_again, "Challenges sent"),
        count(challenges, Some(("again", "true")), c.challenges_again, "Challenges sent"),
        count(certificates, Some(("refreshed", "false")), c.certificates - c.refreshed, "Certificates given"),
        count(certificates, Some(("refreshed", "true")), c.refreshed, "Certificates given"),
        count("firstflight_verifier_tokens_total", None, c.tokens, "Vantage tokens given"),
        count("firstflight_verifier_probes_total", None, c.probes, "Probes sent from another address"),
        count(signatures, Some(("what", "made")), c.signatures_made, "Signatures made and verified"),
        count(signatures, Some(("what", "verified")), c.signatures_verified, "Signatures made and verified"),
    ]
}

/// Describes the names to the recorder of the [`metrics`] crate. One call is sufficient.
pub fn describe() {
    for count in counts(&Counters::default()) {
        let unit = if count.name.contains("bytes") { Unit::Bytes } else { Unit::Count };
        describe_counter!(count.name, unit, count.says);
    }
    describe_counter!(REFUSED, Unit::Count, "Requests refused, and why");
}
