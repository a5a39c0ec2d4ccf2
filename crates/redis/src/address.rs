//! The address of a store: what `--store` says.

use crate::error::ConnectError;
use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError};
use std::path::PathBuf;

/// The most hosts of one address. More are a mistake.
const MOST_HOSTS: usize = 64;

/// Where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A name or an IP address (without brackets), and a port.
    Tcp(String, u16),
    Unix(PathBuf),
}

/// A parsed address. It has no `Debug`, because it may contain a password.
#[derive(Clone)]
pub(crate) struct Address {
    pub places: Vec<Place>,
    /// Whether connections use TLS.
    pub tls: bool,
    /// User, password, number of the database and version of the protocol.
    pub login: RedisConnectionInfo,
}

/// An error that names the mistake and repeats nothing of the address.
fn mistake(text: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, text).into()
}

/// What an address without a host is.
pub(crate) fn no_host() -> ConnectError {
    ConnectError::Url(mistake("it names no host"))
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, RedisError> {
        let (scheme, rest) = url.split_once("://").ok_or(mistake("it has no scheme"))?;
        let (tls, scheme) = match scheme {
            "rediss" | "valkeys" => (true, "redis"),
            "redis" | "valkey" | "redis+unix" | "valkey+unix" | "unix" => (false, scheme),
            _ => return Err(mistake("the scheme is unknown")),
        };
        // `#insecure` would turn off the check of the certificate.
        if rest.contains('#') {
            return Err(mistake("it contains #; in a password write %23"));
        }
        let hosts = vec![format!("{scheme}://{rest}")];
        let mut places = Vec::new();
        let mut login = None;
        for host in &hosts {
            let info = host.as_str().into_connection_info()?;
            places.push(match info.addr() {
                ConnectionAddr::Tcp(host, port) => Place::Tcp(host.clone(), *port),
                ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
                _ => return Err(mistake("the scheme is unknown")),
            });
            login.get_or_insert_with(|| info.redis_settings().clone());
        }
        if places.len() > MOST_HOSTS {
            return Err(mistake("it names too many hosts"));
        }
        let login = login.ok_or(mistake("it names no host"))?;
        Ok(Self { places, tls, login })
    }

    pub(crate) fn has_password(&self) -> bool {
        self.login.password().is_some()
    }
}

/// Whether `url` contains a password, which other users of the machine can see if it is an argument of a process.
/// `false` if it is not an address.
#[must_use]
pub fn has_password(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| address.has_password())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp(host.to_owned(), port)
    }

    #[test]
    fn addresses_of_one_server() {
        for (url, place, tls, db) in [
            ("redis://10.1.0.1", tcp("10.1.0.1", 6379), false, 0),
            ("rediss://store.example:6380/2", tcp("store.example", 6380), true, 2),
            ("redis://[2001:db8::1]:7000", tcp("2001:db8::1", 7000), false, 0),
            ("rediss://[::1]/1", tcp("::1", 6379), true, 1),
            ("redis+unix:///run/redis.sock", Place::Unix("/run/redis.sock".into()), false, 0),
            ("unix:///run/redis.sock?db=3", Place::Unix("/run/redis.sock".into()), false, 3),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.places, address.tls, address.login.db()), (vec![place], tls, db), "{url}");
        }
    }

    #[test]
    fn a_password_is_found_and_not_repeated() {
        for url in ["redis://:hunter2@host", "rediss://farm:hunter2@host:1/2", "unix:///s?pass=hunter2"] {
            assert!(has_password(url), "{url}");
        }
        assert!(!has_password("redis://farm@host") && !has_password("nonsense"));
        for wrong in [
            "redis://:hunter2@host:port",
            "rediss://:hunter2@host#insecure",
            "redis://:hunter2@host/base",
            "http://:hunter2@host",
            ":hunter2@host",
            "redis://:hunter2@",
        ] {
            let error = Address::parse(wrong).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
