//! The numbers as text, as JSON and as a picture.

use super::tally::{Connections, Requests, Sums, Tally};
use crate::picture::{Curve, Group, Page, text};
use crate::record;
use crate::time::millis;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;

/// Servers in the text and in the picture.
const SHOWN: usize = 8;
/// The percentiles of the report.
const PERCENTILES: [u32; 7] = [1, 10, 25, 50, 75, 90, 99];

fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn tls_share(sums: &Sums) -> Option<f64> {
    (!sums.cold_time.is_zero()).then(|| sums.tls.div_duration_f64(sums.cold_time))
}

/// The record of a capture.
pub(super) fn record(tally: &Tally, damage: Option<String>) -> record::Requests {
    let Tally { connections, requests, sums, .. } = tally;
    let [http, tls, other] = requests.kinds;
    let greatest = tally.greatest();
    let percentiles = (0..=100).map(|percentile| {
        let at = f64::from(percentile) / 100.0;
        record::Percentile {
            percentile,
            cold_ms: tally.cold.quantile(at).map(rounded),
            cold_without_handshake_ms: tally.without.quantile(at).map(rounded),
            all_ms: tally.all.quantile(at).map(rounded),
        }
    });
    let servers = tally.servers().into_iter().map(|(server, numbers)| record::Server {
        server,
        requests_cold: numbers.cold,
        requests_warm: numbers.warm,
        handshake_share_cold: numbers.sums.cold_share().map(rounded),
        handshake_share_all: numbers.sums.amortised_share().map(rounded),
    });
    record::Requests {
        frames: tally.frames,
        segments: tally.segments,
        connections: connections.all,
        opened: connections.opened,
        not_opened: connections.not_opened,
        begun_before: connections.begun_before,
        syn_repeated: connections.syn_repeated,
        syn_wait_ms: millis(connections.syn_wait),
        with_gaps: connections.with_gaps,
        ipv6: connections.v6,
        in_udp: connections.in_udp,
        requests_cold: requests.cold,
        requests_warm: requests.warm,
        requests_unknown: requests.unknown,
        requests_http: http,
        requests_tls: tls,
        requests_other: other,
        requests_in_syn: requests.in_syn,
        requests_unanswered: requests.unanswered,
        requests_pipelined: requests.pipelined,
        requests_timed: sums.all,
        requests_cold_timed: sums.cold,
        new_connection_share: tally.new_share().map(rounded),
        handshake_share_cold: sums.cold_share().map(rounded),
        handshake_share_all: sums.amortised_share().map(rounded),
        tls_share_cold: tls_share(sums).map(rounded),
        handshake_share_greatest: greatest.map(|(share, _)| rounded(share)),
        handshake_share_greatest_at_percentile: greatest.map(|(_, percent)| percent),
        percentiles: percentiles.collect(),
        servers: servers.collect(),
        damage,
    }
}

/// The curves of the paper's Figure 2. Empty without cold requests.
fn curves(tally: &Tally) -> Vec<Curve> {
    let all = Curve::new("all requests", |share| tally.all.quantile(share));
    let without = Curve::new("without handshake (cold)", |share| tally.without.quantile(share));
    let cold = Curve::new("cold requests", |share| tally.cold.quantile(share));
    all.into_iter().chain(without).chain(cold).collect()
}

impl Tally {
    /// A picture, as SVG: the distributions as in the paper's Figure 2, and the servers as in its Figure 1.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut page = Page::new();
        page.curves("Time of requests, cumulative (the paper's Figure 2)", &curves(self));
        let groups = self.servers().into_iter().filter_map(|(server, numbers)| {
            Some(Group {
                name: name(server),
                shares: vec![numbers.sums.cold_share()?, numbers.sums.amortised_share()?],
            })
        });
        page.bars(
            "TCP's handshake as a share of the requests' time (Figure 1)",
            &["cold requests", "all requests (amortised)"],
            &groups.take(SHOWN).collect::<Vec<_>>(),
        );
        page.finish()
    }
}

fn name(server: Option<SocketAddr>) -> String {
    server.map_or_else(|| "other servers".to_owned(), |server| server.to_string())
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        connections(f, self)?;
        requests(f, &self.requests, &self.sums)?;
        shares(f, self)?;
        if self.all.quantile(0.5).is_some() {
            percentiles(f, self)?;
            write!(f, "\n{}", text(&curves(self)))?;
            servers(f, self)?;
        }
        Ok(())
    }
}

fn connections(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    let Tally { frames, segments, connections, .. } = tally;
    let Connections { all, opened, not_opened, begun_before, .. } = connections;
    writeln!(f, "packets       {frames}, of TCP {segments}")?;
    write!(f, "connections   {all}: {opened} with their handshake, {not_opened} without all of it")?;
    writeln!(f, ", {begun_before} begun before the capture")?;
    let mut notes = Vec::new();
    if connections.syn_repeated > 0 {
        notes.push(format!(
            "{} repeated their SYN and waited {} in all",
            connections.syn_repeated,
            Millis(Some(connections.syn_wait.as_secs_f64() * 1e3))
        ));
    }
    for (count, what) in [
        (connections.with_gaps, "with data that the capture lacks"),
        (connections.v6, "over IPv6"),
        (connections.in_udp, "in UDP"),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    if notes.is_empty() { Ok(()) } else { writeln!(f, "{:14}{}", "", notes.join("; ")) }
}

fn requests(f: &mut fmt::Formatter<'_>, requests: &Requests, sums: &Sums) -> fmt::Result {
    let [http, tls, other] = requests.kinds;
    let all = http + tls + other;
    writeln!(
        f,
        "requests      {all}: {http} of HTTP, {tls} by TLS, {other} of other protocols; {} timed",
        sums.all
    )?;
    let mut notes = String::new();
    for (count, what) in [
        (requests.in_syn, "in an accepted SYN"),
        (requests.unanswered, "without an answer"),
        (requests.pipelined, "sent before the answer to the one before"),
        (requests.unknown, "the first of a connection begun before"),
    ] {
        if count > 0 {
            let _ = write!(notes, "{}{count} {what}", if notes.is_empty() { "" } else { "; " });
        }
    }
    if notes.is_empty() { Ok(()) } else { writeln!(f, "{:14}{notes}", "") }
}

fn shares(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    let Tally { requests, sums, .. } = tally;
    writeln!(f, "\n{:48}{:>10}   the paper", "", "here")?;
    let of = format!("requests on new connections ({} of {})", requests.cold, requests.cold + requests.warm);
    writeln!(f, "{of:48}{:>10}   over 33 %", Percent(tally.new_share()))?;
    writeln!(
        f,
        "{:48}{:>10}   8 to 28 % by service",
        "handshake, of the time of cold requests",
        Percent(sums.cold_share())
    )?;
    writeln!(
        f,
        "{:48}{:>10}   5 to 7 % by service",
        "handshake, of the time of all requests",
        Percent(sums.amortised_share())
    )?;
    let greatest = tally.greatest();
    let at = greatest.map(|(_, percent)| format!(" (at {percent})")).unwrap_or_default();
    let most = format!("  at most, of the percentiles 10 to 90{at}");
    writeln!(f, "{most:48}{:>10}   up to 25 %", Percent(greatest.map(|(share, _)| share)))?;
    if !sums.tls.is_zero() {
        writeln!(
            f,
            "{:48}{:>10}",
            "TLS's handshake, of the time of cold requests",
            Percent(tls_share(sums))
        )?;
    }
    Ok(())
}

fn percentiles(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    write!(f, "\n{:26}", "percentile")?;
    for percent in PERCENTILES {
        write!(f, "{percent:>10}")?;
    }
    writeln!(f)?;
    for (name, times) in [
        ("cold requests", &tally.cold),
        ("cold, without handshake", &tally.without),
        ("all requests", &tally.all),
    ] {
        write!(f, "{name:26}")?;
        for percent in PERCENTILES {
            write!(f, "{:>10}", Millis(times.quantile(f64::from(percent) / 100.0)).to_string())?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn servers(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    let servers = tally.servers();
    writeln!(
        f,
        "\n{:40}{:>9}{:>9}{:>11}{:>11}",
        "handshake by server", "requests", "new", "of cold", "of all"
    )?;
    for (server, numbers) in servers.iter().take(SHOWN) {
        let all = numbers.cold + numbers.warm;
        let new = (all > 0).then(|| numbers.cold as f64 / all as f64);
        writeln!(
            f,
            "{:40}{all:>9}{:>9}{:>11}{:>11}",
            name(*server),
            Percent(new).to_string(),
            Percent(numbers.sums.cold_share()).to_string(),
            Percent(numbers.sums.amortised_share()).to_string()
        )?;
    }
    if servers.len() > SHOWN {
        writeln!(f, "and {} more (--json)", servers.len() - SHOWN)?;
    }
    Ok(())
}

struct Percent(Option<f64>);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(share) => f.pad(&format!("{:.1} %", share * 100.0)),
            None => f.pad("–"),
        }
    }
}

struct Millis(Option<f64>);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ms) if ms >= 100.0 => f.pad(&format!("{ms:.0} ms")),
            Some(ms) if ms >= 10.0 => f.pad(&format!("{ms:.1} ms")),
            Some(ms) => f.pad(&format!("{ms:.2} ms")),
            None => f.pad("–"),
        }
    }
}
