//! The verdicts about a server.

use super::{Connected, Sent, ServerFacts, TWICE, Visit, VisitEnd};
use crate::catalogue::Finding;
use crate::network::{Passage, server_clock};
use crate::report::Line;
use firstflight_kernel::ClientFail;
use std::collections::HashSet;

#[cfg(test)]
mod tests;

/// What became of the SYNs with a cookie and data.
#[derive(Debug, Default)]
struct Flights {
    all: usize,
    accepted: usize,
    /// Not accepted, and the SYN-ACK had another cookie.
    refused: usize,
    /// The first of them showed a cookie from before this run, and was refused.
    stale: bool,
    /// Not accepted, and the cookie stayed.
    ignored: usize,
    /// Not accepted, and the cookie cannot be read.
    unclear: usize,
    lost: usize,
    /// The different cookies that were seen.
    cookies: usize,
    /// A cookie was replaced, and came back.
    returned: bool,
}

impl Flights {
    fn of(facts: &ServerFacts) -> Self {
        let mut found = Self::default();
        let mut before = facts.before.as_ref();
        let (mut seen, mut gone) = (HashSet::new(), HashSet::new());
        for visit in facts.visits.iter().filter(|visit| visit.sent == Sent::Data) {
            let after = visit.cookie.as_ref();
            let changed = match (before, after) {
                (Some(before), Some(after)) => Some(before != after),
                _ => None,
            };
            if let Some(Some(cookie)) = after {
                found.returned |= changed == Some(true) && gone.contains(cookie);
                seen.insert(cookie);
            }
            if let (Some(Some(cookie)), Some(true)) = (before, changed) {
                seen.insert(cookie);
                gone.insert(cookie);
            }
            if let Some(flight) = visit.connected().filter(|connected| connected.carried) {
                found.add(flight, changed, facts.before.as_ref().is_some_and(Option::is_some));
            }
            before = after;
        }
        found.cookies = seen.len();
        found
    }

    fn add(&mut self, flight: &Connected, changed: Option<bool>, old: bool) {
        self.all += 1;
        match changed {
            _ if flight.accepted => self.accepted += 1,
            _ if flight.again => self.lost += 1,
            Some(true) if self.all == 1 && old => self.stale = true,
            Some(true) => self.refused += 1,
            Some(false) => self.ignored += 1,
            None => self.unclear += 1,
        }
    }
}

impl ServerFacts {
    /// The verdicts.
    pub(crate) fn judge(&self) -> Vec<Line> {
        let mut lines = vec![self.connect()];
        if self.plain().is_none_or(|visit| visit.connected().is_none()) {
            return lines;
        }
        let cookie = self.cookie_line();
        let goes_on = !matches!(cookie.finding, Finding::CookieClientDisabled | Finding::CookiePaused);
        lines.push(cookie);
        if goes_on {
            lines.extend(self.option_line());
            lines.extend(self.data_line());
        }
        lines.extend(self.ahead.map(server_clock));
        lines
    }

    /// First flights fail, and the path may show why.
    pub(crate) fn fails(&self) -> bool {
        let Flights { accepted, ignored, unclear, lost, .. } = Flights::of(self);
        let fails = !self.has_cookie() || ignored + unclear > 0 || lost >= TWICE;
        self.client && !self.never_asked() && accepted == 0 && fails
    }

    /// What these visits show of the network.
    pub(crate) fn passage(&self) -> Passage {
        let flights = Flights::of(self);
        match self.bare() {
            Some(Finding::DataPasses) => Passage::Passes,
            Some(Finding::DataDropped) => Passage::Drops,
            _ if flights.accepted + flights.refused > 0 => Passage::Passes,
            _ if flights.lost >= TWICE && !self.is_lossy() => Passage::Drops,
            _ => Passage::NotSeen,
        }
    }

    fn plain(&self) -> Option<&Visit> {
        self.visits.iter().find(|visit| visit.sent == Sent::Plain)
    }

    /// The plain SYN was lost, so other losses mean nothing.
    fn is_lossy(&self) -> bool {
        self.plain().is_none_or(Visit::again)
    }

    fn connect(&self) -> Line {
        match self.plain().map(|visit| visit.end) {
            Some(VisitEnd::Connected(_)) => Line::new(Finding::Answers, "It accepts ordinary connections."),
            Some(VisitEnd::Refused) => Line::new(Finding::Refused, "It refuses connections to this port."),
            Some(VisitEnd::Unreachable(kind)) => {
                Line::new(Finding::Unreachable, format_args!("It cannot be reached from here: {kind}."))
            }
            Some(VisitEnd::Silent) | None => Line::new(Finding::Silent, "It does not answer ordinary SYNs."),
        }
    }

    fn cookie_line(&self) -> Line {
        if !self.client {
            return Line::new(
                Finding::CookieClientDisabled,
                "It was not asked: Fast Open is off on this machine.",
            );
        }
        if self.never_asked() {
            return Line::new(
                Finding::CookiePaused,
                "It was not asked: the kernel pauses Fast Open after a black hole.",
            );
        }
        if self.before.as_ref().is_some_and(Option::is_some) {
            return Line::new(Finding::CookieKnown, "The kernel had a cookie of it already.");
        }
        let asked: Vec<_> = self.visits.iter().filter(|visit| asks(visit)).collect();
        let granted = asked.iter().position(|visit| visit.cookie.as_ref().is_some_and(Option::is_some));
        let lost = asked.iter().filter(|visit| visit.again()).count();
        match granted {
            // If some servers of the address ignore Fast Open, the first SYN may have met one of them.
            Some(1..) if lost == 0 && Flights::of(self).ignored == 0 => Line::new(
                Finding::CookieSecondTry,
                "It granted no cookie at first, and one in the next connection.",
            ),
            Some(_) => Line::new(Finding::CookieGranted, "It granted a cookie."),
            None if self.has_cookie() => Line::new(Finding::CookieGranted, "It granted a cookie."),
            None if lost > 0 && lost == asked.len() && lost >= TWICE && !self.is_lossy() => {
                let detail = "SYNs that ask for a cookie get no answer, and ordinary SYNs do.";
                Line::new(Finding::OptionDropped, detail)
            }
            None if lost > 0 => Line::new(Finding::CookieLost, "A SYN that asked for a cookie was lost."),
            None if !self.data && self.before.is_none() => {
                Line::new(Finding::CookieAmbiguous, "The kernel's cookies cannot be read.")
            }
            None => {
                let detail = format_args!("It granted no cookie, in {} connections.", asked.len());
                Line::new(Finding::CookieNotGranted, detail)
            }
        }
    }

    /// What the routers quoted, if first flights fail.
    fn option_line(&self) -> Option<Line> {
        let path = self.path?;
        let what = if self.has_cookie() { "cookie" } else { "option" };
        Some(match (path.removed, path.kept, path.routers) {
            (Some(gone), _, _) => {
                let detail =
                    format_args!("The SYN arrives at {gone} without its {what}, as that router quotes it.");
                Line::new(Finding::OptionRemoved, detail)
            }
            (None, Some(last), Some(routers)) if last.hop == routers => {
                let detail = format_args!("The SYN still has its {what} at the last router, {last}.");
                Line::new(Finding::OptionKept, detail)
            }
            (None, Some(last), _) => {
                let detail =
                    format_args!("The SYN still has its {what} at {last}. No later router quotes it.");
                Line::new(Finding::OptionKept, detail)
            }
            (None, None, Some(0)) => Line::new(Finding::OptionKept, "No router is on the way."),
            (None, None, _) => Line::new(Finding::OptionNotQuoted, "No router quotes the options of a SYN."),
        })
    }

    fn data_line(&self) -> Option<Line> {
        if !self.data {
            return Some(Line::new(Finding::DataNotTried, "No data was sent (--no-data)."));
        }
        if let Some(finding) = self.bare() {
            let detail = match finding {
                Finding::DataPasses => {
                    "A SYN with data and without a cookie was answered: the path does not drop such SYNs."
                }
                Finding::DataDropped => "SYNs with data get no answer, and ordinary SYNs do.",
                _ => "Ordinary SYNs are lost, too.",
            };
            return Some(Line::new(finding, detail));
        }
        let flights = Flights::of(self);
        let Flights { all, accepted, refused, stale, ignored, unclear, lost, cookies, returned } = flights;
        let old = self.before.as_ref().is_some_and(Option::is_some);
        let mixed = format!("Of {all} SYNs with a cookie and data, {accepted} were accepted");
        Some(match () {
            () if all == 0 => return None,
            () if lost > 0 && self.is_lossy() => {
                Line::new(Finding::DataLossy, format_args!("{mixed}, {lost} lost. So was an ordinary one."))
            }
            () if lost >= TWICE && accepted == 0 => {
                Line::new(Finding::DataDropped, "SYNs with data get no answer, and ordinary SYNs do.")
            }
            () if refused >= TWICE || returned => {
                let detail =
                    format_args!("{mixed} and {refused} refused. {cookies} different cookies were granted.");
                Line::new(Finding::DifferingCookies, detail)
            }
            // A server without Fast Open accepts nothing.
            () if accepted > 0 && unclear >= TWICE => {
                Line::new(Finding::DifferingCookies, format_args!("{mixed}, {unclear} not."))
            }
            () if ignored > 0 && (accepted > 0 || refused > 0 || stale) => {
                Line::new(Finding::DataSomeIgnored, format_args!("{mixed}, {ignored} ignored."))
            }
            () if refused > 0 || (unclear > 0 && accepted > 0) => {
                Line::new(Finding::DataRefusedOnce, format_args!("{mixed}, 1 refused."))
            }
            () if lost > 0 => Line::new(Finding::DataLostOnce, format_args!("{mixed}, {lost} lost.")),
            () if accepted == all => Line::new(Finding::DataAccepted, format_args!("{mixed}.")),
            () if stale => Line::new(
                Finding::DataAccepted,
                format_args!("{mixed}. The cookie from before was stale, and renewed."),
            ),
            () if unclear > 0 => {
                Line::new(Finding::DataAmbiguous, format_args!("{mixed}. The cookie may be stale."))
            }
            // Another port of the address may have granted it. A path that takes the option away is another finding.
            () if old && self.path.is_none_or(|path| path.removed.is_none()) => {
                let detail = format_args!(
                    "{mixed}. The cookie of this address was known before: it seems that this port has no Fast Open."
                );
                Line::new(Finding::DataNotAtThisPort, detail)
            }
            () => {
                let detail =
                    format_args!("{mixed}. The server neither took the data nor granted another cookie.");
                Line::new(Finding::DataIgnored, detail)
            }
        })
    }

    /// What SYNs with data and without a cookie showed, if some were sent.
    fn bare(&self) -> Option<Finding> {
        // Without `carried` the kernel sent an ordinary SYN.
        let carried = |visit: &&Visit| visit.connected().is_none_or(|one| one.carried);
        let bare: Vec<_> =
            self.visits.iter().filter(|visit| visit.sent == Sent::Bare).filter(carried).collect();
        let lost = bare.iter().filter(|visit| visit.again()).count();
        match bare.len() {
            0 => None,
            all if lost < all => Some(Finding::DataPasses),
            _ if self.is_lossy() => Some(Finding::DataLossy),
            _ => Some(Finding::DataDropped),
        }
    }
}

/// The visit's SYN had the option, and no cookie.
fn asks(visit: &Visit) -> bool {
    match visit.sent {
        Sent::Request => true,
        Sent::Data => visit.connected().is_none_or(|one| !one.carried && one.fail != ClientFail::None),
        Sent::Plain | Sent::Bare => false,
    }
}
