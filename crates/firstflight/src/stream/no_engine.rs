//! In the place of `engine.rs` where no engine is built in.

use super::Way;
use firstflight_credential::{AcceptedBlock, Outcome};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The connection of a TCP that was not built in. There is none, so the compiler drops what would be done with it.
#[derive(Debug)]
pub(crate) enum EngineStream {}

macro_rules! nobody_calls {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl EngineStream {
            $(
                pub(crate) fn $name(&self $(, _: $argument)*) -> $result {
                    match *self {}
                }
            )*
        }
    };
}

nobody_calls! {
    way() -> Way;
    rtt() -> Option<Duration>;
    outcome() -> Outcome;
    peer_addr() -> SocketAddr;
    local_addr() -> io::Result<SocketAddr>;
    is_early() -> bool;
    early_bytes() -> u32;
    block() -> Option<(AcceptedBlock, u32)>;
    poll_handshake_confirmed(&mut Context<'_>) -> Poll<io::Result<()>>;
    set_nodelay(bool) -> io::Result<()>;
    nodelay() -> io::Result<bool>;
    set_keep_alive(Option<Duration>) -> io::Result<()>;
    keep_alive() -> io::Result<Option<Duration>>;
    set_linger(Option<Duration>) -> io::Result<()>;
    is_idle() -> bool;
    poll_receive(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    poll_peek(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<usize>>;
    poll_send(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>;
    poll_send_vectored(&mut Context<'_>, &[io::IoSlice<'_>]) -> Poll<io::Result<usize>>;
    close_sending() -> io::Result<()>;
    abort() -> ();
    hand_over() -> Option<Self>;
}
