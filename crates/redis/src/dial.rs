//! Opens connections: TCP, Unix sockets and TLS, with the user and the certificates from files.

mod tls;

use crate::address::{Address, StorePlace};
use crate::error::{AccessError, ConnectError, Failure};
use firstflight_files::read_secret;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use rustls::ClientConfig;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// Time limit of one attempt to connect.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// The most unanswered questions before the next one waits: as many as an endpoint has open.
const PIPELINE: usize = 512;
/// The longest file with a user and a password, bytes.
const LONGEST_LOGIN: usize = 4096;

/// What the member shows to the store, and how it recognises the store. Files are read again for every connection, so a
/// change takes effect without a restart.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A file with the lines `user NAME` (may be left out: the user `default`) and `password TEXT`, mode 0600. It replaces
    /// user and password of the address. For sentinels that ask for a password it has `sentinel-user NAME` and
    /// `sentinel-password TEXT`, too.
    pub login: Option<PathBuf>,
    /// A PEM file with the authorities that the store's certificate must lead to. Without it, those of the operating
    /// system.
    pub authorities: Option<PathBuf>,
    /// PEM files with the member's own certificate chain and its private key (mode 0600), for a store that asks for a
    /// certificate.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// How to reach the servers of one address.
pub(crate) struct Dialer {
    tls: bool,
    login: RedisConnectionInfo,
    access: Access,
}

/// What a server is. Each kind has its own users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Redis,
    Sentinel,
}

/// User and password.
struct Login {
    user: Option<Zeroizing<String>>,
    password: Zeroizing<String>,
}

/// The users and passwords of a file.
struct Logins {
    redis: Option<Login>,
    sentinel: Option<Login>,
}

impl Dialer {
    pub(crate) fn new(address: &Address, access: Access) -> Self {
        Self { tls: address.tls, login: address.login.clone(), access }
    }

    /// Reads the files.
    pub(crate) async fn check(&self) -> Result<(), ConnectError> {
        match self.read_files(Server::Redis).await {
            Err(Failure::Access(error)) => Err(ConnectError::Access(error)),
            // A file that is right, or a runtime that ends.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Connects to the server at `place`, and shows the user and the password. The caller limits the time.
    pub(crate) async fn connect(
        &self,
        place: &StorePlace,
        server: Server,
    ) -> Result<MultiplexedConnection, Failure> {
        let (login, tls) = self.read_files(server).await?;
        match place {
            StorePlace::Unix(path) => {
                start(&login, UnixStream::connect(path).await.map_err(io_failure)?).await
            }
            StorePlace::Tcp(host, port) => {
                let stream = connect_tcp(host, *port).await.map_err(io_failure)?;
                match tls {
                    None => start(&login, stream).await,
                    Some(config) => {
                        start(&login, tls::wrap(config, host, stream).await.map_err(io_failure)?).await
                    }
                }
            }
        }
    }

    /// Reads the files of [`Access`].
    async fn read_files(
        &self,
        server: Server,
    ) -> Result<(RedisConnectionInfo, Option<Arc<ClientConfig>>), Failure> {
        let (access, with_tls) = (self.access.clone(), self.tls);
        let read = tokio::task::spawn_blocking(move || {
            let login = access.login.as_deref().map(Logins::read).transpose()?;
            let tls = with_tls.then(|| tls::config(&access)).transpose()?;
            Ok::<_, AccessError>((login, tls))
        });
        let (login, tls) = read.await.map_err(|error| io_failure(io::Error::other(error)))??;
        let (login, info) = match server {
            Server::Redis => (login.and_then(|logins| logins.redis), self.login.clone()),
            Server::Sentinel => (login.and_then(|logins| logins.sentinel), RedisConnectionInfo::default()),
        };
        let info = match login {
            None => info,
            // A user of the address that is not in the file does not belong to this password.
            Some(Login { user, password }) => {
                let user = user.as_deref().map_or("default", String::as_str);
                info.set_username(user).set_password(&*password)
            }
        };
        Ok((info, tls))
    }
}

fn io_failure(error: io::Error) -> Failure {
    Failure::Redis(error.into())
}

/// Begins the protocol on `stream`.
async fn start<S>(login: &RedisConnectionInfo, stream: S) -> Result<MultiplexedConnection, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The callers limit the time.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE);
    let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// Tries all addresses of `host` in their order. One that does not answer takes its share of the time only.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    let each = CONNECT_WITHIN / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without this, the last packet of a question waits for the acknowledgement of the previous packet.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

impl Logins {
    fn read(path: &Path) -> Result<Self, AccessError> {
        let text = read_secret(path, LONGEST_LOGIN)
            .map_err(|error| AccessError::Unreadable(path.to_owned(), error))?;
        Self::parse(&text).ok_or_else(|| AccessError::Login(path.to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut values = [const { None }; 4];
        let [user, password, sentinel_user, sentinel_password] = &mut values;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.split_once(' ')?;
            let slot = match name {
                "user" => &mut *user,
                "password" => &mut *password,
                "sentinel-user" => &mut *sentinel_user,
                "sentinel-password" => &mut *sentinel_password,
                _ => return None,
            };
            if value.is_empty() || slot.replace(Zeroizing::new(value.to_owned())).is_some() {
                return None;
            }
        }
        let [user, password, sentinel_user, sentinel_password] = values;
        let login = |user: Option<_>, password: Option<_>| match (user, password) {
            (None, None) => Some(None),
            (user, Some(password)) => Some(Some(Login { user, password })),
            // A user without a password.
            (Some(_), None) => None,
        };
        let (redis, sentinel) = (login(user, password)?, login(sentinel_user, sentinel_password)?);
        (redis.is_some() || sentinel.is_some()).then_some(Self { redis, sentinel })
    }
}

#[cfg(test)]
mod tests;
