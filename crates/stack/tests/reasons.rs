//! For each reason and each end: a scenario in which that end reports the reason, or why the end never reports it.

mod client;
mod server;

use firstflight_credential::asap::reason as reason_of;
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::asap::Status;
use std::collections::BTreeSet;

/// Returns the outcome that an end reports.
pub(crate) type Scenario = fn() -> Outcome;

/// Whether an end reports a reason.
enum Said {
    /// The end reports it in this scenario.
    By(Scenario),
    /// The end never reports it, for this reason.
    Never(&'static str),
    /// The end reports it if its sockets are the kernel's (`firstflight-kernel`), and never with a stack.
    Kernel,
}

use Said::{By, Kernel, Never};

/// RFC 7413 and ASAP cannot express it.
const ONLY_SEEN_THERE: &str = "the server's own knowledge, which no packet tells";
/// The server sees only what arrives.
const CLIENT_ONLY: &str = "decided, or seen, at the client only";
const STATELESS: &str =
    "answered with a SYN cookie: nothing of the SYN is kept, and its connection says `syn-cookie`";

/// The row of `reason`: what the client and the server report.
fn said(reason: Reason) -> (Said, Said) {
    use Reason as R;
    match reason {
        R::NotRequested => (By(client::not_requested), By(server::not_requested)),
        R::NoCredential => (By(client::no_credential), By(server::no_credential)),
        R::StaleOrWrongCredential => (By(client::stale_credential), By(server::stale_credential)),
        R::DataNotAcknowledged => (By(client::data_not_acknowledged), Never(CLIENT_ONLY)),
        R::DataPartlyAcknowledged => (By(client::data_partly_acknowledged), Never(CLIENT_ONLY)),
        R::OptionStripped => (By(client::option_stripped), Never(CLIENT_ONLY)),
        R::SynTimedOut => (By(client::syn_timed_out), Never(CLIENT_ONLY)),
        R::Policy => (By(client::policy), By(server::policy)),
        R::Replay => (By(client::replay), By(server::replay)),
        R::UntrustedVerifier => (By(client::untrusted_verifier), By(server::untrusted_verifier)),
        R::Expired => (By(client::expired), By(server::expired)),
        R::ClockSkew => (By(client::clock_skew), By(server::clock_skew)),
        R::Overloaded => (By(client::overloaded), By(server::overloaded)),
        R::StoreUnavailable => (Never(ONLY_SEEN_THERE), By(server::store_unavailable)),
        R::PendingLimit => (Never(ONLY_SEEN_THERE), By(server::pending_limit)),
        R::ClientLimit => (Never(ONLY_SEEN_THERE), By(server::client_limit)),
        R::ServerLimit => (Never(ONLY_SEEN_THERE), By(server::server_limit)),
        R::NotActive => (Never(ONLY_SEEN_THERE), By(server::not_active)),
        R::SynCookie => (Never(ONLY_SEEN_THERE), By(server::syn_cookie)),
        R::NoData => (By(client::no_data), By(server::no_data)),
        R::DeferredTooLong => (Never(ONLY_SEEN_THERE), By(server::deferred_too_long)),
        R::SystemDisabled => (Kernel, Kernel),
        R::AcceptedPart => (Kernel, Never(CLIENT_ONLY)),
        R::ReplyStripped => (By(client::reply_stripped), Never(CLIENT_ONLY)),
        R::AckInside => (By(client::ack_inside), Never(CLIENT_ONLY)),
        R::OverlapBlackhole => (By(client::overlap_blackhole), Never(CLIENT_ONLY)),
        R::AddressMismatch => (By(client::address_mismatch), By(server::address_mismatch)),
        R::WrongIdentity => (By(client::wrong_identity), By(server::wrong_identity)),
        R::GuardFloor => (By(client::guard_floor), By(server::guard_floor)),
        R::CapabilityUnknown => (By(client::capability_unknown), Never(CLIENT_ONLY)),
        R::PeerWithoutFastOpen => (By(client::peer_without_fast_open), Never(CLIENT_ONLY)),
        R::SimultaneousOpen => (By(client::simultaneous_open), Never("a listener sends no SYN of its own")),
        R::FailureMemory => (By(client::failure_memory), Never(CLIENT_ONLY)),
        R::MessageTooLarge => (By(client::message_too_large), Never(CLIENT_ONLY)),
        R::BadSignature => (By(client::bad_signature), Never(STATELESS)),
        R::Malformed => (By(client::malformed), Never(STATELESS)),
        R::PeerMisbehaved => (By(client::peer_misbehaved), Never(CLIENT_ONLY)),
        R::Unknown => (By(client::unknown), Never(CLIENT_ONLY)),
        R::NotReplaySafe => (By(client::not_replay_safe), Never(CLIENT_ONLY)),
        R::NotFirstAddress => (By(client::not_first_address), Never(CLIENT_ONLY)),
        R::SynRefused => (By(client::syn_refused), Never(CLIENT_ONLY)),
        R::PathTooSmall => (By(client::path_too_small), Never(CLIENT_ONLY)),
        R::OldConnection => (By(client::old_connection), Never(CLIENT_ONLY)),
        R::Barred => (By(client::barred), By(server::barred)),
        R::NetworkLimit => (Never(ONLY_SEEN_THERE), By(server::network_limit)),
        // The enum is not exhaustive for other crates, so a new reason fails here.
        other => panic!("{other:?} needs a scenario for both ends, or why an end never says it"),
    }
}

#[test]
fn each_end_says_each_of_its_reasons() {
    for reason in Reason::ALL {
        let (client, server) = said(*reason);
        for (end, said) in [("client", client), ("server", server)] {
            if let By(scenario) = said {
                assert_eq!(scenario().reason(), Some(*reason), "the {end} on {reason:?}");
            }
        }
    }
}

/// A reason that an end never reports is not the reason of any scenario, nor one that a reply could express.
#[test]
fn no_end_says_what_it_never_says() {
    let scenarios = |server: bool| {
        let rows = Reason::ALL.iter().map(move |reason| {
            let (client, other) = said(*reason);
            (*reason, if server { other } else { client })
        });
        rows.partition::<Vec<_>, _>(|(_, said)| matches!(said, By(_)))
    };
    let told: BTreeSet<Reason> = Status::ALL.iter().map(|status| reason_of(*status)).collect();
    for (server, others) in [(false, client::OTHERS), (true, server::OTHERS)] {
        let (says, never) = scenarios(server);
        let mut outcomes: BTreeSet<Reason> = says.iter().map(|(reason, _)| *reason).collect();
        outcomes.extend(others.iter().map(|(scenario, _)| scenario().reason().unwrap()));
        if !server {
            outcomes.extend(&told);
        }
        for (reason, said) in never {
            let why = match said {
                Never(why) => why,
                Kernel => "only the kernel's sockets report it",
                By(_) => panic!(),
            };
            assert!(!outcomes.contains(&reason), "{reason:?} is said, but: {why}");
        }
    }
}

/// More scenarios, whose reason was once wrong.
#[test]
fn the_reason_is_the_decision_that_kept_the_data_back() {
    for (scenario, reason) in client::OTHERS.iter().chain(server::OTHERS) {
        assert_eq!(scenario(), Outcome::Handshake(*reason));
    }
}

/// The page for users names, behind each reason, the ends that report it.
#[test]
fn the_page_names_the_ends_that_say_each_reason() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/outcomes.md");
    let page = std::fs::read_to_string(path).unwrap();
    for reason in Reason::ALL {
        let ends = match said(*reason) {
            (By(_) | Kernel, By(_) | Kernel) => "both",
            (By(_) | Kernel, Never(_)) => "client",
            (Never(_), By(_) | Kernel) => "server",
            (Never(_), Never(_)) => "neither",
        };
        let entry = format!("- `{}` ({ends}): ", reason.as_str());
        assert!(
            page.lines().any(|line| line.starts_with(&entry)),
            "docs/guide/outcomes.md needs an entry {entry}"
        );
    }
}
