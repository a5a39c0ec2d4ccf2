//! A stream in UDP as one end of a socket pair.
//!
//! A program must learn whether a stream ended or broke. A socket pair has no reset, except for one case: if an end is closed
//! while it has bytes that nobody has read, the other end reads to the end of its bytes and then gets `ECONNRESET` (Linux,
//! `unix_release_sock`). So there is always such a byte at our end: one that is there from the beginning, or one of those that
//! were read already. It is taken away before an end in order.

use super::Runtime;
use super::client::Started;
use firstflight::{Endpoint, OwnedReadHalf, OwnedWriteHalf, Stream};
use socket2::SockRef;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Pair;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

/// Bytes that are moved at a time.
const PIECE: usize = 16 * 1024;
/// How often it is asked whether the program has closed its end, after it has said that it sends nothing more.
const ASK: Duration = Duration::from_secs(1);
/// How long an engine without connections has to end.
const GRACE: Duration = Duration::from_secs(2);

/// What a stream needs as long as it lives.
#[derive(Debug, Clone)]
pub(super) enum StreamKeeper {
    Client(Arc<Started>),
    Server(Arc<Engine>),
}

/// The engine of a server's streams in UDP.
#[derive(Debug)]
pub(super) struct Engine {
    pub endpoint: Option<Endpoint>,
    pub runtime: Arc<Runtime>,
}

impl Engine {
    /// Gives it up. The last one ends the engine in order.
    pub(super) async fn leave(engine: Arc<Self>) {
        if let Some(Self { endpoint: Some(endpoint), runtime }) = Arc::into_inner(engine) {
            endpoint.shutdown(GRACE).await;
            drop(runtime);
        }
    }
}

impl StreamKeeper {
    async fn leave(self) {
        match self {
            Self::Client(started) => Started::leave(started).await,
            Self::Server(engine) => Engine::leave(engine).await,
        }
    }
}

/// Gives a stream a descriptor, which does not block.
pub(super) fn begin(stream: Stream, keeper: StreamKeeper) -> io::Result<Pair> {
    let (program, ours) = Pair::pair()?;
    program.set_nonblocking(true)?;
    ours.set_nonblocking(true)?;
    looking::begin(&program, &ours)?;
    let ours = UnixStream::from_std(ours)?;
    tokio::spawn(async move {
        if run(stream, &ours).await.is_ok() {
            looking::end(&ours);
        }
        drop(ours);
        keeper.leave().await;
    });
    Ok(program)
}

/// Moves bytes until both directions have ended, the program is gone, or the stream is broken.
async fn run(stream: Stream, ours: &UnixStream) -> io::Result<()> {
    let (mut from_net, mut to_net) = stream.into_split();
    let result = both(&mut from_net, &mut to_net, ours).await;
    if result.is_err() {
        from_net.as_ref().abort();
    }
    result
}

async fn both(
    from_net: &mut OwnedReadHalf,
    to_net: &mut OwnedWriteHalf,
    ours: &UnixStream,
) -> io::Result<()> {
    let (mut inwards, mut outwards) = (pin!(inwards(from_net, ours)), pin!(outwards(ours, to_net)));
    tokio::select! {
        ended = &mut inwards => {
            ended?;
            outwards.await
        }
        ended = &mut outwards => {
            ended?;
            tokio::select! {
                ended = inwards => ended,
                () = gone(ours) => Ok(()),
            }
        }
    }
}

/// What the network sends goes to the program.
async fn inwards(net: &mut OwnedReadHalf, ours: &UnixStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = net.read(&mut piece).await?;
        let mut rest = piece.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return SockRef::from(ours).shutdown(Shutdown::Write);
        }
        while !rest.is_empty() {
            ours.writable().await?;
            match ours.try_write(rest) {
                Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the program sends goes to the network.
async fn outwards(ours: &UnixStream, net: &mut OwnedWriteHalf) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        ours.readable().await?;
        let count = match ours.try_io(Interest::READABLE, || looking::take(ours, &mut piece)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            count => count?,
        };
        match piece.get(..count).unwrap_or_default() {
            [] => return net.shutdown().await,
            taken => net.write_all(taken).await?,
        }
    }
}

/// Waits until the program has closed its end, which so far sends nothing more.
async fn gone(ours: &UnixStream) {
    // Sending nothing changes nothing, and fails when nobody can get it.
    while ours.writable().await.is_ok() && ours.try_write(&[]).is_ok() {
        tokio::time::sleep(ASK).await;
    }
}

/// Reads, and leaves one byte of what was read.
#[cfg(target_os = "linux")]
mod looking {
    use std::io::{self, Write as _};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Puts the first byte in place, and leaves it out of what is looked at.
    pub(super) fn begin(mut program: &UnixStream, ours: &UnixStream) -> io::Result<()> {
        program.write_all(&[0])?;
        let behind: libc::c_int = 1;
        let len = size_of_val(&behind) as libc::socklen_t;
        // SAFETY: the pointer has as many bytes as the length says, and the descriptor is open.
        let result = unsafe {
            let value = (&raw const behind).cast();
            libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, value, len)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn take(ours: &impl AsRawFd, into: &mut [u8]) -> io::Result<usize> {
        let count = receive(ours, into, libc::MSG_PEEK)?;
        // The byte in front goes, and the last one stays in its place.
        let mut gone = vec![0; count];
        receive(ours, &mut gone, 0)?;
        Ok(count)
    }

    pub(super) fn end(ours: &impl AsRawFd) {
        // If it fails, the program sees a reset in place of an end.
        let _ = receive(ours, &mut [0], 0);
    }

    fn receive(ours: &impl AsRawFd, into: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: the pointer has as many bytes as the length says, and the descriptor is open.
        let count = unsafe { libc::recv(ours.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), flags) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
mod looking {
    use std::io;
    use std::os::unix::net::UnixStream;

    /// Without `SO_PEEK_OFF` a stream that breaks looks like one that ends.
    pub(super) fn begin(_program: &UnixStream, _ours: &UnixStream) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn take(ours: &tokio::net::UnixStream, into: &mut [u8]) -> io::Result<usize> {
        ours.try_read(into)
    }

    pub(super) fn end(_ours: &tokio::net::UnixStream) {}
}
