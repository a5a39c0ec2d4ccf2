//! The client: forged answers, names that leak, keys that nobody vouches for.

use super::{VICTIM, needs};
use crate::client::failures::Failures;
use crate::client::sent::{Event, Sent, SentAgain, Then};
use crate::client::trust::{AnsweredBy, KeySource, NamePolicy, Trust};
use crate::defence::Defence;
use crate::fixtures::{BOTH, COMPLETE};
use crate::flight::{REJECT, ServerAnswer};
use firstflight_wire::Instant;

const NOW: Instant = Instant::from_secs(5);
const FORGED: [Event<'_>; 6] =
    [Event::Reject, Event::Alert, Event::Close, Event::HelloRetryRequest, Event::Reset, Event::Timeout];

/// The server runs the request, and the attacker hides that behind a REJECT, an alert, a HelloRetryRequest (with a cookie
/// only, or another group), a close, a reset, or by dropping everything.
#[test]
fn a_forged_or_swallowed_answer_of_a_request_that_ran() {
    for event in FORGED {
        needs(Defence::Unknown, || {
            let mut sent = Sent::new(COMPLETE, VICTIM.bind(), b"h2", NamePolicy::Visible, NOW);
            assert!(sent.could_run_early() && !sent.may_race());
            // It ran. If it goes again by itself, it runs twice.
            matches!(sent.handle(event, NOW), Then::Again(_))
        });
    }
}

/// To learn a hidden name the attacker forges whatever makes a client connect in clear.
#[test]
fn a_hidden_name_behind_a_forged_answer() {
    for event in FORGED {
        needs(Defence::Hidden, || {
            let mut sent = Sent::new(BOTH, VICTIM.bind(), b"h2", NamePolicy::Hidden, NOW);
            let then = sent.handle(event, NOW);
            matches!(then, Then::Again(SentAgain::SameConnection | SentAgain::NewConnection))
        });
    }
    needs(Defence::Hidden, || NamePolicy::Hidden.allows_clear());
}

/// A forged key, in an answer with the AD bit set by the attacker.
#[test]
fn a_forged_key_with_the_ad_bit() {
    needs(Defence::AdBit, || Trust::Authenticated.allows(KeySource::Validated(AnsweredBy::Other)));
    assert!(!Trust::Authenticated.allows(KeySource::PlainDns));
}

/// The server's Finished is valid, but the server did not take the flight.
#[test]
fn a_server_that_did_not_take_the_flight() {
    for selected in [None, Some(&b"h2"[..])] {
        needs(Defence::Selection, || {
            let mut sent = Sent::new(BOTH, VICTIM.bind(), b"h2", NamePolicy::Visible, NOW);
            sent.handle(Event::FinishedVerified(selected), NOW) == Then::Continue
        });
    }
}

/// Sites of the attacker, which a page of the attacker names, publish keys and take no flights. Their ordinary TLS works.
/// So nobody else gets a flight on this network for a day.
#[test]
fn three_servers_of_the_attacker_and_a_network() {
    needs(Defence::NetworkCarries, || {
        let mut memory = Failures::new();
        memory.worked(&"home", &"honest.example", NOW);
        for server in ["x.example", "y.example", "z.example"] {
            for _ in 0..2 {
                memory.failed(&"home", &server, NOW);
                memory.ordinary_worked(&"home", &server, NOW);
            }
        }
        !memory.allows(&"home", &"honest.example", NOW)
    });
}

/// The attacker keeps a server down for the time of two visits. Flights to it stop for a day.
#[test]
fn an_outage_of_a_minute_and_flights() {
    needs(Defence::Outage, || {
        let mut memory = Failures::new();
        for _ in 0..2 {
            memory.failed(&"home", &"honest.example", NOW);
            memory.ordinary_failed(&"home", &"honest.example", NOW);
        }
        !memory.allows(&"home", &"honest.example", NOW)
    });
}

/// A REJECT with anything in it is none, so it cannot carry a message of another version.
#[test]
fn only_one_reject() {
    for at in 0..4 {
        let mut other = REJECT;
        other[at] ^= 1;
        assert!(!matches!(ServerAnswer::read(&other), ServerAnswer::Reject | ServerAnswer::More));
    }
}
