//! What this machine's settings do with first flights. [`MachineFacts::gather`] reads, [`MachineFacts::judge`] decides.

use super::catalogue::Finding;
use super::netstat::Counters;
use super::report::Line;
use super::rules::{self, Rules, Translated};
use super::tcp_metrics;
use firstflight::kernel::Setting;
use firstflight_kernel::SystemClock;
use std::path::Path;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How many failures are more than an accident.
const SEVERAL: u64 = 3;

/// The setting of Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FastOpen {
    pub client: bool,
    pub server: bool,
    /// For how long the kernel pauses after a black hole, seconds. 0: it never does.
    pub blackhole_secs: u64,
}

/// What is known of this machine. `None` is what cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MachineFacts {
    pub fast_open: Option<FastOpen>,
    /// It is the namespace that the machine booted with.
    pub host_namespace: bool,
    /// `net.ipv4.tcp_syncookies`.
    pub syn_cookies: Option<u64>,
    /// `net.mptcp.enabled`; `None` if the kernel has no MPTCP.
    pub mptcp: Option<u64>,
    /// SYNs that SYNPROXY has answered in this namespace.
    pub synproxy_syns: u64,
    pub rules: Option<Rules>,
    pub translated: Option<Translated>,
    /// What the kernel remembers of servers.
    pub servers: Option<Vec<tcp_metrics::Entry>>,
    pub counters: Option<Counters>,
    /// Whether a time service keeps the clock, and its largest error.
    pub clock: Option<(bool, Duration)>,
}

impl FastOpen {
    fn judge(self) -> [Line; 3] {
        let Self { client, server, blackhole_secs } = self;
        let client = if client {
            let detail = "The kernel sends first flights for programs that ask for it.";
            Line::new(Finding::ClientEnabled, detail)
        } else {
            let detail = "The kernel sends no first flights: net.ipv4.tcp_fastopen lacks bit 1.";
            Line::new(Finding::ClientDisabled, detail)
        };
        let server = if server {
            let detail = "The kernel takes first flights for servers that ask for it.";
            Line::new(Finding::ServerEnabled, detail)
        } else {
            let detail = "The kernel grants no cookies: net.ipv4.tcp_fastopen lacks bit 2.";
            Line::new(Finding::ServerDisabled, detail)
        };
        let pause = match blackhole_secs {
            0 => {
                let detail =
                    "The kernel never pauses Fast Open. A path that drops it costs a second at each visit.";
                Line::new(Finding::NeverPauses, detail)
            }
            secs => {
                let detail = "After a black hole the kernel pauses Fast Open to all servers";
                Line::new(Finding::Pauses, format_args!("{detail}, for {secs} s at first."))
            }
        };
        [client, server, pause]
    }
}

fn number(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

impl MachineFacts {
    /// Reads everything. Blocks.
    pub(crate) fn gather() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let setting = Setting::read().ok();
        let clock = SystemClock::read().ok();
        Self {
            fast_open: setting.map(|Setting { client, server, blackhole_secs, .. }| FastOpen {
                client,
                server,
                blackhole_secs,
            }),
            // Linux registers this setting in its first namespace only.
            host_namespace: Path::new("/proc/sys/net/core/netdev_budget").exists(),
            syn_cookies: number("net/ipv4/tcp_syncookies"),
            mptcp: number("net/mptcp/enabled"),
            synproxy_syns: read("/proc/net/stat/synproxy").map_or(0, |table| synproxy_syns(&table)),
            rules: rules::read(),
            translated: rules::connections(),
            servers: tcp_metrics::read(),
            counters: read("/proc/net/netstat").and_then(|table| Counters::parse(&table)),
            clock: clock.map(|clock| (clock.synchronised, clock.max_error)),
        }
    }

    /// The verdicts.
    pub(crate) fn judge(&self) -> Vec<Line> {
        let mut lines = self.settings();
        lines.extend(self.firewall());
        lines.extend(self.memory());
        lines.extend(self.counters());
        lines.push(match self.clock {
            Some((true, error)) => Line::new(
                Finding::ClockKept,
                format_args!("A time service keeps the clock within {error:?}."),
            ),
            Some((false, _)) => {
                Line::new(Finding::ClockNotKept, "The kernel knows of no time service that keeps its clock.")
            }
            None => {
                Line::new(Finding::ClockStateUnreadable, "The kernel does not say whether its clock is kept.")
            }
        });
        lines
    }

    fn settings(&self) -> Vec<Line> {
        let mut lines = match self.fast_open {
            Some(setting) => setting.judge().to_vec(),
            None => {
                let detail = "The setting net.ipv4.tcp_fastopen cannot be read.";
                vec![Line::new(Finding::SettingUnreadable, detail)]
            }
        };
        lines.push(if self.host_namespace {
            Line::new(Finding::NamespaceHost, "This is the network namespace of the host.")
        } else {
            let detail = "This is a network namespace of its own, as a container has, with its own settings.";
            Line::new(Finding::NamespaceOwn, detail)
        });
        lines.push(self.syn_cookies());
        lines.push(match self.mptcp {
            Some(1..) => Line::new(Finding::MptcpAllowed, "Programs may use MPTCP. Fast Open works with it."),
            _ => Line::new(Finding::MptcpOff, "MPTCP is off."),
        });
        lines
    }

    fn syn_cookies(&self) -> Line {
        let server = self.fast_open.is_none_or(|setting| setting.server);
        let always = "net.ipv4.tcp_syncookies is 2: the kernel answers every SYN with a SYN cookie.";
        match self.syn_cookies {
            Some(2..) if server => Line::new(Finding::SynCookiesAlways, always),
            Some(2..) => Line::new(Finding::SynCookiesAlwaysAtClient, always),
            Some(_) => Line::new(Finding::SynCookiesAsNeeded, "SYN cookies do not replace Fast Open."),
            None => Line::new(
                Finding::SynCookiesUnreadable,
                "The setting net.ipv4.tcp_syncookies cannot be read.",
            ),
        }
    }

    fn firewall(&self) -> [Line; 3] {
        let translated = self.translated.unwrap_or_default();
        let hidden = "The rules of the firewall cannot be read.";
        let synproxy = match (self.rules, self.synproxy_syns) {
            (_, syns @ 1..) => {
                Line::new(Finding::SynproxyPresent, format_args!("SYNPROXY has answered {syns} SYNs here."))
            }
            (Some(Rules { synproxy: true, .. }), _) => {
                Line::new(Finding::SynproxyPresent, "A rule of the firewall sends SYNs to SYNPROXY.")
            }
            (Some(_), _) => Line::new(Finding::SynproxyNone, "No rule of the firewall uses SYNPROXY."),
            (None, _) => Line::new(Finding::SynproxyNotSeen, hidden),
        };
        let source = match (self.rules, translated.source) {
            (Some(Rules { source: true, .. }), _) => {
                Line::new(Finding::SourcePresent, "Rules of the firewall change source addresses (SNAT).")
            }
            (_, count @ 1..) => Line::new(
                Finding::SourcePresent,
                format_args!("The source address of {count} TCP connections is changed (SNAT)."),
            ),
            (Some(_), 0) => {
                Line::new(Finding::SourceNone, "No rule of the firewall changes source addresses.")
            }
            (None, 0) => Line::new(Finding::SourceNotSeen, hidden),
        };
        let destination = match (self.rules, translated.destination) {
            (Some(Rules { destination: true, .. }), _) => Line::new(
                Finding::DestinationPresent,
                "Rules of the firewall change destination addresses or ports (DNAT).",
            ),
            (_, count @ 1..) => Line::new(
                Finding::DestinationPresent,
                format_args!("The destination of {count} TCP connections is changed (DNAT)."),
            ),
            (Some(_), 0) => {
                Line::new(Finding::DestinationNone, "No rule of the firewall changes destinations.")
            }
            (None, 0) => Line::new(Finding::DestinationNotSeen, hidden),
        };
        [synproxy, source, destination]
    }

    fn memory(&self) -> Vec<Line> {
        let Some(servers) = &self.servers else {
            return vec![Line::new(
                Finding::CookiesUnreadable,
                "What the kernel knows of servers cannot be read.",
            )];
        };
        let known = servers.iter().filter(|one| one.cookie.is_some()).count();
        let mut lines = vec![match known {
            0 => Line::new(
                Finding::CookiesNone,
                "The kernel has no cookie: the first visit to each server gets one.",
            ),
            _ => Line::new(Finding::CookiesKnown, format_args!("The kernel has cookies of {known} servers.")),
        }];
        let lost: Vec<_> = servers.iter().filter(|one| one.losses > 0).collect();
        if let Some(first) = lost.first() {
            let more = match lost.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let detail = format_args!("The last SYNs with data to {}{more} were lost.", first.server);
            lines.push(Line::new(Finding::SynLosses, detail));
        }
        lines
    }

    fn counters(&self) -> Vec<Line> {
        let Some(counters) = self.counters else {
            return vec![Line::new(
                Finding::CountersUnreadable,
                "The kernel's counters of Fast Open cannot be read.",
            )];
        };
        let Counters { active, active_fail, passive, passive_fail, overflow, requests, black_holes } =
            counters;
        let paused = black_holes > 0 && self.fast_open.is_none_or(|setting| setting.blackhole_secs > 0);
        let client = if paused {
            let detail =
                format_args!("The kernel has paused Fast Open {black_holes} times because of a black hole.");
            Line::new(Finding::BlackHoles, detail)
        } else {
            let mostly = active_fail >= SEVERAL && active_fail > active;
            let finding = if mostly { Finding::ClientMostlyRefused } else { Finding::ClientCountersFine };
            let detail = format_args!(
                "Of the first flights sent from here, {active} were accepted and {active_fail} not."
            );
            Line::new(finding, detail)
        };
        let server = if overflow > 0 {
            let detail = format_args!("{overflow} SYNs came while too many first flights were pending.");
            Line::new(Finding::Overflow, detail)
        } else {
            let mostly = passive_fail >= SEVERAL && passive_fail > passive;
            let finding = if mostly { Finding::ServerMostlyRefused } else { Finding::ServerCountersFine };
            let flights = format_args!("They accepted {passive} first flights and refused {passive_fail}.");
            Line::new(finding, format_args!("Servers here got {requests} requests for a cookie. {flights}"))
        };
        vec![client, server]
    }
}

/// The SYNs in the text of `/proc/net/stat/synproxy`: a line of hexadecimal numbers for each processor.
fn synproxy_syns(table: &str) -> u64 {
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    table.lines().skip(1).filter_map(second).fold(0, u64::saturating_add)
}
