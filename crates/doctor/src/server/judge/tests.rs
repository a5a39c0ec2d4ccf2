//! From visits to verdicts.

use super::*;
use crate::catalogue::Verdict;
use crate::hops::{Path, Router};
use std::io::ErrorKind;

const PLAIN: Connected = Connected { fail: ClientFail::None, accepted: false, carried: false, again: false };
/// The SYN asked for a cookie.
const ASKED: Connected = Connected { fail: ClientFail::NoCookie, ..PLAIN };
/// The SYN with a cookie and data was accepted.
const TAKEN: Connected = Connected { accepted: true, carried: true, ..PLAIN };
/// It was answered, and the data not acknowledged.
const NOT_TAKEN: Connected = Connected { fail: ClientFail::DataNotAcked, carried: true, ..PLAIN };
/// It was lost.
const LOST: Connected = Connected { fail: ClientFail::SynRetransmitted, carried: true, again: true, ..PLAIN };

fn visit(sent: Sent, connected: Connected, cookie: Option<Option<&str>>) -> Visit {
    Visit { sent, end: VisitEnd::Connected(connected), cookie: cookie.map(|one| one.map(str::to_owned)) }
}

/// An ordinary visit, and then these with data. Each has the kernel's cookie afterwards; `-` is none, and `?` one that
/// cannot be read.
fn facts(before: &str, visits: &[(Connected, &str)]) -> ServerFacts {
    let cookie = |text| match text {
        "?" => None,
        "-" => Some(None),
        text => Some(Some(text)),
    };
    let mut all = vec![visit(Sent::Plain, PLAIN, None)];
    all.extend(visits.iter().map(|(connected, text)| visit(Sent::Data, *connected, cookie(text))));
    ServerFacts {
        client: true,
        data: true,
        before: cookie(before).map(|one| one.map(str::to_owned)),
        visits: all,
        ..ServerFacts::default()
    }
}

/// The finding of a check.
fn found(facts: &ServerFacts, check: &str) -> Option<Finding> {
    let lines = facts.judge();
    lines.into_iter().map(|line| line.finding).find(|finding| finding.entry().check == check)
}

fn data(before: &str, visits: &[(Connected, &str)]) -> Finding {
    found(&facts(before, visits), "data").unwrap()
}

#[test]
fn a_server_that_does_not_answer_is_asked_for_nothing() {
    for (end, finding) in [
        (VisitEnd::Refused, Finding::Refused),
        (VisitEnd::Silent, Finding::Silent),
        (VisitEnd::Unreachable(ErrorKind::NetworkUnreachable), Finding::Unreachable),
    ] {
        let mut facts = facts("-", &[]);
        facts.visits[0].end = end;
        let lines: Vec<_> = facts.judge().into_iter().map(|line| line.finding).collect();
        assert_eq!(lines, [finding]);
        assert_eq!(facts.passage(), Passage::NotSeen);
    }
}

#[test]
fn a_cookie_is_granted_at_once_later_or_not_at_all() {
    let cookie = |before, visits: &[(Connected, &str)]| found(&facts(before, visits), "cookie").unwrap();
    assert_eq!(cookie("-", &[(ASKED, "a"), (TAKEN, "a")]), Finding::CookieGranted);
    assert_eq!(cookie("-", &[(ASKED, "-"), (ASKED, "a"), (TAKEN, "a")]), Finding::CookieSecondTry);
    assert_eq!(cookie("-", &[(ASKED, "-"), (ASKED, "-")]), Finding::CookieNotGranted);
    assert_eq!(cookie("a", &[(TAKEN, "a")]), Finding::CookieKnown);
    // Without the kernel's cookies, the third SYN shows that there is one.
    assert_eq!(cookie("?", &[(ASKED, "?"), (TAKEN, "?")]), Finding::CookieGranted);
    assert_eq!(cookie("?", &[(ASKED, "?"), (ASKED, "?"), (ASKED, "?")]), Finding::CookieNotGranted);
    // A farm of which some servers ignore Fast Open is no path that removes an option.
    let farm = [(ASKED, "-"), (ASKED, "a"), (NOT_TAKEN, "a"), (TAKEN, "a")];
    assert_eq!(cookie("-", &farm), Finding::CookieGranted);
}

#[test]
fn a_lost_request_is_the_path_s_only_if_it_repeats_and_plain_syns_pass() {
    let lost = Connected { again: true, ..ASKED };
    let twice = facts("-", &[(lost, "-"), (lost, "-")]);
    assert_eq!(found(&twice, "cookie"), Some(Finding::OptionDropped));
    let once = facts("-", &[(lost, "-"), (ASKED, "-")]);
    assert_eq!(found(&once, "cookie"), Some(Finding::CookieLost));
    assert_eq!(
        found(&facts("-", &[(lost, "-"), (ASKED, "a"), (TAKEN, "a")]), "cookie"),
        Some(Finding::CookieGranted)
    );
    let mut lossy = twice;
    lossy.visits[0] = visit(Sent::Plain, Connected { again: true, ..PLAIN }, None);
    assert_eq!(found(&lossy, "cookie"), Some(Finding::CookieLost));
}

/// The kernel sends ordinary SYNs then, whose answers say nothing of the server.
#[test]
fn a_kernel_that_may_not_or_does_not_ask_says_nothing_of_the_server() {
    let paused = facts("-", &[(PLAIN, "-")]);
    assert_eq!(found(&paused, "cookie"), Some(Finding::CookiePaused));
    assert_eq!(found(&paused, "data"), None);
    assert!(!paused.fails());
    let disabled = ServerFacts { client: false, ..facts("-", &[]) };
    assert_eq!(found(&disabled, "cookie"), Some(Finding::CookieClientDisabled));
    assert!(!disabled.fails());
}

#[test]
fn accepted_data_is_accepted_also_after_a_stale_cookie() {
    assert_eq!(data("-", &[(ASKED, "a"), (TAKEN, "a"), (TAKEN, "a")]), Finding::DataAccepted);
    assert_eq!(data("a", &[(NOT_TAKEN, "b"), (TAKEN, "b"), (TAKEN, "b")]), Finding::DataAccepted);
    // Cookies for one use are replaced each time.
    assert_eq!(data("a", &[(TAKEN, "b"), (TAKEN, "c"), (TAKEN, "d")]), Finding::DataAccepted);
    let again = Connected { again: true, fail: ClientFail::SynRetransmitted, ..TAKEN };
    assert_eq!(data("a", &[(again, "a"), (TAKEN, "a")]), Finding::DataAccepted, "the answer was lost");
}

#[test]
fn refusals_of_fresh_cookies_are_told_from_a_key_that_changed() {
    let turns = [(ASKED, "a"), (NOT_TAKEN, "b"), (NOT_TAKEN, "a"), (NOT_TAKEN, "b")];
    assert_eq!(data("-", &turns), Finding::DifferingCookies);
    let once = [(ASKED, "a"), (TAKEN, "a"), (NOT_TAKEN, "b"), (TAKEN, "b"), (TAKEN, "b")];
    assert_eq!(data("-", &once), Finding::DataRefusedOnce);
    let twice = [(ASKED, "a"), (NOT_TAKEN, "b"), (TAKEN, "b"), (NOT_TAKEN, "c")];
    assert_eq!(data("-", &twice), Finding::DifferingCookies);
    // The first cookie was from before, but the next one is fresh: and the first one comes back.
    assert_eq!(data("a", &[(NOT_TAKEN, "b"), (NOT_TAKEN, "a"), (TAKEN, "a")]), Finding::DifferingCookies);
    // A server without Fast Open accepts nothing, so this shows without the kernel's cookies as well.
    let unreadable = [(ASKED, "?"), (TAKEN, "?"), (NOT_TAKEN, "?"), (NOT_TAKEN, "?")];
    assert_eq!(data("?", &unreadable), Finding::DifferingCookies);
}

#[test]
fn data_that_is_ignored_is_not_refused() {
    assert_eq!(data("-", &[(ASKED, "a"), (NOT_TAKEN, "a"), (NOT_TAKEN, "a")]), Finding::DataIgnored);
    assert_eq!(data("a", &[(NOT_TAKEN, "a"), (TAKEN, "a")]), Finding::DataSomeIgnored);
    assert_eq!(data("a", &[(NOT_TAKEN, "b"), (NOT_TAKEN, "b")]), Finding::DataSomeIgnored);
    assert_eq!(data("?", &[(NOT_TAKEN, "?"), (NOT_TAKEN, "?")]), Finding::DataAmbiguous);
}

#[test]
fn a_port_without_fast_open_is_not_blamed_for_a_cookie_that_its_address_had() {
    let mut port = facts("a", &[(NOT_TAKEN, "a"), (NOT_TAKEN, "a")]);
    let lines = port.judge();
    let data = lines.iter().find(|line| line.finding.entry().check == "data").unwrap();
    assert_eq!(data.finding, Finding::DataNotAtThisPort);
    assert!(data.detail.contains("this port has no Fast Open"), "{}", data.detail);
    let worst = lines.iter().map(|line| line.finding.entry().verdict).max();
    assert_eq!(worst, Some(Verdict::Warning));
    // A router that takes the cookie away is the path's fault.
    let gone = Some(Router { hop: 2, address: None });
    port.path = Some(Path { removed: gone, ..Path::default() });
    assert_eq!(found(&port, "data"), Some(Finding::DataIgnored));
}

#[test]
fn lost_data_is_the_path_s_only_if_it_repeats_and_plain_syns_pass() {
    let twice = [(ASKED, "a"), (LOST, "a"), (LOST, "a")];
    assert_eq!(data("-", &twice), Finding::DataDropped);
    assert_eq!(facts("-", &twice).passage(), Passage::Drops);
    assert_eq!(data("a", &[(LOST, "a"), (TAKEN, "a"), (TAKEN, "a")]), Finding::DataLostOnce);
    let mut lossy = facts("-", &twice);
    lossy.visits[0] = visit(Sent::Plain, Connected { again: true, ..PLAIN }, None);
    assert_eq!(found(&lossy, "data"), Some(Finding::DataLossy));
    assert_eq!(lossy.passage(), Passage::NotSeen);
}

#[test]
fn without_a_cookie_the_path_shows_by_data_alone() {
    let with = |bare: &[Connected]| {
        let mut facts = facts("-", &[(ASKED, "-"), (ASKED, "-")]);
        facts.visits.extend(bare.iter().map(|one| visit(Sent::Bare, *one, Some(None))));
        (found(&facts, "data"), facts.passage())
    };
    assert_eq!(with(&[NOT_TAKEN]), (Some(Finding::DataPasses), Passage::Passes));
    assert_eq!(with(&[LOST, NOT_TAKEN]), (Some(Finding::DataPasses), Passage::Passes));
    assert_eq!(with(&[LOST, LOST]), (Some(Finding::DataDropped), Passage::Drops));
    assert_eq!(with(&[PLAIN]).0, None, "the kernel sent no data");
}

#[test]
fn the_path_is_followed_only_if_first_flights_fail() {
    assert!(!facts("-", &[(ASKED, "a"), (TAKEN, "a")]).fails());
    assert!(facts("-", &[(ASKED, "-"), (ASKED, "-")]).fails());
    assert!(facts("-", &[(ASKED, "a"), (LOST, "a"), (LOST, "a")]).fails());
    assert!(facts("a", &[(NOT_TAKEN, "a"), (NOT_TAKEN, "a")]).fails());
    // Different cookies are the servers' fault.
    assert!(!facts("a", &[(NOT_TAKEN, "b"), (NOT_TAKEN, "a"), (NOT_TAKEN, "b")]).fails());
}

#[test]
fn what_routers_quote_is_said_with_how_far_it_goes() {
    let router = |hop| Some(Router { hop, address: Some([10, 0, 0, hop].into()) });
    let with = |kept, removed, routers| {
        let mut facts = facts("-", &[(ASKED, "-"), (ASKED, "-")]);
        facts.path = Some(Path { kept, removed, routers });
        let lines = facts.judge();
        let line = lines.into_iter().find(|line| line.finding.entry().check == "option").unwrap();
        (line.finding, line.detail)
    };
    let (finding, detail) = with(router(1), router(2), None);
    assert_eq!(finding, Finding::OptionRemoved);
    assert!(detail.contains("router 2 (10.0.0.2) without its option"), "{detail}");
    let (finding, detail) = with(router(2), None, Some(2));
    assert_eq!(finding, Finding::OptionKept);
    assert!(detail.contains("at the last router, router 2"), "{detail}");
    let (finding, detail) = with(router(2), None, Some(4));
    assert_eq!(finding, Finding::OptionKept);
    assert!(detail.contains("No later router"), "{detail}");
    assert_eq!(with(None, None, Some(0)).0, Finding::OptionKept);
    assert_eq!(with(None, None, Some(3)).0, Finding::OptionNotQuoted);
    assert_eq!(with(None, None, None).0, Finding::OptionNotQuoted);
}

#[test]
fn without_data_only_cookies_are_asked_for() {
    let mut facts = ServerFacts { data: false, ..facts("-", &[]) };
    facts.visits.push(visit(Sent::Request, PLAIN, Some(Some("a"))));
    assert_eq!(found(&facts, "cookie"), Some(Finding::CookieGranted));
    assert_eq!(found(&facts, "data"), Some(Finding::DataNotTried));
    facts.before = None;
    facts.visits[1].cookie = None;
    assert_eq!(found(&facts, "cookie"), Some(Finding::CookieAmbiguous));
}
