//! The address of a store: what `redis` of a gateway's `[store]` says.

use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError};
use std::path::PathBuf;

/// The most hosts of one address. More are a mistake.
const MOST_HOSTS: usize = 64;
const SENTINEL_PORT: u16 = 26379;
const CLUSTER_PORT: u16 = 6379;

/// Where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StorePlace {
    /// A name or an IP address (without brackets), and a port.
    Tcp(String, u16),
    Unix(PathBuf),
}

/// Which server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    One(StorePlace),
    /// The master of this name, as the sentinels at these places say.
    Sentinel(Vec<StorePlace>, String),
    /// The masters of the cluster that servers at these places belong to.
    Cluster(Vec<StorePlace>),
}

/// A parsed address. It has no `Debug`, because it may contain a password.
#[derive(Clone)]
pub(crate) struct Address {
    pub target: Target,
    /// Whether connections use TLS.
    pub tls: bool,
    /// User, password, number of the database and version of the protocol.
    pub login: RedisConnectionInfo,
}

/// An error that names the mistake and repeats nothing of the address.
fn mistake(text: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, text).into()
}

/// The library's errors, but for one that says only that there is one.
fn readable(error: RedisError) -> RedisError {
    match error.detail().is_none() && error.to_string().contains("did not parse") {
        true => mistake(
            "it is no URL: is the port a number up to 65535, an IPv6 address in brackets, and each of / ? # @ in a user or \
             password written as %2F %3F %23 %40",
        ),
        false => error,
    }
}

/// An address of one server.
fn one(url: &str) -> Result<(StorePlace, RedisConnectionInfo), RedisError> {
    let info = url.into_connection_info().map_err(readable)?;
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => StorePlace::Tcp(host.clone(), *port),
        ConnectionAddr::Unix(path) => StorePlace::Unix(path.clone()),
        _ => return Err(mistake("the scheme is unknown")),
    };
    Ok((place, info.redis_settings().clone()))
}

/// Hosts with commas between them, and the port of those that have none.
fn several(hosts: &str, port: u16) -> Result<Vec<StorePlace>, RedisError> {
    if hosts.split(',').count() > MOST_HOSTS {
        return Err(mistake("it names too many hosts"));
    }
    let place = |host: &str| {
        let name = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let with_port = if name.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        Ok(one(&format!("redis://{with_port}"))?.0)
    };
    hosts.split(',').map(place).collect()
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, RedisError> {
        let (scheme, rest) = url.split_once("://").ok_or(mistake("it has no scheme"))?;
        // `#insecure` would turn off the check of the certificate.
        if rest.contains('#') {
            return Err(mistake("it contains #; in a password write %23"));
        }
        let (tls, scheme) = match scheme {
            "rediss" | "valkeys" => (true, "redis"),
            "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => (false, scheme),
            "redis+sentinel" | "valkey+sentinel" => return Self::of_sentinels(rest, false),
            "rediss+sentinel" | "valkeys+sentinel" => return Self::of_sentinels(rest, true),
            "redis+cluster" | "valkey+cluster" => return Self::of_cluster(rest, false),
            "rediss+cluster" | "valkeys+cluster" => return Self::of_cluster(rest, true),
            _ => return Err(mistake("the scheme is unknown")),
        };
        let (place, login) = one(&format!("{scheme}://{rest}"))?;
        Ok(Self { target: Target::One(place), tls, login })
    }

    /// `[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]/NAME[/DATABASE]`
    fn of_sentinels(rest: &str, tls: bool) -> Result<Self, RedisError> {
        let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
        let (hosts, path) = rest.split_once('/').ok_or(mistake("it names no master"))?;
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() || name.contains('?') {
            return Err(mistake("it names no master"));
        }
        let places = several(hosts, SENTINEL_PORT)?;
        // What belongs to the master: user, password and database.
        let at = if user.is_empty() { "" } else { "@" };
        let (_, login) = one(&format!("redis://{user}{at}host/{database}"))?;
        Ok(Self { target: Target::Sentinel(places, name.to_owned()), tls, login })
    }

    /// `[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]`
    fn of_cluster(rest: &str, tls: bool) -> Result<Self, RedisError> {
        let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains(['/', '?']) {
            return Err(mistake("a cluster has no databases"));
        }
        let places = several(hosts, CLUSTER_PORT)?;
        let at = if user.is_empty() { "" } else { "@" };
        let (_, login) = one(&format!("redis://{user}{at}host"))?;
        Ok(Self { target: Target::Cluster(places), tls, login })
    }

    pub(crate) fn has_password(&self) -> bool {
        self.login.password().is_some()
    }
}

/// Whether `url` contains a password, which other users of the machine can see if it is an argument of a process.
/// `false` if it is not an address.
#[must_use]
pub fn has_password(url: &str) -> bool {
    // Redis ignores a password in the query of some addresses. Other users see it there, too.
    let is_asked =
        |(_, query): (&str, &str)| query.split('&').any(|part| part.to_ascii_lowercase().starts_with("pass"));
    url.split_once('?').is_some_and(is_asked)
        || Address::parse(url).is_ok_and(|address| address.has_password())
}

/// Whether connections to the store at `url` use TLS. `true` if it is not an address, which is another mistake.
#[must_use]
pub fn has_tls(url: &str) -> bool {
    Address::parse(url).map_or(true, |address| address.tls)
}

#[cfg(test)]
mod tests;
