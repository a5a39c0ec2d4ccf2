//! Where on the path a SYN loses its Fast Open option: SYNs with growing hop limits, and what the routers quote of them.

use firstflight_kernel::{Quoted, Trip, send_through};
use firstflight_wire::tcp::FastOpen;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// The longest path that is looked at, routers.
const FARTHEST: u8 = 16;
/// How many routers in a row may say nothing.
const SILENT: u8 = 3;

/// A router on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Router {
    /// 1 is the first one.
    pub hop: u8,
    pub address: Option<IpAddr>,
}

impl fmt::Display for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "router {} ({address})", self.hop),
            None => write!(f, "router {}", self.hop),
        }
    }
}

/// What the routers quoted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// The last router at which the SYN still had what it left with.
    pub kept: Option<Router>,
    /// The first router at which the option, or the cookie in it, was gone.
    pub removed: Option<Router>,
    /// The number of routers, if a SYN arrived.
    pub routers: Option<u8>,
}

/// Sends SYNs with the kernel's cookie for the server and `data`, or with a request for one, until one arrives or lacks
/// its option. `patience` is the time for each.
pub(crate) async fn follow(remote: SocketAddr, data: &[u8], cookie: bool, patience: Duration) -> Path {
    let mut path = Path::default();
    let mut silent = 0;
    for hop in 1..=FARTHEST {
        match timeout(patience, send_through(remote, hop, data)).await {
            Ok(Ok(Trip::Arrived)) => {
                path.routers = Some(hop - 1);
                break;
            }
            Ok(Ok(Trip::Returned { router: address, quoted })) => {
                silent = 0;
                let router = Router { hop, address };
                match quoted {
                    Quoted::NoOption => path.removed = Some(router),
                    Quoted::Option(FastOpen::Request(_)) if cookie => path.removed = Some(router),
                    Quoted::Option(_) => path.kept = Some(router),
                    Quoted::TooShort => {}
                }
            }
            Ok(Err(_)) | Err(_) => silent += 1,
        }
        if path.removed.is_some() || silent == SILENT {
            break;
        }
    }
    path
}
