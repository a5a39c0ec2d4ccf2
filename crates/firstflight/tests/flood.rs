//! Honest clients beside a flood of segments that are answered without a connection, in virtual time.

use crate::queues::{Dice, Queues};
use firstflight::link::{Link, PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{
    Config, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Sharding, Time, Workers,
    block_on_virtual,
};
use firstflight_stack::PacketDrop;
use firstflight_wire::tcp::{Flags, Header, OptionsBuf, fill_checksum};
use firstflight_wire::{SeqNum, ip};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 80;
/// Segments of the flood before each packet of the path.
const BEFORE_EACH: u32 = 63;

/// A link with a flood on it.
struct Flooded<L> {
    link: L,
    /// A packet of the path, behind the flood.
    waiting: Option<Vec<u8>>,
    left: u32,
    sent: u32,
}

impl<L> Flooded<L> {
    const fn new(link: L) -> Self {
        Self { link, waiting: None, left: 0, sent: 0 }
    }

    /// A SYN to a port where nobody listens.
    fn forge(&mut self, out: &mut [u8]) -> usize {
        self.sent += 1;
        let header = Header {
            src_port: 1024 + (self.sent % 60_000) as u16,
            dst_port: PORT + 1,
            seq: SeqNum::new(self.sent),
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: 65_535,
            urgent: 0,
        };
        let src = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
        let around = ip::Header {
            src,
            dst: SERVER,
            protocol: ip::Protocol::Tcp,
            hop_limit: 64,
            ecn: ip::Ecn::NotEct,
            dont_fragment: true,
            identification: 0,
        };
        let segment = &mut out[around.len()..];
        let len = header.emit(OptionsBuf::new().finish(), segment).unwrap();
        fill_checksum(&mut segment[..len], src, SERVER);
        around.emit(len, out).unwrap() + len
    }
}

impl<L: Link> Link for Flooded<L> {
    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn learns_flows(&self) -> bool {
        self.link.learns_flows()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.waiting.is_none() {
            let Poll::Ready(len) = self.link.poll_recv(cx, buf)? else { return Poll::Pending };
            (self.waiting, self.left) = (Some(buf[..len].to_vec()), BEFORE_EACH);
        }
        if self.left > 0 {
            self.left -= 1;
            return Poll::Ready(Ok(self.forge(buf)));
        }
        let packet = self.waiting.take().unwrap();
        buf[..packet.len()].copy_from_slice(&packet);
        Poll::Ready(Ok(packet.len()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.link.poll_send(cx, packet)
    }
}

/// Each connection gets what it sends.
fn echo(listener: Listener) {
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
}

/// No answer is lost because the application had its turn before they were sent: a SYN whose answer is lost comes again after a second. At a
/// wrong queue, or with many shards, which have a small part of the room for answers each, neither.
fn no_answer_is_lost(shards: usize, learn: bool) {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let time = Time::from(clock.clone());
    block_on_virtual(&clock, async {
        let path = PathConfig::with_delay(Duration::from_millis(5));
        let (a, b) = virtual_time_pair(path.clone(), path, 1, &clock).unwrap();
        let client = Endpoint::in_time(Config::new(vec![CLIENT], [1; 32]), a, &time);
        let queues = Queues::new(b, shards, Dice(7).deal()).learns_flows(learn);
        let flooded = |mut make: Box<dyn FnMut() -> io::Result<_> + Send>| move || make().map(Flooded::new);
        let links = queues.links().into_iter().map(|make| flooded(Box::new(make)));
        let workers = Workers::on(vec![Handle::current(); shards]).unwrap();
        let sharding = Sharding::new(&workers).time(&time);
        let server =
            Endpoint::sharded(&Config::new(vec![SERVER], [2; 32]), &sharding, links.collect()).unwrap();
        let at = SocketAddr::new(SERVER, PORT);
        echo(server.listen(ListenConfig::new(at)).unwrap());
        let visits = (0..64).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..4 {
                    let first = FirstFlight::safely_replayable(b"hello");
                    let mut stream = client.connect(at, first, &ConnectConfig::default()).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await.unwrap();
                    assert_eq!(answer, b"hello");
                }
            })
        });
        for visit in visits.collect::<Vec<_>>() {
            visit.await.unwrap();
        }
        let counters = server.counters();
        assert!(counters.packets_in > 10_000, "{shards}: {}", counters.packets_in);
        assert_eq!(counters.dropped(PacketDrop::ReplyQueueFull), 0, "{shards} shards, {learn}");
    })
    .unwrap();
}

#[test]
fn no_answer_of_one_engine_is_lost() {
    no_answer_is_lost(1, true);
}

#[test]
fn no_answer_of_several_shards_is_lost() {
    for shards in [2, 8] {
        no_answer_is_lost(shards, true);
        no_answer_is_lost(shards, false);
    }
}
