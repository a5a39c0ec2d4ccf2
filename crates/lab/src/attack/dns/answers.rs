//! How many bytes are answered for each byte of a query, for each kind of query, and for a flood of queries from one
//! network.

use super::site::{DnsSite, Traffic};
use super::{attacker, forged};
use crate::table::Table;
use firstflight_dns::Transport;
use firstflight_dns::front::RateLimit;
use std::time::Duration;

/// Queries a second of a flood, and how long it lasts.
const RATE: u32 = 10_000;
const SECONDS: u32 = 3;
const A: u16 = 1;
const NS: u16 = 2;
const SOA: u16 = 6;
const TXT: u16 = 16;
const ANY: u16 = 255;

/// The `n`-th query of this kind.
struct Kind {
    name: &'static str,
    transport: Transport,
    query: fn(&mut DnsSite, u32) -> Vec<u8>,
}

/// The label of the `n`-th name.
fn numbered(n: u32) -> String {
    format!("n{n}")
}

const KINDS: [Kind; 14] = [
    Kind {
        name: "fragment",
        transport: Transport::Udp,
        query: |site, n| {
            let id = forged::id(&mut site.random);
            forged::ask(&forged::fragment(id, 0, &mut site.random), n as u16)
        },
    },
    Kind {
        name: "fragment, malformed",
        transport: Transport::Udp,
        query: |site, n| {
            let mut label = forged::fragment([0; 6], 0, &mut site.random);
            // A number that is too large for a label.
            label[3..].fill(0xff);
            forged::ask(&label, n as u16)
        },
    },
    Kind {
        name: "fragment, other type",
        transport: Transport::Udp,
        query: |_, n| forged::query(&[&format!("ff0{n:060}"), "f"], TXT, false),
    },
    Kind {
        name: "no fragment below the DNS-path zone",
        transport: Transport::Udp,
        query: |_, n| forged::query(&[&numbered(n), "f"], A, false),
    },
    Kind {
        name: "DNS-path zone, SOA",
        transport: Transport::Udp,
        query: |_, _| forged::query(&["f"], SOA, false),
    },
    Kind { name: "ordinary A", transport: Transport::Udp, query: |_, _| forged::query(&["www"], A, false) },
    Kind {
        name: "ordinary NS, with glue",
        transport: Transport::Udp,
        query: |_, _| forged::query(&[], NS, false),
    },
    Kind {
        name: "NXDOMAIN",
        transport: Transport::Udp,
        query: |_, n| forged::query(&[&numbered(n)], A, false),
    },
    Kind {
        name: "in no zone: REFUSED",
        transport: Transport::Udp,
        query: |_, n| forged::whole_query(&[&numbered(n), "elsewhere", "org"], &[0], A, false),
    },
    Kind {
        name: "malformed: FORMERR",
        transport: Transport::Udp,
        query: |_, _| {
            let mut query = forged::query(&["www"], A, false);
            query.pop();
            query
        },
    },
    Kind {
        name: "type ANY at the apex",
        transport: Transport::Udp,
        query: |_, _| forged::query(&[], ANY, true),
    },
    Kind {
        name: "TXT of 1,000 B, EDNS",
        transport: Transport::Udp,
        query: |_, _| forged::query(&["full"], TXT, true),
    },
    Kind {
        name: "120 addresses: truncated",
        transport: Transport::Udp,
        query: |_, _| forged::query(&["many"], A, true),
    },
    Kind {
        name: "the same over TCP",
        transport: Transport::Tcp,
        query: |_, _| forged::query(&["many"], A, true),
    },
];

impl Kind {
    /// Measures the traffic of one query, and of a flood from one network.
    fn run(&self, seed: u64) -> Option<(Traffic, Traffic)> {
        let mut site = DnsSite::new(seed, RateLimit::default())?;
        let query = (self.query)(&mut site, 0);
        site.query(attacker(0), self.transport, &query, false);
        let one = site.outcome().attack;
        site.run(site.now + Duration::from_secs(10));
        for n in 1..=RATE * SECONDS {
            let query = (self.query)(&mut site, n);
            site.query(attacker(0), self.transport, &query, false);
            site.run(site.now + Duration::from_secs(1) / RATE);
        }
        let all = site.outcome().attack;
        let flood = Traffic {
            queries: all.queries - one.queries,
            bytes_in: all.bytes_in - one.bytes_in,
            bytes_out: all.bytes_out - one.bytes_out,
        };
        Some((one, flood))
    }
}

/// The rows of the first table.
pub fn table(seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "bytes of DNS out for bytes in, of one query, and of {RATE}/s from one network for {SECONDS} s; seed \
             {seed}"
        ),
        &["query", "B in", "B out", "factor", "flood, B in", "B out", "factor"],
    );
    for kind in &KINDS {
        let Some((one, flood)) = kind.run(seed) else { continue };
        table.row([
            kind.name.into(),
            one.bytes_in.into(),
            one.bytes_out.into(),
            one.factor().into(),
            flood.bytes_in.into(),
            flood.bytes_out.into(),
            flood.factor().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
