//! What the kernel remembers of servers: the text of `ip tcp_metrics show`, which needs no privileges.

use super::command::{Ran, run};
use std::net::IpAddr;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub server: IpAddr,
    /// The local address. Cookies are bound to both.
    pub source: Option<IpAddr>,
    /// The cookie, in hexadecimal.
    pub cookie: Option<String>,
    /// How many SYNs with data were lost in a row.
    pub losses: u32,
}

/// The entries of all servers; `None` if they cannot be read.
pub(crate) fn read() -> Option<Vec<Entry>> {
    match run("ip", &["tcp_metrics", "show"]) {
        Ran::Output(text) => Some(parse(&text)),
        Ran::Missing | Ran::Failed(_) => None,
    }
}

/// The kernel's cookie for a server and a local address: an outer `None` if it cannot be read.
pub(crate) fn cookie(server: IpAddr, source: IpAddr) -> Option<Option<String>> {
    let mut entries = read()?.into_iter();
    let found = entries.find(|one| one.server == server && one.source.is_none_or(|own| own == source));
    Some(found.and_then(|one| one.cookie))
}

fn parse(text: &str) -> Vec<Entry> {
    text.lines().filter_map(entry).collect()
}

fn entry(line: &str) -> Option<Entry> {
    let words: Vec<_> = line.split_whitespace().collect();
    let server = words.first()?.parse().ok()?;
    let after = |name: &str| {
        let mut pairs = words.windows(2).filter(|pair| pair.first() == Some(&name));
        pairs.next().and_then(|pair| pair.last().copied())
    };
    let hexadecimal = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `1/0.123sec ago`, or a number alone.
    let losses = after("fo_syn_drops").and_then(|text| text.split('/').next()?.parse().ok());
    Some(Entry {
        server,
        source: after("source").and_then(|text| text.parse().ok()),
        cookie: after("fo_cookie").filter(hexadecimal).map(str::to_owned),
        losses: losses.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
