//! Two endpoints over UDP sockets of this host, without privileges, in real time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight::link::{BusyPoll, Link, UdpLink};
use firstflight::{
    Client, ConnectConfig, EncapsulationConfig, Endpoint, FirstFlight, ListenConfig, credential,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const PORT: u16 = 80;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// An endpoint on all addresses, and its UDP port.
fn server() -> (Endpoint, u16) {
    let link = UdpLink::bind_all(0).unwrap();
    let port = link.port();
    (Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link), port)
}

/// An endpoint whose thread stays awake for this long after each packet.
fn busy(link: UdpLink, window: Duration) -> Endpoint {
    let mut config = firstflight::config(Vec::new()).unwrap();
    Endpoint::prepare_udp(&mut config, &link);
    Endpoint::new(config, BusyPoll::new(link, window))
}

/// A client for a server at `ip`, the server's address, and the connect settings.
fn client(ip: IpAddr, port: u16) -> (Endpoint, SocketAddr, ConnectConfig) {
    let link = UdpLink::towards(SocketAddr::new(ip, port)).unwrap();
    let endpoint = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let config = ConnectConfig::default().encapsulation(Some(port));
    (endpoint, SocketAddr::new(ip, PORT), config)
}

fn listen(server: &Endpoint, v6: bool) -> firstflight::Listener {
    let any: IpAddr = if v6 { "::".parse().unwrap() } else { "0.0.0.0".parse().unwrap() };
    server.listen(ListenConfig::new(SocketAddr::new(any, PORT))).unwrap()
}

async fn limited<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("no end in sight")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn megabytes_go_both_ways_over_several_connections_at_once() {
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let (server, port) = server();
        let listener = listen(&server, ip.is_ipv6());
        tokio::spawn(async move {
            // Every connection gets back what it sends.
            while let Ok(stream) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.into_split();
                    tokio::io::copy(&mut reader, &mut writer).await?;
                    writer.shutdown().await
                });
            }
        });
        let (client, remote, config) = client(ip, port);
        let mut transfers = JoinSet::new();
        for n in 0..6 {
            let (client, config) = (client.clone(), config.clone());
            transfers.spawn(async move {
                let stream = client.connect(remote, FirstFlight::empty(), &config).await?;
                let (mut reader, mut writer) = stream.into_split();
                let sent = bytes(n, 1 << 20);
                let copy = sent.clone();
                let writing = tokio::spawn(async move {
                    writer.write_all(&copy).await?;
                    writer.shutdown().await
                });
                let mut got = Vec::new();
                reader.read_to_end(&mut got).await?;
                writing.await??;
                assert!(got == sent, "connection {n}: {} of {} bytes", got.len(), sent.len());
                io::Result::Ok(())
            });
        }
        while let Some(result) = limited(transfers.join_next()).await {
            result.unwrap().unwrap();
        }
    }
}

/// Also with a window that is often too short.
#[tokio::test]
async fn busy_polling_loses_no_byte() {
    for window in [1, 20, 1000].map(Duration::from_micros) {
        let link = UdpLink::bind_all(0).unwrap();
        let port = link.port();
        let server = busy(link, window);
        let listener = listen(&server, false);
        let sent = bytes(7, 1 << 20);
        let copy = sent.clone();
        let serving = tokio::spawn(async move {
            for _ in 0..20 {
                let mut stream = listener.accept().await?;
                stream.write_all(&copy).await?;
                stream.shutdown().await?;
            }
            io::Result::Ok(())
        });
        let remote = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let client = busy(UdpLink::towards(remote).unwrap(), window);
        let config = ConnectConfig::default().encapsulation(Some(port));
        let remote = SocketAddr::new(remote.ip(), PORT);
        for _ in 0..20 {
            let stream = client.connect(remote, FirstFlight::empty(), &config);
            let mut stream = limited(stream).await.unwrap();
            let mut got = Vec::new();
            limited(stream.read_to_end(&mut got)).await.unwrap();
            assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        }
        limited(serving).await.unwrap().unwrap();
    }
}

/// A link that counts how often it is asked for packets.
struct Counted<L>(L, Arc<AtomicUsize>);

impl<L: Link> Link for Counted<L> {
    fn mtu(&self) -> usize {
        self.0.mtu()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.poll_recv(cx, buf)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.0.poll_send(cx, packet)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }
}

/// Also the first packet after a long time begins the window: the thread is awake when the answer comes.
#[tokio::test]
async fn a_connect_out_of_idle_polls_busily() {
    // Nobody answers.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = silent.local_addr().unwrap();
    for (window, busy) in [(Duration::ZERO, false), (Duration::from_secs(3600), true)] {
        let link = UdpLink::towards(remote).unwrap();
        let mut config = firstflight::config(Vec::new()).unwrap();
        Endpoint::prepare_udp(&mut config, &link);
        let asked = Arc::new(AtomicUsize::new(0));
        let client = Endpoint::new(config, Counted(BusyPoll::new(link, window), Arc::clone(&asked)));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let to = SocketAddr::new(remote.ip(), PORT);
        let connecting = tokio::spawn(async move {
            let config = ConnectConfig::default().encapsulation(Some(remote.port()));
            client.connect(to, FirstFlight::empty(), &config).await.map(drop)
        });
        silent.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let syn = async {
            while silent.recv(&mut [0; 1500]).is_err() {
                tokio::task::yield_now().await;
            }
        };
        limited(syn).await;
        let before = asked.load(Ordering::SeqCst);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let times = asked.load(Ordering::SeqCst) - before;
        assert_eq!(times >= 40, busy, "{times} times");
        connecting.abort();
    }
}

#[tokio::test]
async fn fast_open_works_without_privileges() {
    let (server, port) = server();
    let keys = credential::KeyRing::new(credential::Scheme::Linux, firstflight::random_key().unwrap());
    let mut listen = ListenConfig::new("0.0.0.0:80".parse().unwrap());
    let pending = Arc::new(credential::PendingLimit::new(16));
    listen.fast_open = Some(credential::FastOpenPolicy::new(Arc::new(keys), pending));
    let listener = server.listen(listen).unwrap();
    tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            let mut request = [0; 4];
            stream.read_exact(&mut request).await?;
            stream.write_all(if stream.early_bytes() == 4 { b"early" } else { b"later" }).await?;
            stream.shutdown().await?;
        }
        io::Result::Ok(())
    });
    let (client, remote, config) = client("127.0.0.1".parse().unwrap(), port);
    let config = config.fast_open(true);
    for expected in ["later", "early"] {
        let ping = FirstFlight::safely_replayable(b"ping");
        let mut stream = limited(client.connect(remote, ping, &config)).await.unwrap();
        let mut answer = String::new();
        limited(stream.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(answer, expected);
        assert_eq!(stream.outcome().is_accepted(), expected == "early");
    }
}

#[tokio::test]
async fn who_does_not_listen_refuses() {
    let (_server, port) = server();
    let (client, remote, config) = client("127.0.0.1".parse().unwrap(), port);
    let error = limited(client.connect(remote, FirstFlight::empty(), &config)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

/// The server's host reports that the UDP port is closed. The connect fails at once, not after the SYN's timeouts.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_closed_udp_port_refuses() {
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let closed = UdpLink::bind(SocketAddr::new(ip, 0)).unwrap().port();
        let (client, remote, config) = client(ip, closed);
        for _ in 0..3 {
            let error = limited(client.connect(remote, FirstFlight::empty(), &config)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        }
    }
}

/// With a socket for all addresses and no configured address, the kernel's routes choose the source address.
#[tokio::test]
async fn a_client_on_all_addresses_connects_from_the_one_that_the_route_leads_to() {
    let (server, port) = server();
    let (v4, v6) = (listen(&server, false), listen(&server, true));
    let link = UdpLink::bind_all(0).unwrap();
    let client = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let config = ConnectConfig::default().encapsulation(Some(port));
    for (ip, listener) in [("127.0.0.1", &v4), ("::1", &v6), ("127.0.0.1", &v4)] {
        let ip: IpAddr = ip.parse().unwrap();
        let remote = SocketAddr::new(ip, PORT);
        let (ours, theirs) = tokio::join!(
            limited(client.connect(remote, FirstFlight::at_most_once(b"ping"), &config)),
            limited(listener.accept())
        );
        let (ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!(ours.local_addr().unwrap().ip(), ip);
        let mut got = [0; 4];
        limited(theirs.read_exact(&mut got)).await.unwrap();
        assert_eq!(&got, b"ping");
        // The same holds for a client by the endpoint.
        let any = Client::builder().engine_in_udp(client.clone(), Some(port)).build().unwrap();
        let ping = FirstFlight::at_most_once(b"ping");
        let racing = any.connect(remote, ping).into_future();
        let (any, theirs) = tokio::join!(limited(racing), limited(listener.accept()));
        assert_eq!(
            (any.unwrap().peer_addr().unwrap(), theirs.unwrap().peer_addr().unwrap().ip()),
            (remote, ip)
        );
    }
}

/// A UDP socket cannot send plain TCP. The connect returns an error instead of waiting.
#[tokio::test]
async fn without_the_server_s_udp_port_a_connect_is_an_error() {
    let (client, remote, _) = client("127.0.0.1".parse().unwrap(), 9);
    let config = ConnectConfig::default();
    let connecting = client.connect(remote, FirstFlight::empty(), &config);
    let error = limited(connecting).await.unwrap_err();
    assert!(error.to_string().contains("UDP port has to be named"), "{error}");
}

/// The caller's settings are kept, except those that the link decides.
#[tokio::test]
async fn the_link_decides_the_port_and_who_checks() {
    let link = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = link.port();
    let mut config = firstflight::config(Vec::new()).unwrap();
    config.encapsulation = Some(EncapsulationConfig::new(1).keep_alive(None));
    let endpoint = Endpoint::over_udp(config, link);
    let listen = ListenConfig::new("127.0.0.1:80".parse().unwrap());
    assert!(endpoint.listen(listen).is_ok(), "the socket's address is the stack's");
    let config = ConnectConfig::default().encapsulation(Some(port));
    let ourselves = endpoint.connect("127.0.0.1:80".parse().unwrap(), FirstFlight::empty(), &config).await;
    assert!(ourselves.is_err());
}
