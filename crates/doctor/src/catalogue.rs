//! Everything that `doctor` can find, with its verdict and the advice. docs/guide/doctor.md has the same findings without the advice.

use serde::Serialize;
use std::fmt;

/// How good or bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// It could not be found out. The advice says what would.
    Unknown,
    /// It costs something, or it will matter under other conditions.
    Warning,
    /// First flights fail because of it.
    Problem,
}

impl Verdict {
    /// A label in kebab-case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a finding means.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Entry {
    /// What was looked at, in kebab-case.
    pub check: &'static str,
    /// What was found, in kebab-case.
    pub word: &'static str,
    /// How good or bad it is.
    pub verdict: Verdict,
    /// What to do, or for [`Verdict::Unknown`] what would find out.
    pub advice: Option<&'static str>,
}

macro_rules! findings {
    ($($name:ident: $check:literal $word:literal $verdict:ident $($advice:literal)?;)*) => {
        /// A finding. The check and the word of its [`Entry`] are stable, and the page `docs/guide/doctor.md` explains both.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Finding {
            $(#[doc = concat!("`", $check, "`: `", $word, "`")] $name,)*
        }

        impl Finding {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it means.
            #[must_use]
            pub const fn entry(self) -> Entry {
                match self {
                    $(Self::$name => {
                        let advice: &[&str] = &[$($advice)?];
                        let advice = match advice { [advice] => Some(*advice), _ => None };
                        Entry { check: $check, word: $word, verdict: Verdict::$verdict, advice }
                    })*
                }
            }
        }
    };
}

findings! {
    // Machine.
    ClientEnabled: "fast-open-client" "enabled" Ok;
    ClientDisabled: "fast-open-client" "disabled" Problem
        "Set net.ipv4.tcp_fastopen to 3 in this network namespace. The engine of `get` does not need it.";
    ServerEnabled: "fast-open-server" "enabled" Ok;
    ServerDisabled: "fast-open-server" "disabled" Warning
        "If programs here serve, set net.ipv4.tcp_fastopen to 3. Clients and engines do not need it.";
    SettingUnreadable: "fast-open-setting" "unreadable" Unknown
        "Run it on Linux, where /proc/sys/net/ipv4/tcp_fastopen can be read.";
    NeverPauses: "black-hole-timeout" "never-pauses" Ok;
    Pauses: "black-hole-timeout" "pauses" Ok;
    NamespaceHost: "namespace" "host" Ok;
    NamespaceOwn: "namespace" "own" Ok;
    SynCookiesAsNeeded: "syn-cookies" "as-needed" Ok;
    SynCookiesAlways: "syn-cookies" "always" Problem
        "Set net.ipv4.tcp_syncookies to 1. With 2 the kernel ignores Fast Open in every SYN that arrives.";
    SynCookiesAlwaysAtClient: "syn-cookies" "always-at-client" Warning
        "If programs here serve, set net.ipv4.tcp_syncookies to 1. With 2 the kernel ignores Fast Open in \
         every SYN that arrives.";
    SynCookiesUnreadable: "syn-cookies" "unreadable" Unknown
        "Run it where /proc/sys/net/ipv4/tcp_syncookies can be read.";
    MptcpAllowed: "mptcp" "allowed" Ok;
    MptcpOff: "mptcp" "off" Ok;
    SynproxyNone: "synproxy" "none" Ok;
    SynproxyPresent: "synproxy" "present" Problem
        "Exempt the ports whose servers take first flights: SYNPROXY answers SYNs itself, without Fast Open.";
    SynproxyNotSeen: "synproxy" "not-seen" Unknown
        "Run it as root, with nft installed: then the firewall's rules show it.";
    SourceNone: "source-translation" "none" Ok;
    SourcePresent: "source-translation" "present" Warning
        "A cookie proves the translator's address only. Switch Fast Open off at servers that see translated \
         clients.";
    SourceNotSeen: "source-translation" "not-seen" Unknown
        "Run it as root, with nft installed: then the firewall's rules show it.";
    DestinationNone: "destination-translation" "none" Ok;
    DestinationPresent: "destination-translation" "present" Warning
        "Cookies are bound to the server's own address: behind one translated address use one server, or \
         route to servers that share the address (ECMP, DSR).";
    DestinationNotSeen: "destination-translation" "not-seen" Unknown
        "Run it as root, with nft installed: then the firewall's rules show it.";
    CookiesKnown: "cookies-known" "some" Ok;
    CookiesNone: "cookies-known" "none" Ok;
    CookiesUnreadable: "cookies-known" "unreadable" Unknown
        "Install iproute2: its command `ip` shows what the kernel knows of servers.";
    SynLosses: "syn-losses" "lost" Warning
        "Name these servers on the command line of doctor: it then finds out whether the path drops SYNs with \
         data.";
    ClientCountersFine: "client-counters" "fine" Ok;
    ClientMostlyRefused: "client-counters" "mostly-refused" Warning
        "Name the servers on the command line of doctor: it then finds out which of them refuse.";
    BlackHoles: "client-counters" "black-holes" Warning
        "Find the path that drops SYNs with data: name the servers on the command line of doctor.";
    ServerCountersFine: "server-counters" "fine" Ok;
    ServerMostlyRefused: "server-counters" "mostly-refused" Warning
        "Give all servers of the address the same key. Look at destination-translation. A key that changed \
         just now explains it, too.";
    Overflow: "server-counters" "overflow" Warning
        "Raise the listener's limit of pending first flights (TCP_FASTOPEN; `ListenConfig::pending`).";
    CountersUnreadable: "counters" "unreadable" Unknown
        "Run it where /proc/net/netstat can be read.";
    ClockKept: "clock-service" "kept" Ok;
    ClockNotKept: "clock-service" "not-kept" Warning
        "Start a time service (chrony, systemd-timesyncd). Servers that take certificates need the time \
         within 10 s.";
    ClockStateUnreadable: "clock-service" "unreadable" Unknown
        "Run it on Linux, outside a sandbox that forbids adjtimex.";
    ClockAgrees: "clock" "agrees" Ok;
    ClockDiffers: "clock" "differs" Warning
        "Look at the time service of this machine and of the verifier. Farms that share a store need the time \
         within 1 s.";
    ClockWrong: "clock" "wrong" Problem
        "Set the clock, and start a time service. If it is right, the verifier's clock is wrong. Servers \
         refuse certificates when they differ by more than 10 s.";
    ClockNotCompared: "clock" "not-compared" Unknown
        "Name a verifier (--verifier), or a server that speaks HTTP.";
    CardUsable: "card" "usable" Ok;
    CardGenericOnly: "card" "generic-only" Warning
        "Set mode = \"generic\" (get: --xdp-mode generic), after ethtool -K DEVICE gro off.";
    CardUnusable: "card" "unusable" Problem
        "Change what the line says, or name another device.";
    CardUnobserved: "card-firewall" "none" Ok;
    CardBypasses: "card-firewall" "bypassed" Warning
        "Name with allow who may connect. If that is enough, set firewall = \"bypassed\" (get: --xdp-firewall).";
    CardFirewallNotSeen: "card-firewall" "not-seen" Unknown
        "Run it as root: then the firewall's rules show it.";

    // Network.
    UdpAnswers: "udp" "answers" Ok;
    UdpBlocked: "udp" "blocked" Problem
        "Let UDP to the verifiers and servers pass the firewall. Without it first flights go by TCP only.";
    UdpClosed: "udp" "closed" Unknown
        "Name a verifier that serves UDP: at this address the port is closed.";
    UdpSilent: "udp" "silent" Unknown
        "Name a verifier that runs: this one answers neither in UDP nor in TCP.";
    UdpNotAsked: "udp" "not-asked" Unknown
        "Name a verifier (--verifier): it answers in UDP.";
    TranslatorNone: "translator" "none" Ok;
    TranslatorOneAddress: "translator" "one-address" Ok;
    TranslatorSeveral: "translator" "several-addresses" Warning
        "Let the translator keep one address for each client: cookies and certificates are bound to it.";
    TranslatorNotAsked: "translator" "not-asked" Unknown
        "Name a verifier that answers in UDP (--verifier): it says which address it sees.";
    NetworkPasses: "syn-data" "passes" Ok;
    NetworkDrops: "syn-data" "dropped" Problem
        "Several servers and one loss: look for a firewall near this machine that drops SYNs with data.";
    NetworkNotSeen: "syn-data" "not-seen" Unknown
        "Name servers that grant cookies, as HOST:PORT.";

    // Server.
    LookupFailed: "address" "lookup-failed" Problem
        "Check the name and the resolver, or write the server's address.";
    Answers: "connect" "answers" Ok;
    Refused: "connect" "refused" Problem
        "Start the server, or name another port.";
    Silent: "connect" "silent" Problem
        "Look at the server, the route and the firewalls: an ordinary SYN gets no answer either.";
    Unreachable: "connect" "unreachable" Problem
        "Look at the routes of this machine: the network reports that the server cannot be reached.";
    CookieGranted: "cookie" "granted" Ok;
    CookieKnown: "cookie" "known" Ok;
    CookieSecondTry: "cookie" "on-second-try" Warning
        "The kernel asks with option 34 and with the old option 254 in turn: find what removes or ignores one \
         of them. Or only some servers of the address grant cookies.";
    CookieNotGranted: "cookie" "not-granted" Problem
        "Look at the server with doctor: fast-open-server, syn-cookies, synproxy, and the listener's \
         TCP_FASTOPEN. If its counter of cookie requests does not grow, the path removes the option.";
    OptionDropped: "cookie" "option-dropped" Problem
        "Find the firewall that drops SYNs with the Fast Open option. Until then use ordinary handshakes to \
         this server.";
    CookieClientDisabled: "cookie" "client-disabled" Unknown
        "Set net.ipv4.tcp_fastopen to 3 on this machine.";
    CookiePaused: "cookie" "paused" Unknown
        "Wait until the kernel's pause is over (net.ipv4.tcp_fastopen_blackhole_timeout_sec), or set that to 0.";
    CookieLost: "cookie" "lost" Unknown
        "Run doctor again: SYNs were lost on the way.";
    CookieAmbiguous: "cookie" "ambiguous" Unknown
        "Install iproute2 (the command `ip`), or leave --no-data out.";
    OptionRemoved: "option" "removed" Problem
        "Find the middlebox in front of that router that removes the Fast Open option, and let the option pass.";
    OptionKept: "option" "kept" Ok;
    OptionNotQuoted: "option" "not-quoted" Unknown
        "Look at the server's counter of cookie requests (run doctor there): it grows if the option arrives.";
    DataAccepted: "data" "accepted" Ok;
    DataDropped: "data" "dropped" Problem
        "Find the firewall that drops SYNs with data. Until then each first flight to this server costs a \
         second: use ordinary handshakes.";
    DataLostOnce: "data" "lost-once" Warning
        "Run doctor again: it may have been ordinary loss.";
    DataLossy: "data" "lossy" Unknown
        "Run doctor again: ordinary SYNs were lost, too.";
    DifferingCookies: "data" "differing-cookies" Problem
        "Give all servers of the address the same key. If a translator (DNAT) stands in front of them, keys \
         do not help: let the servers share the address (ECMP, DSR). From outside both look alike, and so \
         does a translator near this machine with several addresses (check `translator`).";
    DataRefusedOnce: "data" "refused-once" Warning
        "Run doctor again: the key may have changed just now. If it repeats, the servers of the address grant \
         different cookies.";
    DataSomeIgnored: "data" "some-ignored" Problem
        "Switch Fast Open on at all servers of the address, and look for an overflow in their counters (run \
         doctor there).";
    DataIgnored: "data" "ignored" Problem
        "Look at the server with doctor: the limit of pending first flights, and fast-open-server. If a \
         middlebox removes the cookie from SYNs with data, the check `option` may show it.";
    DataNotAtThisPort: "data" "not-at-this-port" Warning
        "Cookies belong to addresses: the path and the address's other ports may be fine. If this port should \
         take first flights, look at its server with doctor: its listener's TCP_FASTOPEN, and the limit of \
         pending first flights.";
    DataAmbiguous: "data" "ambiguous" Unknown
        "Install iproute2 (the command `ip`): a stale cookie is then told from a server without Fast Open.";
    DataPasses: "data" "passes" Ok;
    DataNotTried: "data" "not-tried" Unknown
        "Leave --no-data out.";
    RecordPublished: "asap-record" "published" Ok;
    RecordNone: "asap-record" "none" Ok;
    RecordNoName: "asap-record" "no-name" Unknown
        "Name the server: an address has no HTTPS record.";
    RecordFailed: "asap-record" "failed" Unknown
        "Name a resolver that answers for HTTPS records (--dns).";
    AsapAnswers: "asap-udp" "answers" Ok;
    AsapSilent: "asap-udp" "silent" Problem
        "Let UDP to that port pass, start the server there, or correct its HTTPS record.";
    ServerClockAgrees: "server-clock" "agrees" Ok;
    ServerClockDiffers: "server-clock" "differs" Warning
        "Look at the time services of the server and of this machine. Name a verifier (--verifier) to find \
         out which clock is wrong.";
}

#[cfg(test)]
mod tests;
