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
mod tests {
    use super::*;

    const TEXT: &str = "\
10.3.0.2 age 0.020sec cwnd 11 rtt 470us rttvar 887us fo_mss 1460 fo_cookie d7d640028c5eab27 source 10.1.0.2
10.3.0.3 age 1.5sec fo_mss 1460 fo_syn_drops 2/0.104sec ago source 10.1.0.2
fd00:3::2 age 9.100sec cwnd 10 rtt 100us source fd00:1::2

Cannot read
";

    #[test]
    fn each_line_is_a_server() {
        let entries = parse(TEXT);
        let of = |server: &str| entries.iter().find(|one| one.server == server.parse::<IpAddr>().unwrap());
        assert_eq!(entries.len(), 3);
        let known = of("10.3.0.2").unwrap();
        assert_eq!(known.cookie.as_deref(), Some("d7d640028c5eab27"));
        assert_eq!((known.source, known.losses), (Some("10.1.0.2".parse().unwrap()), 0));
        let lost = of("10.3.0.3").unwrap();
        assert_eq!((&lost.cookie, lost.losses), (&None, 2));
        assert_eq!(of("fd00:3::2").unwrap().source, Some("fd00:1::2".parse().unwrap()));
    }

    #[test]
    fn half_a_line_is_read_as_far_as_it_goes() {
        let one = |line: &str| parse(line).pop();
        assert_eq!(one("10.0.0.1 fo_cookie").unwrap().cookie, None);
        assert_eq!(one("10.0.0.1 fo_cookie xyz").unwrap().cookie, None);
        assert_eq!(one("10.0.0.1 fo_syn_drops x source y").unwrap().losses, 0);
        assert_eq!(one("fo_cookie 00"), None);
    }
}
