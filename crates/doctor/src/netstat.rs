//! The kernel's counters of Fast Open (`/proc/net/netstat`).

/// Counters of the network namespace, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// First flights of clients that were accepted.
    pub active: u64,
    /// First flights of clients that were not.
    pub active_fail: u64,
    /// First flights that servers accepted.
    pub passive: u64,
    /// First flights that servers refused.
    pub passive_fail: u64,
    /// SYNs that came while too many first flights were pending.
    pub overflow: u64,
    /// Requests for a cookie that arrived.
    pub requests: u64,
    /// Times that the kernel switched Fast Open off because of a black hole.
    pub black_holes: u64,
}

impl Counters {
    /// Reads the table: pairs of lines, names and values. `None` if it has no counters of Fast Open.
    pub(crate) fn parse(table: &str) -> Option<Self> {
        let lines: Vec<_> = table.lines().collect();
        let mut pairs = lines.chunks_exact(2).filter_map(|pair| match pair {
            [names, values] => Some((names.strip_prefix("TcpExt:")?, values.strip_prefix("TcpExt:")?)),
            _ => None,
        });
        let (names, values) = pairs.next()?;
        let mut found = None;
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            let Some(name) = name.strip_prefix("TCPFastOpen") else { continue };
            let counters = found.get_or_insert_with(Self::default);
            let place = match name {
                "Active" => &mut counters.active,
                "ActiveFail" => &mut counters.active_fail,
                "Passive" => &mut counters.passive,
                "PassiveFail" => &mut counters.passive_fail,
                "ListenOverflow" => &mut counters.overflow,
                "CookieReqd" => &mut counters.requests,
                "Blackhole" => &mut counters.black_holes,
                _ => continue,
            };
            *place = value.parse().ok()?;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
TcpExt: SyncookiesSent TCPFastOpenActive TCPFastOpenActiveFail TCPFastOpenPassive TCPFastOpenPassiveFail \
TCPFastOpenListenOverflow TCPFastOpenCookieReqd TCPFastOpenBlackhole TCPFastOpenPassiveAltKey
TcpExt: 9 1 2 3 4 5 6 7 8
IpExt: InNoRoutes InTruncatedPkts
IpExt: 0 0
";

    #[test]
    fn the_counters_have_their_names() {
        let counters = Counters {
            active: 1,
            active_fail: 2,
            passive: 3,
            passive_fail: 4,
            overflow: 5,
            requests: 6,
            black_holes: 7,
        };
        assert_eq!(Counters::parse(TABLE), Some(counters));
    }

    #[test]
    fn other_tables_give_nothing() {
        for table in ["", "TcpExt:", "TcpExt: A\nTcpExt: 1\n", "TcpExt: TCPFastOpenActive\nTcpExt: x\n"] {
            assert_eq!(Counters::parse(table), None, "{table}");
        }
        let shifted = format!("IpExt: A\nIpExt: 1\n{TABLE}");
        assert!(Counters::parse(&shifted).is_some());
    }
}
