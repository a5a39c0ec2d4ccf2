//! One-time cookies at a server with two shards: cookies that are granted, activated, shown, shown again by an eavesdropper,
//! and forgotten, while the process is killed at any moment and begins again with what was on its disk.
//!
//! A cookie is good for one first flight, ever. One whose SYN was refused is used up, except that this SYN alone may wait for
//! the ACK that activates its cookie ([`Claim`]).

use super::asap::permits;
use super::{holds, needs};
use firstflight_credential::asap::{AsapShard, BudgetConfig};
use firstflight_credential::{
    Admission, Claim, CookieKey, Decision, FastOpenPolicy, FirstFlight, Flow, Grant, JobRequest, KeyRing,
    Offered, OneTimeCookies, OneTimeKeys, Presented, Reason, Refusal, Replays, Scheme, Serial, SerialTable,
    Verifier, VerifierVerdict, admit,
};
use firstflight_models::{Digest, World};
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use firstflight_wire::{Clock, Instant, SeqNum};
use std::sync::Arc;
use std::time::Duration;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defence {
    /// A cookie is used up by its use.
    Use,
    /// The shards share the table.
    OneTable,
    /// The mark on disk is ahead of the counter.
    MarkAhead,
    /// Only the SYN that used an inactive cookie up may wait for its activation.
    OwnClaim,
    /// The cookie of a refused SYN is used up.
    UsedUpWhenRefused,
}

const FLOW: Flow = Flow {
    client: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    server: std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
};
/// Serials ahead that the mark is written.
const RESERVE: u64 = 8;
/// Serials that a table remembers, at least.
const CAPACITY: usize = 32;
/// Cookies that the client gets.
const MOST: usize = 2;

/// The cookies, with a defence left out.
struct Cookies {
    inner: OneTimeCookies,
    off: Option<Defence>,
}

impl Verifier for Cookies {
    fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> VerifierVerdict {
        self.inner.verify(first, clock)
    }

    fn redeem(&self, serial: Serial, first: &FirstFlight<'_>) -> Decision {
        let active = self.inner.serials().is_active(serial);
        match self.off {
            Some(Defence::Use) if active => Decision::Accept(()),
            Some(Defence::UsedUpWhenRefused) if !active => Decision::Refuse(Reason::NotActive),
            _ => self.inner.redeem(serial, first),
        }
    }

    fn redeem_claimed(&self, serial: Serial) -> Decision {
        self.inner.redeem_claimed(serial)
    }

    fn activate(&self, serial: Serial) -> Option<JobRequest> {
        self.inner.activate(serial)
    }

    fn is_once(&self) -> bool {
        self.inner.is_once()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The client asks a shard for a cookie.
    Asks {
        shard: usize,
    },
    /// The ACK of the handshake in which a cookie was granted arrives.
    Acknowledges {
        cookie: usize,
    },
    /// A SYN with the cookie arrives, from the client or from an eavesdropper.
    Shown {
        cookie: usize,
        shard: usize,
    },
    /// The shard asks again for the SYN that found the cookie inactive.
    AskedAgain {
        cookie: usize,
    },
    /// And has waited too long.
    Lapsed {
        cookie: usize,
    },
    /// Other clients get cookies: more than the table remembers.
    Others,
    /// The mark that the table wants is written to disk.
    Mark,
    Restart,
}

#[derive(Debug, Clone, Copy)]
struct Cookie {
    grant: Grant,
    /// A SYN waits for its activation, at this shard.
    waits: Option<usize>,
    ran: bool,
    is_used_up: bool,
}

struct Server {
    off: Option<Defence>,
    tables: Vec<Arc<SerialTable>>,
    policies: Vec<FastOpenPolicy>,
    disk: u64,
    cookies: Vec<Cookie>,
}

impl Server {
    fn new(off: Option<Defence>) -> Self {
        let (tables, policies, cookies) = (Vec::new(), Vec::new(), Vec::new());
        let mut server = Self { off, tables, policies, disk: 1, cookies };
        server.start();
        server
    }

    fn start(&mut self) {
        let table = || Arc::new(SerialTable::own(1, self.disk, CAPACITY));
        let one = table();
        let other = if self.off == Some(Defence::OneTable) { table() } else { Arc::clone(&one) };
        self.tables = vec![one, other];
        self.policies = self
            .tables
            .iter()
            .map(|table| {
                let inner = OneTimeCookies::new(OneTimeKeys::from_bytes([5; 32]), Arc::clone(table));
                let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16]));
                let mut policy = FastOpenPolicy::new(Arc::new(keys), permits());
                policy.replays = Replays::AtMostOnce;
                policy.verifier = Some(Arc::new(Cookies { inner, off: self.off }));
                policy.validate().unwrap();
                policy
            })
            .collect();
        self.mark();
    }

    /// Writes the mark to disk, then tells the table.
    fn mark(&mut self) {
        for table in &self.tables {
            if let Some(mark) = table.wants(RESERVE) {
                if self.off != Some(Defence::MarkAhead) {
                    self.disk = self.disk.max(mark);
                }
                table.extend(mark);
            }
        }
    }

    fn admit(&self, shard: usize, option: &FastOpen, claim: Claim) -> Admission {
        let first = FirstFlight {
            flow: FLOW,
            ports: (40_000, 80),
            isn: SeqNum::new(7),
            presented: Presented::FastOpen(option),
            claim,
            offered: Offered::Nothing,
            payload: b"POST /order HTTP/1.1\r\n\r\n",
            relayed: false,
            syn_cookie_pressure: false,
        };
        let clock = Clock { mono: Instant::from_secs(1), unix_ms: 0, uncertainty: Duration::ZERO };
        let mut budget = AsapShard::new(BudgetConfig::default());
        admit((&self.policies[shard]).into(), &first, &mut budget, &clock)
    }

    /// A SYN with the cookie. `mine` is the one that waits.
    fn shows(&mut self, cookie: usize, shard: usize, claim: Claim, mine: bool) -> Result<(), String> {
        let option = FastOpen::Cookie(FastOpenForm::Standard, self.cookies[cookie].grant.cookie);
        let admission = self.admit(shard, &option, claim);
        let cookie = &mut self.cookies[cookie];
        match admission {
            Admission::Accept(_) if cookie.ran => {
                return Err("a cookie is good for two first flights".to_owned());
            }
            Admission::Accept(_) if cookie.is_used_up && !mine => {
                return Err(
                    "the data runs twice: by the handshake after a copy was refused, and early".to_owned()
                );
            }
            Admission::Accept(_) => (cookie.ran, cookie.waits) = (true, None),
            Admission::Refuse(Refusal { reason: Reason::NotActive, .. }) if claim == Claim::None => {
                (cookie.waits, cookie.is_used_up) = (Some(shard), true);
            }
            Admission::Refuse(Refusal { reason: Reason::NotActive, .. }) if claim == Claim::Held => {}
            _ => {
                cookie.is_used_up = true;
                if mine {
                    cookie.waits = None;
                }
            }
        }
        Ok(())
    }
}

impl World for Server {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.cookies.len() < MOST {
            events.extend((0..2).map(|shard| Event::Asks { shard }));
        }
        for (n, cookie) in self.cookies.iter().enumerate() {
            events.push(Event::Acknowledges { cookie: n });
            events.extend((0..2).map(|shard| Event::Shown { cookie: n, shard }));
            if cookie.waits.is_some() {
                events.extend([Event::AskedAgain { cookie: n }, Event::Lapsed { cookie: n }]);
            }
        }
        events.extend([Event::Others, Event::Mark, Event::Restart]);
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Asks { shard } => {
                let granted = self.admit(shard, &FastOpen::Request(FastOpenForm::Standard), Claim::None);
                let Admission::Refuse(Refusal { grant, .. }) = granted else {
                    return Err("no cookie is needed".to_owned());
                };
                let cookie = |grant| Cookie { grant, waits: None, ran: false, is_used_up: false };
                if let Some(grant) = grant {
                    let serials = self.cookies.iter().filter_map(|cookie| cookie.grant.serial);
                    if self.off.is_none() && serials.into_iter().any(|serial| Some(serial) == grant.serial) {
                        return Err("two cookies have one serial".to_owned());
                    }
                }
                self.cookies.extend(grant.map(cookie));
            }
            Event::Acknowledges { cookie } => {
                let serial = self.cookies[cookie].grant.serial.unwrap();
                for policy in &self.policies {
                    assert_eq!(policy.verifier.as_ref().unwrap().activate(serial), None);
                }
            }
            Event::Shown { cookie, shard } => {
                let before = self.cookies[cookie];
                // Without the defence another SYN takes the place of the one that waits.
                let stolen = self.off == Some(Defence::OwnClaim) && before.waits.is_some();
                let claim = if stolen { Claim::Held } else { Claim::None };
                self.shows(cookie, shard, claim, false)?;
                if before.waits.is_some() && !self.cookies[cookie].ran {
                    self.cookies[cookie].waits = before.waits;
                }
            }
            Event::AskedAgain { cookie } => {
                let shard = self.cookies[cookie].waits.unwrap();
                self.shows(cookie, shard, Claim::Held, true)?;
            }
            Event::Lapsed { cookie } => {
                let shard = self.cookies[cookie].waits.take().unwrap();
                self.shows(cookie, shard, Claim::Lapsed, false)?;
            }
            Event::Others => {
                for _ in 0..2 * CAPACITY {
                    self.mark();
                    self.tables[0].issue();
                }
            }
            Event::Mark => self.mark(),
            Event::Restart => {
                self.cookies.iter_mut().for_each(|cookie| cookie.waits = None);
                self.start();
            }
        }
        Ok(())
    }

    fn state(&self, to: &mut Digest) {
        let shown = |cookie: &Cookie| (cookie.grant.serial, cookie.waits, cookie.ran, cookie.is_used_up);
        to.add(&self.cookies.iter().map(shown).collect::<Vec<_>>());
        to.add(&self.disk);
        to.add(&self.tables[0]);
        if self.off == Some(Defence::OneTable) {
            to.add(&self.tables[1]);
        }
    }
}

#[test]
fn no_cookie_is_good_twice() {
    holds("one-time cookies", 1, 7, |_| Server::new(None));
}

#[test]
fn each_defence_is_needed() {
    use Defence::*;
    for defence in [Use, OneTable, MarkAhead, OwnClaim, UsedUpWhenRefused] {
        needs(defence, 1, 7, |_| Server::new(Some(defence)));
    }
}
