//! From facts to verdicts.

use super::*;
use crate::catalogue::Verdict;
use std::net::IpAddr;

/// A machine on which all is well.
fn well() -> MachineFacts {
    MachineFacts {
        fast_open: Some(FastOpen { client: true, server: true, blackhole_secs: 0 }),
        host_namespace: true,
        syn_cookies: Some(1),
        mptcp: Some(1),
        synproxy_syns: 0,
        rules: Some(Rules::default()),
        translated: Some(Translated::default()),
        servers: Some(Vec::new()),
        counters: Some(Counters::default()),
        clock: Some((true, Duration::from_millis(3))),
    }
}

/// The findings that `facts` add to those of a machine on which all is well.
fn added(facts: &MachineFacts) -> Vec<Finding> {
    let usual: Vec<_> = well().judge().into_iter().map(|line| line.finding).collect();
    let found = facts.judge().into_iter().map(|line| line.finding);
    found.filter(|finding| !usual.contains(finding)).collect()
}

#[test]
fn a_machine_on_which_all_is_well_has_nothing_to_do() {
    let lines = well().judge();
    assert!(lines.iter().all(|line| line.finding.entry().verdict == Verdict::Ok), "{lines:?}");
}

#[test]
fn each_bit_of_the_setting_has_its_verdict() {
    let with = |client, server| {
        added(&MachineFacts { fast_open: Some(FastOpen { client, server, blackhole_secs: 0 }), ..well() })
    };
    assert_eq!(with(true, false), [Finding::ServerDisabled]);
    assert_eq!(with(false, true), [Finding::ClientDisabled]);
    assert_eq!(with(false, false), [Finding::ClientDisabled, Finding::ServerDisabled]);
    assert_eq!(added(&MachineFacts { fast_open: None, ..well() }), [Finding::SettingUnreadable]);
    let pauses = Some(FastOpen { client: true, server: true, blackhole_secs: 3600 });
    assert_eq!(added(&MachineFacts { fast_open: pauses, ..well() }), [Finding::Pauses]);
    assert_eq!(added(&MachineFacts { host_namespace: false, ..well() }), [Finding::NamespaceOwn]);
}

/// SYN cookies for every SYN matter only where servers may take first flights.
#[test]
fn syn_cookies_for_every_syn_matter_at_servers() {
    let client = Some(FastOpen { client: true, server: false, blackhole_secs: 0 });
    let always = MachineFacts { syn_cookies: Some(2), ..well() };
    assert_eq!(added(&always), [Finding::SynCookiesAlways]);
    let at_client = MachineFacts { fast_open: client, ..always };
    assert_eq!(added(&at_client), [Finding::ServerDisabled, Finding::SynCookiesAlwaysAtClient]);
    assert_eq!(added(&MachineFacts { syn_cookies: Some(0), ..well() }), []);
    assert_eq!(added(&MachineFacts { syn_cookies: None, ..well() }), [Finding::SynCookiesUnreadable]);
}

#[test]
fn mptcp_is_no_problem() {
    assert_eq!(added(&MachineFacts { mptcp: Some(0), ..well() }), [Finding::MptcpOff]);
    assert_eq!(added(&MachineFacts { mptcp: None, ..well() }), [Finding::MptcpOff]);
}

#[test]
fn rules_show_to_root_and_traces_of_them_to_everybody() {
    let rules = |synproxy, source, destination| {
        added(&MachineFacts { rules: Some(Rules { synproxy, source, destination }), ..well() })
    };
    assert_eq!(rules(true, false, false), [Finding::SynproxyPresent]);
    assert_eq!(rules(false, true, false), [Finding::SourcePresent]);
    assert_eq!(rules(false, false, true), [Finding::DestinationPresent]);
    let hidden = MachineFacts { rules: None, translated: None, ..well() };
    let not_seen = [Finding::SynproxyNotSeen, Finding::SourceNotSeen, Finding::DestinationNotSeen];
    assert_eq!(added(&hidden), not_seen);
    let traces = MachineFacts {
        synproxy_syns: 1,
        translated: Some(Translated { source: 1, destination: 2 }),
        ..hidden
    };
    assert_eq!(
        added(&traces),
        [Finding::SynproxyPresent, Finding::SourcePresent, Finding::DestinationPresent]
    );
}

#[test]
fn the_kernel_s_memory_counts_cookies_and_losses() {
    let entry = |cookie: Option<&str>, losses| tcp_metrics::Entry {
        server: IpAddr::from([192, 0, 2, 1]),
        source: None,
        cookie: cookie.map(str::to_owned),
        losses,
    };
    let with = |entries: Vec<_>| MachineFacts { servers: Some(entries), ..well() };
    assert_eq!(added(&with(vec![entry(Some("00"), 0), entry(None, 0)])), [Finding::CookiesKnown]);
    let lost = with(vec![entry(None, 2), entry(None, 1)]);
    assert_eq!(added(&lost), [Finding::SynLosses]);
    let said: Vec<_> = lost.judge().into_iter().map(|line| line.detail).collect();
    assert!(said.iter().any(|detail| detail.contains("192.0.2.1 and 1 more")), "{said:?}");
    assert_eq!(added(&MachineFacts { servers: None, ..well() }), [Finding::CookiesUnreadable]);
}

#[test]
fn counters_show_what_failed_more_than_by_accident() {
    let with = |counters| MachineFacts { counters: Some(counters), ..well() };
    let none = Counters::default();
    assert_eq!(added(&with(Counters { active: 5, active_fail: 5, ..none })), []);
    assert_eq!(added(&with(Counters { active_fail: 2, passive_fail: 2, ..none })), []);
    assert_eq!(added(&with(Counters { active: 5, active_fail: 6, ..none })), [Finding::ClientMostlyRefused]);
    assert_eq!(added(&with(Counters { passive_fail: 3, ..none })), [Finding::ServerMostlyRefused]);
    let overflow = Counters { overflow: 1, passive_fail: 3, ..none };
    assert_eq!(added(&with(overflow)), [Finding::Overflow]);
    assert_eq!(added(&MachineFacts { counters: None, ..well() }), [Finding::CountersUnreadable]);
    let met = with(Counters { black_holes: 1, ..none });
    assert_eq!(added(&met), [], "the kernel does not pause");
    let pauses = Some(FastOpen { client: true, server: true, blackhole_secs: 3600 });
    assert_eq!(added(&MachineFacts { fast_open: pauses, ..met }), [Finding::Pauses, Finding::BlackHoles]);
}

#[test]
fn a_clock_that_nobody_keeps_is_a_warning() {
    assert_eq!(
        added(&MachineFacts { clock: Some((false, Duration::ZERO)), ..well() }),
        [Finding::ClockNotKept]
    );
    assert_eq!(added(&MachineFacts { clock: None, ..well() }), [Finding::ClockStateUnreadable]);
}

#[test]
fn synproxy_counts_for_each_processor() {
    let table = "\
entries\t\tsyn_received\tcookie_invalid\tcookie_valid\tcookie_retrans\tconn_reopened
00000000\t0000000a\t00000000\t00000000\t00000000\t00000000
00000000\t00000001\t00000000\t00000000\t00000000\t00000000
";
    assert_eq!(synproxy_syns(table), 11);
    assert_eq!(synproxy_syns(""), 0);
}
