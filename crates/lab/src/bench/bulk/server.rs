//! The server of `bench bulk`: answers GET with bytes, and takes what PUT sends.

use clap::Args;
use firstflight::link::xdp::{Allow, Joined, XdpConfig};
use firstflight::link::{Tun, TunConfig};
use firstflight::{Card, Endpoint, ListenConfig};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// The core of the server.
const CORE: usize = 1;
/// Bytes of a write and of a read.
const PIECE: usize = 256 << 10;
/// The longest head of a request.
const HEAD: usize = 16 << 10;

/// A server for `bench bulk`, which starts it.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Server {
    /// The kernel's TCP listens here
    #[arg(long, conflicts_with = "engine")]
    kernel: Option<SocketAddr>,
    /// The engine listens here, on the TUN device or the card
    #[arg(long)]
    engine: Option<SocketAddr>,
    /// Name of the TUN device
    #[arg(long)]
    tun: Option<String>,
    /// Name of the card
    #[arg(long, conflicts_with = "tun")]
    card: Option<String>,
    /// Length of an answer
    #[arg(long)]
    bytes: u64,
}

/// Serves until the process is ended.
pub fn run(options: &Server) -> Result<String, io::Error> {
    let mut core = CpuSet::new();
    // With one core there is nothing to choose.
    if core.set(CORE).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &core);
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(options))
}

async fn serve(options: &Server) -> Result<String, io::Error> {
    if let Some(at) = options.engine {
        let endpoint = match (&options.tun, &options.card) {
            (Some(name), _) => on_tun(at, name),
            (None, Some(name)) => on_card(at, name),
            (None, None) => Err(io::ErrorKind::InvalidInput.into()),
        }?;
        let listener = endpoint.listen(ListenConfig::new(at)).map_err(io::Error::other)?;
        crate::output::line(&"ready")?;
        loop {
            tokio::spawn(answer(listener.accept().await?, options.bytes));
        }
    }
    let at = options.kernel.ok_or(io::ErrorKind::InvalidInput)?;
    let listener = TcpListener::bind(at).await?;
    crate::output::line(&"ready")?;
    loop {
        tokio::spawn(answer(listener.accept().await?.0, options.bytes));
    }
}

fn on_tun(at: SocketAddr, name: &str) -> io::Result<Endpoint> {
    let host = IpAddr::V4([10, 99, 1, 1].into());
    let config = TunConfig::default().name(name.to_owned()).host(vec![(host, 24)]).queue(16_384);
    let tun = Tun::create(config).map_err(io::Error::other)?;
    Ok(Endpoint::new(firstflight::config(vec![at.ip()])?, tun))
}

fn on_card(at: SocketAddr, name: &str) -> io::Result<Endpoint> {
    let card = Card::serve(XdpConfig::new(name, Allow::Any), &[at.ip()], at.port());
    let card = card.map_err(io::Error::other)?;
    let mut config = firstflight::config(vec![at.ip()])?;
    card.prepare(&mut config);
    let queues = card.attach().map_err(io::Error::other)?;
    Ok(Endpoint::new(config, Joined::open(queues).map_err(io::Error::other)?))
}

/// One request. What goes wrong ends the connection, and curl reports that.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, bytes: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut head = 0;
    let body = loop {
        let n = stream.read(piece.get_mut(head..HEAD).unwrap_or_default()).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head += n;
        let got = piece.get(..head).unwrap_or_default();
        if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
            break (head - end - 4) as u64;
        }
    };
    if piece.starts_with(b"GET ") {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        piece.fill(0);
        let mut left = bytes;
        while left > 0 {
            let len = left.min(PIECE as u64);
            stream.write_all(piece.get(..len as usize).unwrap_or_default()).await?;
            left -= len;
        }
    } else {
        let mut left = bytes.saturating_sub(body);
        while left > 0 {
            let n = stream.read(&mut piece).await? as u64;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left = left.saturating_sub(n);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
    }
    stream.shutdown().await
}
