//! What the DNS says of a server, and whether it answers in UDP as its record promises.

use super::catalogue::Finding;
use super::report::Line;
use firstflight::link::UdpLink;
use firstflight::record::{Names, Published};
use firstflight::{ConnectConfig, Endpoint, FirstFlight};
use firstflight_http::url::is_one_host;
use firstflight_wire::asap::{SiteVerifier, VerifiersParam};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// How long a resolver may take.
const LOOKUP: Duration = Duration::from_secs(4);
/// How long a server may take in UDP: SYNs leave at once, and after one second.
const ANSWER: Duration = Duration::from_millis(2500);
/// How long a connection may take to close.
const CLOSE: Duration = Duration::from_millis(200);

/// What was looked up.
#[derive(Debug)]
pub(crate) struct RecordLookup {
    addresses: Vec<SocketAddr>,
    /// What the HTTPS record says of certificates; the error if there is no answer.
    published: Result<Option<Published>, String>,
    /// The verifiers that the record names ([`VerifiersParam`]).
    verifiers: Vec<u8>,
}

impl RecordLookup {
    /// A server without a name.
    pub(crate) fn address(at: SocketAddr) -> Self {
        Self { addresses: vec![at], published: Ok(None), verifiers: Vec::new() }
    }

    pub(crate) fn first_of_each_family(&self) -> Vec<SocketAddr> {
        let mut first: Vec<SocketAddr> = Vec::new();
        for at in &self.addresses {
            if first.iter().all(|other| other.is_ipv4() != at.is_ipv4()) {
                first.push(*at);
            }
        }
        first
    }
}

/// Looks a server up: with the resolver that the user named, or with the system's.
/// Errors: when it has no address.
pub(crate) async fn look_up(name: &str, port: u16, names: Option<&Names>) -> io::Result<RecordLookup> {
    let addresses = async {
        let found: Vec<IpAddr> = match names {
            Some(names) => names.all_addresses(name, false).await?,
            None => tokio::net::lookup_host((name, port)).await?.map(|at| at.ip()).collect(),
        };
        let found = found.into_iter().filter(|ip| is_one_host(*ip));
        io::Result::Ok(found.map(|ip| SocketAddr::new(ip, port)).collect::<Vec<_>>())
    };
    let record = async {
        match names {
            Some(names) => published_by(names, name, port).await,
            None => published_by(&Names::system()?, name, port).await,
        }
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the resolver does not answer");
    let (addresses, published): (_, Result<io::Result<_>, _>) =
        tokio::join!(timeout(LOOKUP, addresses), timeout(LOOKUP, record));
    let addresses = addresses.unwrap_or_else(|_| Err(late()))?;
    if addresses.is_empty() {
        return Err(io::Error::other("it has no address"));
    }
    let published = published.unwrap_or_else(|_| Err(late())).map_err(|error| error.to_string());
    let (published, verifiers) = match published {
        Ok((published, verifiers)) => (Ok(published), verifiers),
        Err(error) => (Err(error), Vec::new()),
    };
    Ok(RecordLookup { addresses, published, verifiers })
}

/// What a server publishes, and the verifiers that its record names.
async fn published_by(names: &Names, name: &str, port: u16) -> io::Result<(Option<Published>, Vec<u8>)> {
    let published = names.record(name, port).await?;
    let verifiers = match &published {
        Some(published) if published.names_verifiers => {
            names.parameter(name, port, VerifiersParam::KEY).await?.map(|found| found.value)
        }
        _ => None,
    };
    Ok((published, verifiers.unwrap_or_default()))
}

/// The verifiers of a record, as the end of a sentence.
fn as_named(verifiers: &[u8]) -> String {
    let Ok(param) = VerifiersParam::parse(verifiers) else { return String::new() };
    let show = |one: SiteVerifier<'_>| {
        let name = one.name.to_string();
        let below = if one.below { ", also for the names below" } else { "" };
        format!("{}:{}{below}", name.trim_end_matches('.'), one.udp_port)
    };
    let all: Vec<_> = param.iter().map(show).collect();
    format!(", and names verifiers for clients that know none: {}", all.join("; "))
}

/// The verdicts about certificates. Asks the server in UDP if its record names a port.
pub(crate) async fn judge(named: bool, found: &RecordLookup, remote: SocketAddr) -> Vec<Line> {
    let published = match &found.published {
        _ if !named => return vec![Line::new(Finding::RecordNoName, "An address has no HTTPS record.")],
        Err(error) => {
            let detail = format_args!("Its HTTPS record cannot be looked up: {error}.");
            return vec![Line::new(Finding::RecordFailed, detail)];
        }
        Ok(None) => {
            return vec![Line::new(Finding::RecordNone, "Its HTTPS record promises no certificates (ASAP).")];
        }
        Ok(Some(published)) => published,
    };
    let ways = match (published.on_ip, published.udp_port) {
        (true, Some(port)) => format!("in TCP, and in UDP at port {port}"),
        (false, Some(port)) => format!("in UDP at port {port}"),
        (_, None) => "in TCP".to_owned(),
    };
    let verifiers = as_named(&found.verifiers);
    let detail = format_args!("Its HTTPS record says that it takes certificates (ASAP) {ways}{verifiers}.");
    let mut lines = vec![Line::new(Finding::RecordPublished, detail)];
    if let Some(port) = published.udp_port {
        lines.push(if answers(remote, port).await {
            Line::new(Finding::AsapAnswers, format_args!("It answers at UDP port {port}."))
        } else {
            Line::new(Finding::AsapSilent, format_args!("It does not answer at UDP port {port}."))
        });
    }
    lines
}

/// Whether the server accepts a connection in UDP, without a first flight.
async fn answers(remote: SocketAddr, port: u16) -> bool {
    let connect = async {
        let link = UdpLink::towards(SocketAddr::new(remote.ip(), port))?;
        let endpoint = Endpoint::over_udp(firstflight::config(Vec::new())?, link);
        let config = ConnectConfig::default().encapsulation(Some(port));
        let stream = endpoint.connect(remote, FirstFlight::empty(), &config).await?;
        drop(stream);
        endpoint.shutdown(CLOSE).await;
        io::Result::Ok(())
    };
    matches!(timeout(ANSWER, connect).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_family_is_visited() {
        let found = RecordLookup {
            addresses: ["[fd00::1]:80", "[fd00::2]:80", "192.0.2.1:80", "192.0.2.2:80"]
                .map(|text| text.parse().unwrap())
                .into(),
            published: Ok(None),
            verifiers: Vec::new(),
        };
        assert_eq!(
            found.first_of_each_family(),
            ["[fd00::1]:80", "192.0.2.1:80"].map(|text| text.parse().unwrap())
        );
    }
}
