//! What a server can listen at.

use crate::client::authority::zoned;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use tokio::net::lookup_host;

/// Addresses to listen at, in any form that tokio's `TcpListener::bind` takes, and as text with a zone (`[fe80::1%eth0]:80`).
/// Port 0 lets the system choose.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use firstflight::ToLocalAddrs;
/// assert_eq!("127.0.0.1:0".to_local_addrs().await?, ("127.0.0.1", 0).to_local_addrs().await?);
/// assert!("[fe80::1%no-such-device]:80".to_local_addrs().await.is_err());
/// # Ok(())
/// # })
/// # }
/// ```
pub trait ToLocalAddrs {
    /// The addresses. A name is looked up.
    ///
    /// # Errors
    /// The lookup's. When a zone is no interface of this host.
    fn to_local_addrs(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

impl<T: ToLocalAddrs + ?Sized + Sync> ToLocalAddrs for &T {
    fn to_local_addrs(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        (**self).to_local_addrs()
    }
}

impl ToLocalAddrs for str {
    async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        if let Some((host, port)) = self.rsplit_once(':')
            && host.starts_with('[')
            && let Ok(port) = port.parse()
            && let Some(at) = at_zone(host, port)
        {
            return at;
        }
        Ok(lookup_host(self).await?.collect())
    }
}

impl ToLocalAddrs for String {
    fn to_local_addrs(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        self.as_str().to_local_addrs()
    }
}

impl ToLocalAddrs for (&str, u16) {
    async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        match at_zone(self.0, self.1) {
            Some(at) => at,
            None => Ok(lookup_host(*self).await?.collect()),
        }
    }
}

impl ToLocalAddrs for (String, u16) {
    async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        (self.0.as_str(), self.1).to_local_addrs().await
    }
}

impl ToLocalAddrs for [SocketAddr] {
    async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.to_vec())
    }
}

impl<const N: usize> ToLocalAddrs for [SocketAddr; N] {
    async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.to_vec())
    }
}

macro_rules! addresses {
    ($($address:ty),*) => {$(
        impl ToLocalAddrs for $address {
            async fn to_local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
                Ok(vec![SocketAddr::from(*self)])
            }
        }
    )*};
}

addresses!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

/// The address, if `host` has a zone.
fn at_zone(host: &str, port: u16) -> Option<io::Result<Vec<SocketAddr>>> {
    let at = zoned(host, port)?.map(|at| vec![at.into()]);
    Some(at.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error)))
}
