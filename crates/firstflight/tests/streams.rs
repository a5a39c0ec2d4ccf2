//! Two endpoints on an emulated path, through the public interface only.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::{
    ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream, Time, block_on_virtual, credential,
    link,
};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

fn fast() -> ConnectConfig {
    ConnectConfig::default().fast_open(true).replay_safe(true)
}

/// A client, a server and its listener on port 80 with Fast Open.
fn world(delay: Duration) -> (Endpoint, Endpoint, Listener) {
    let path = link::PathConfig::with_delay(delay);
    on(link::real_time_pair(path.clone(), path, 1).unwrap(), &Time::system())
}

/// Like [`world`], on the path between these links.
fn on((a, b): (link::MemoryLink, link::MemoryLink), time: &Time) -> (Endpoint, Endpoint, Listener) {
    let config = |ip: &str| firstflight::config(vec![ip.parse().unwrap()]).unwrap();
    let client = Endpoint::in_time(config("10.0.0.1"), a, time);
    let server = Endpoint::in_time(config("10.0.0.2"), b, time);
    let keys = credential::KeyRing::new(credential::Scheme::Linux, firstflight::random_key().unwrap());
    let mut listen = ListenConfig::new(addr(80));
    let pending = Arc::new(credential::PendingLimit::new(16));
    listen.fast_open = Some(credential::FastOpenPolicy::new(Arc::new(keys), pending));
    let listener = server.listen(listen).unwrap();
    (client, server, listener)
}

/// Both ends of a new connection.
async fn both(
    client: &Endpoint,
    listener: &Listener,
    data: &[u8],
    config: &ConnectConfig,
) -> (Stream, Stream) {
    let (a, b) = tokio::join!(
        client.connect(addr(80), FirstFlight::safely_replayable(data), config),
        listener.accept()
    );
    (a.unwrap(), b.unwrap())
}

/// Fetches a cookie.
async fn first_visit(client: &Endpoint, listener: &Listener) {
    let (a, _b) = both(client, listener, b"", &fast()).await;
    assert_eq!(a.outcome().reason(), Some(credential::Reason::NoCredential));
}

async fn read(stream: &mut Stream, n: usize) -> Vec<u8> {
    let mut buf = vec![0; n];
    stream.read_exact(&mut buf).await.unwrap();
    buf
}

#[tokio::test]
async fn a_lazy_stream_that_is_read_first_still_sends_data_in_its_syn() {
    let (client, _server, listener) = world(Duration::ZERO);
    first_visit(&client, &listener).await;
    let stream = client.connect_lazy(addr(80), fast());
    let (mut reader, mut writer) = tokio::io::split(stream);
    // hyper's client checks for an early end of the stream before it writes.
    let reading = tokio::spawn(async move {
        let mut answer = String::new();
        reader.read_to_string(&mut answer).await.map(|_| (answer, reader))
    });
    tokio::task::yield_now().await;
    writer.write_all(b"ping").await.unwrap();
    let mut served = listener.accept().await.unwrap();
    assert_eq!(read(&mut served, 4).await, b"ping");
    served.write_all(b"pong").await.unwrap();
    served.shutdown().await.unwrap();
    let (answer, reader) = reading.await.unwrap().unwrap();
    assert_eq!(answer, "pong");
    assert!(reader.unsplit(writer).outcome().is_accepted());
}

/// Uses virtual time, because the SYN might time out on a busy machine.
#[test]
fn early_data_is_marked_until_the_handshake_is_confirmed() {
    let time = link::VirtualTime::new(Duration::ZERO);
    block_on_virtual(&time, early_data_is_marked(&time)).unwrap();
}

async fn early_data_is_marked(time: &link::VirtualTime) {
    let path = link::PathConfig::with_delay(Duration::from_millis(20));
    let pair = link::virtual_time_pair(path.clone(), path, 1, time).unwrap();
    let (client, _server, listener) = on(pair, &time.clone().into());
    first_visit(&client, &listener).await;
    let connecting = tokio::spawn(async move {
        client.connect(addr(80), FirstFlight::safely_replayable(b"early"), &fast()).await
    });
    let mut served = listener.accept().await.unwrap();
    assert!(served.is_early());
    assert_eq!(read(&mut served, 5).await, b"early");
    served.handshake_confirmed().await.unwrap();
    assert!(!served.is_early());
    assert_eq!(served.early_bytes(), 5);
    assert!(connecting.await.unwrap().unwrap().outcome().is_accepted());
    // Two visits: SYN, SYN-ACK and ACK; then SYN with data, SYN-ACK and ACK.
    assert_eq!(time.unix(), Duration::from_millis(120));
}

#[tokio::test]
async fn one_direction_closes_and_the_other_goes_on() {
    let (client, _server, listener) = world(Duration::ZERO);
    let (mut a, mut b) = both(&client, &listener, b"request", &ConnectConfig::default()).await;
    a.shutdown().await.unwrap();
    let mut request = String::new();
    b.read_to_string(&mut request).await.unwrap();
    assert_eq!(request, "request");
    assert_eq!(a.write(b"more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let body = vec![7; 3_000_000];
    let sending = tokio::spawn(async move {
        b.write_all(&body).await?;
        b.shutdown().await
    });
    let mut answer = Vec::new();
    a.read_to_end(&mut answer).await.unwrap();
    assert_eq!((answer.len(), answer.iter().all(|x| *x == 7)), (3_000_000, true));
    sending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_port_without_listener_refuses() {
    let (client, _server, _listener) = world(Duration::ZERO);
    let error = client.connect(addr(81), FirstFlight::empty(), &fast()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    // A lazy stream reports the error when it reads.
    let mut stream = client.connect_lazy(addr(81), fast());
    stream.write_all(b"x").await.unwrap();
    let error = stream.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn an_aborted_stream_resets_its_peer() {
    let (client, _server, listener) = world(Duration::ZERO);
    let (a, mut b) = both(&client, &listener, b"", &ConnectConfig::default()).await;
    a.abort();
    let error = b.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn shutdown_waits_for_what_is_on_its_way_and_then_everything_fails() {
    let (client, server, listener) = world(Duration::from_millis(5));
    let (mut a, mut b) = both(&client, &listener, b"", &ConnectConfig::default()).await;
    b.write_all(&[1; 200_000]).await.unwrap();
    drop(b);
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        a.read_to_end(&mut all).await.map(|_| all.len())
    });
    server.shutdown(Duration::from_secs(30)).await;
    assert_eq!(reading.await.unwrap().unwrap(), 200_000);
    assert_eq!(server.connections(), 0);
    assert!(listener.accept().await.is_err());
}

#[tokio::test]
async fn data_that_may_not_run_twice_waits_for_the_handshake() {
    let (client, _server, listener) = world(Duration::ZERO);
    first_visit(&client, &listener).await;
    let order = FirstFlight::at_most_once(b"order");
    let fast = fast();
    let (ours, theirs) = tokio::join!(client.connect(addr(80), order, &fast), listener.accept());
    let (ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    assert_eq!(read(&mut theirs, 5).await, b"order");
    assert_eq!((theirs.early_bytes(), theirs.is_early()), (0, false));
    assert_eq!(ours.outcome().reason(), Some(credential::Reason::NotReplaySafe));
}

#[tokio::test]
async fn a_lazy_stream_keeps_its_first_write_back_unless_it_may_run_twice() {
    for (replay_safe, early) in [(false, 0), (true, 5)] {
        let (client, _server, listener) = world(Duration::ZERO);
        first_visit(&client, &listener).await;
        let mut ours = client.connect_lazy(addr(80), fast().replay_safe(replay_safe));
        let (written, theirs) = tokio::join!(ours.write_all(b"order"), listener.accept());
        written.unwrap();
        let mut theirs = theirs.unwrap();
        assert_eq!(read(&mut theirs, 5).await, b"order");
        assert_eq!(theirs.early_bytes(), early);
        let reason = (!replay_safe).then_some(credential::Reason::NotReplaySafe);
        assert_eq!(ours.outcome().reason(), reason);
    }
}

/// Without a first write there was no data to send.
#[tokio::test]
async fn a_lazy_stream_that_is_closed_unwritten_had_no_data() {
    let (client, _server, listener) = world(Duration::ZERO);
    first_visit(&client, &listener).await;
    let mut ours = client.connect_lazy(addr(80), fast().replay_safe(false));
    ours.shutdown().await.unwrap();
    let _theirs = listener.accept().await.unwrap();
    ours.connected().await.unwrap();
    assert_eq!(ours.outcome().reason(), Some(credential::Reason::NoData));
}

#[tokio::test]
async fn a_lazy_stream_is_not_connected_before_its_first_write() {
    let (client, _server, listener) = world(Duration::ZERO);
    let mut ours = client.connect_lazy(addr(80), fast());
    let error = ours.connected().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    assert_eq!(ours.handshake_confirmed().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!((ours.info().is_none(), ours.peer_addr().unwrap()), (true, addr(80)));
    assert_eq!(ours.local_addr().unwrap_err().kind(), io::ErrorKind::NotConnected);
    ours.write_all(b"x").await.unwrap();
    let _theirs = listener.accept().await.unwrap();
    ours.connected().await.unwrap();
    assert_eq!(ours.local_addr().unwrap(), ours.info().unwrap().local);
}

#[tokio::test]
async fn a_lazy_stream_remembers_nodelay_until_its_first_write() {
    let (client, _server, _listener) = world(Duration::ZERO);
    let tcp = |nodelay| Some(Arc::new(firstflight::tcp::Config::default().nodelay(nodelay)));
    for (tcp, set, expected) in [
        (None, None, false),
        (None, Some(true), true),
        (tcp(true), None, true),
        (tcp(true), Some(false), false),
        (tcp(false), Some(true), true),
    ] {
        let mut ours = client.connect_lazy(addr(80), fast().tcp(tcp));
        if let Some(nodelay) = set {
            ours.set_nodelay(!nodelay).unwrap();
            ours.set_nodelay(nodelay).unwrap();
        }
        assert_eq!(ours.nodelay().unwrap(), expected);
        ours.write_all(b"a").await.unwrap();
        assert_eq!((ours.nodelay().unwrap(), ours.info().unwrap().nodelay), (expected, expected));
    }
}

#[tokio::test]
async fn a_lazy_stream_that_was_aborted_never_connects() {
    let (client, _server, _listener) = world(Duration::ZERO);
    let stream = client.connect_lazy(addr(80), fast());
    stream.abort();
    let mut stream = stream;
    for error in [
        stream.read(&mut [0; 8]).await.unwrap_err(),
        stream.write(b"x").await.unwrap_err(),
        stream.shutdown().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
    assert_eq!(client.counters().active_opens, 0);
}

/// Short parts leave in one segment, and of long ones all arrive in order, though not all fit at once.
#[tokio::test]
async fn a_vectored_write_sends_its_parts_in_order() {
    let (client, _server, listener) = world(Duration::ZERO);
    first_visit(&client, &listener).await;
    let (mut reader, mut writer) = both(&client, &listener, b"request", &fast()).await;
    assert!(writer.is_write_vectored() && !client.connect_lazy(addr(80), fast()).is_write_vectored());
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let parts: [&[u8]; 4] = [b"", b"head", &large, b"tail"];
    let whole = parts.concat();
    let writing = tokio::spawn(async move {
        let short = [io::IoSlice::new(b"ab"), io::IoSlice::new(b""), io::IoSlice::new(b"c")];
        assert_eq!(writer.write_vectored(&short).await.unwrap(), 3);
        let parts: [&[u8]; 4] = [b"", b"head", &large, b"tail"];
        let mut slices = parts.map(io::IoSlice::new);
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let taken = writer.write_vectored(left).await.unwrap();
            assert_ne!(taken, 0);
            io::IoSlice::advance_slices(&mut left, taken);
        }
        writer.shutdown().await.unwrap();
        writer
    });
    assert_eq!(read(&mut reader, 3).await, b"abc");
    let mut got = Vec::new();
    reader.read_to_end(&mut got).await.unwrap();
    assert!(got == whole, "{} of {} bytes", got.len(), whole.len());
    writing.await.unwrap();
}
