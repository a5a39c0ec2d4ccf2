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
mod tests;
