//! What a server is told at its start.

use super::key_ring;
use crate::boundary::{Errno, WRONG, bytes};
use crate::descriptor::may_run_twice;
use crate::runtime::options::{ff_server_options, parts, text};
use firstflight::trust::TrustFile;
use firstflight::{Server, ServerBuilder};
use std::io;
use std::net::SocketAddr;

/// Settings that are sound by themselves.
#[derive(Debug)]
pub(super) struct Settings {
    builder: ServerBuilder,
    trust: Option<String>,
    /// Connections are given to the program when they are confirmed.
    pub once: bool,
}

/// Reads a caller's settings.
///
/// # Safety
/// The pointers in `options` are as the header says.
pub(super) unsafe fn read(options: &ff_server_options) -> Result<Settings, Errno> {
    // SAFETY: as the caller of this function promises.
    let (addresses, names) = unsafe { (text(options.addresses)?, text(options.names)?) };
    // SAFETY: as the caller of this function promises.
    let (trust, keys) = unsafe { (text(options.trust)?, bytes(options.keys, options.keys_len)?) };
    let once = !may_run_twice(options.safety)?;
    if options.reserved != 0 || (options.udp_port < 0 && trust.is_some()) {
        return Err(WRONG);
    }
    // The program closes its connections itself.
    let mut builder = Server::builder().in_stages(false).pending(options.queue);
    for address in parts(addresses) {
        builder = builder.address(address.parse::<SocketAddr>().map_err(|_| WRONG)?);
    }
    for name in parts(names) {
        builder = builder.identity(name);
    }
    if let Some(keys) = key_ring(keys)? {
        builder = builder.keys(keys);
    }
    builder = match options.udp_port {
        -1 => builder.tcp_only(),
        0 => builder,
        port => builder.udp_port(u16::try_from(port).map_err(|_| WRONG)?),
    };
    Ok(Settings { builder, trust: trust.map(str::to_owned), once })
}

impl Settings {
    /// Listens.
    pub(super) async fn bind(self) -> io::Result<(Server, Option<TrustFile>)> {
        let Self { mut builder, trust, .. } = self;
        let trust = match trust {
            None => None,
            Some(path) => {
                let named = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {error}"));
                Some(TrustFile::open(&path).await.map_err(named)?)
            }
        };
        if let Some(file) = &trust {
            builder = builder.trust(file.store());
        }
        Ok((builder.bind()?, trust))
    }
}
