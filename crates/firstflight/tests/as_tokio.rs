//! What programs expect of a stream that know tokio's `TcpStream`, for the kernel's streams and an engine's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use firstflight::kernel::{self, ListenConfig as KernelConfig};
use firstflight::{Client, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Server, Stream, link};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 80);
const LARGE: usize = 4 << 20;

/// Both ends of a connection, and what has to live as long.
struct Pair {
    ours: Stream,
    theirs: Stream,
    _engines: Vec<Endpoint>,
}

async fn of_kernel() -> Pair {
    let listener = kernel::listen("127.0.0.1:0".parse().unwrap(), KernelConfig::default()).unwrap();
    let client = Client::builder().kernel_only().build().unwrap();
    let connecting = client.connect(listener.local_addr(), FirstFlight::empty()).into_future();
    let (ours, theirs) = tokio::join!(connecting, listener.accept());
    Pair { ours: ours.unwrap(), theirs: theirs.unwrap(), _engines: Vec::new() }
}

fn engines() -> (Endpoint, Endpoint) {
    let path = link::PathConfig::with_delay(Duration::ZERO);
    let (near, far) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let config = |ip: &str| firstflight::config(vec![ip.parse().unwrap()]).unwrap();
    (Endpoint::new(config("10.0.0.1"), near), Endpoint::new(config("10.0.0.2"), far))
}

async fn of_engine() -> Pair {
    let (client, server) = engines();
    let listener = server.listen(ListenConfig::new(AT)).unwrap();
    let config = ConnectConfig::default();
    let (ours, theirs) = tokio::join!(client.connect(AT, FirstFlight::empty(), &config), listener.accept());
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    drop(listener);
    Pair { ours, theirs, _engines: vec![client, server] }
}

async fn both_kinds() -> [Pair; 2] {
    [of_kernel().await, of_engine().await]
}

/// Bytes that differ by `seed`.
fn bytes(seed: u64) -> Vec<u8> {
    (0..LARGE as u64).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_are_used_from_two_tasks_at_once() {
    for Pair { ours, theirs, _engines } in both_kinds().await {
        let way = ours.way();
        let mut tasks = Vec::new();
        for (seed, stream) in [(1, ours), (2, theirs)] {
            let (mut reader, mut writer) = stream.into_split();
            let writing = tokio::spawn(async move {
                writer.write_all(&bytes(seed)).await.unwrap();
                writer.shutdown().await.unwrap();
                writer
            });
            let reading = tokio::spawn(async move {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).await.unwrap();
                assert!(got == bytes(3 - seed), "{way:?}: {} of {LARGE} bytes", got.len());
                reader
            });
            tasks.push((reading, writing));
        }
        for (reading, writing) in tasks {
            let stream = reading.await.unwrap().reunite(writing.await.unwrap()).unwrap();
            assert_eq!(stream.way(), way);
        }
    }
}

/// Each read takes less than its buffer, so that the system's report is forgotten each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_does_not_fill_its_buffer_loses_no_wakeup() {
    for Pair { mut ours, mut theirs, _engines } in both_kinds().await {
        let answering = tokio::spawn(async move {
            let mut buf = [0; 100];
            loop {
                match theirs.read(&mut buf).await.unwrap() {
                    0 => break theirs.write_all(b"end").await.unwrap(),
                    n => theirs.write_all(&buf[..n]).await.unwrap(),
                }
            }
        });
        for round in 0..2000_u32 {
            ours.write_all(&round.to_be_bytes()).await.unwrap();
            let mut got = [0; 4];
            ours.read_exact(&mut got).await.unwrap();
            assert_eq!(u32::from_be_bytes(got), round);
        }
        ours.shutdown().await.unwrap();
        let mut rest = String::new();
        ours.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "end");
        answering.await.unwrap();
    }
}

#[tokio::test]
async fn dropping_the_write_half_closes_the_sending_direction() {
    for Pair { ours, mut theirs, _engines } in both_kinds().await {
        let (mut reader, mut writer) = ours.into_split();
        writer.write_all(b"all").await.unwrap();
        drop(writer);
        let mut got = String::new();
        theirs.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "all");
        // The other direction is open.
        theirs.write_all(b"answer").await.unwrap();
        theirs.shutdown().await.unwrap();
        got.clear();
        reader.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "answer");
    }
}

#[tokio::test]
async fn a_write_half_that_is_forgotten_leaves_its_direction_open() {
    for Pair { ours, theirs, _engines } in both_kinds().await {
        let (reader, writer) = ours.into_split();
        writer.forget();
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0];
        assert!(theirs.poll_peek(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending());
        // The last half closes the connection.
        drop(reader);
        assert_eq!(theirs.peek(&mut byte).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn halves_of_different_streams_are_not_reunited() {
    let [kernel, engine] = both_kinds().await;
    for (ours, other) in [(kernel.ours, engine.ours), (kernel.theirs, engine.theirs)] {
        let (way, other_way) = (ours.way(), other.way());
        let (reader, writer) = ours.into_split();
        let (other_reader, other_writer) = other.into_split();
        let error = reader.reunite(other_writer).unwrap_err();
        assert_eq!(error.to_string(), "the halves are not of one stream");
        let (reader, other_writer) = (error.0, error.1);
        let error = writer.reunite(other_reader).unwrap_err();
        // Nothing was lost or closed by that.
        let ours = error.1.reunite(reader).unwrap();
        let other = other_writer.reunite(error.0).unwrap();
        assert_eq!((ours.way(), other.way()), (way, other_way));
        for mut stream in [ours, other] {
            stream.write_all(b"x").await.unwrap();
        }
    }
}

#[tokio::test]
async fn peek_leaves_the_data() {
    for Pair { ours, mut theirs, _engines } in both_kinds().await {
        let (mut reader, writer) = ours.into_split();
        let stream = reader.as_ref();
        let mut cx = Context::from_waker(Waker::noop());
        let mut byte = [0];
        assert!(stream.poll_peek(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending());
        let mut seen = [0; 8];
        let (peeked, written) = tokio::join!(stream.peek(&mut seen), theirs.write_all(b"hello"));
        written.unwrap();
        assert_eq!(&seen[..peeked.unwrap()], b"hello");
        // A small buffer, and one beside data.
        assert_eq!(reader.peek(&mut byte).await.unwrap(), 1);
        let mut room = [b'-'; 8];
        let mut buf = ReadBuf::new(&mut room);
        buf.put_slice(b"-");
        let peeked = std::future::poll_fn(|cx| reader.as_ref().poll_peek(cx, &mut buf)).await.unwrap();
        assert_eq!((peeked, buf.filled()), (5, &b"-hello"[..]));
        let mut read = [0; 5];
        reader.read_exact(&mut read).await.unwrap();
        assert_eq!((&read, byte), (b"hello", [b'h']));
        theirs.shutdown().await.unwrap();
        assert_eq!(reader.peek(&mut byte).await.unwrap(), 0, "the end");
        assert_eq!(reader.read(&mut byte).await.unwrap(), 0);
        drop(writer);
    }
}

#[tokio::test]
async fn addresses_and_settings_have_the_signatures_of_tokio() {
    for Pair { ours, theirs, _engines } in both_kinds().await {
        let (reader, writer) = ours.into_split();
        for half in [reader.as_ref(), writer.as_ref()] {
            assert_eq!(half.peer_addr().unwrap(), theirs.local_addr().unwrap());
            assert_eq!(half.local_addr().unwrap(), theirs.peer_addr().unwrap());
        }
        assert_eq!(reader.peer_addr().unwrap(), writer.peer_addr().unwrap());
        assert_eq!(reader.local_addr().unwrap(), writer.local_addr().unwrap());
        for nodelay in [true, false] {
            writer.as_ref().set_nodelay(nodelay).unwrap();
            assert_eq!(reader.as_ref().nodelay().unwrap(), nodelay);
        }
        for (set, expected) in [
            (None, None),
            (Some(Duration::from_secs(90)), Some(Duration::from_secs(90))),
            (Some(Duration::from_millis(1)), Some(Duration::from_secs(1))),
            (None, None),
        ] {
            theirs.set_keep_alive(set).unwrap();
            assert_eq!(theirs.keep_alive().unwrap(), expected);
        }
    }
}

#[tokio::test]
async fn a_stream_that_lingers_for_no_time_is_reset() {
    for Pair { ours, mut theirs, _engines } in both_kinds().await {
        assert_eq!(ours.linger().unwrap(), None);
        ours.set_linger(Some(Duration::ZERO)).unwrap();
        assert_eq!(ours.linger().unwrap(), Some(Duration::ZERO));
        drop(ours);
        let error = theirs.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    // What was taken back is not done.
    for Pair { ours, mut theirs, _engines } in both_kinds().await {
        ours.set_linger(Some(Duration::ZERO)).unwrap();
        ours.set_linger(None).unwrap();
        drop(ours);
        assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
    }
    let Pair { ours, _engines, .. } = of_engine().await;
    let error = ours.set_linger(Some(Duration::from_secs(1))).unwrap_err();
    assert_eq!((error.kind(), ours.linger().unwrap()), (io::ErrorKind::Unsupported, None));
}

/// A server's stream would close in stages.
#[tokio::test]
async fn a_servers_stream_that_lingers_for_no_time_is_reset() {
    let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
    let mut client = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    let stream = server.accept().await.unwrap();
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(client.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// As an undivided one does: the client gets the whole answer, although it still sends.
#[tokio::test]
async fn halves_of_a_servers_stream_close_in_stages() {
    let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
    for reader_first in [false, true] {
        let mut client = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
        client.write_all(b"unread").await.unwrap();
        let (mut reader, mut writer) = server.accept().await.unwrap().into_split();
        reader.peek(&mut [0]).await.unwrap();
        writer.write_all(b"answer").await.unwrap();
        match reader_first {
            true => drop((reader, writer)),
            false => drop((writer, reader)),
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        client.write_all(b"more").await.unwrap();
    }
}

#[tokio::test]
async fn the_kernels_stream_has_a_descriptor_and_becomes_the_standard_librarys() {
    let [kernel, engine] = both_kinds().await;
    assert!(engine.ours.kernel().is_none());
    let back = engine.ours.into_std().unwrap().unwrap_err();
    back.set_nodelay(true).unwrap();

    let Pair { ours, mut theirs, .. } = kernel;
    ours.set_nodelay(true).unwrap();
    assert!(socket2::SockRef::from(ours.kernel().unwrap()).tcp_nodelay().unwrap());
    let mut tcp = ours.into_std().unwrap().unwrap();
    assert_eq!(tcp.local_addr().unwrap(), theirs.peer_addr().unwrap());
    tcp.set_nonblocking(false).unwrap();
    tcp.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    theirs.read_exact(&mut got).await.unwrap();
    theirs.write_all(&got).await.unwrap();
    tcp.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}

/// The connection is the program's now: nothing closes it in stages.
#[tokio::test]
async fn a_servers_stream_becomes_the_standard_librarys_whole() {
    let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
    let mut client = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    let mut tcp = server.accept().await.unwrap().into_std().unwrap().unwrap();
    tokio::task::yield_now().await;
    tcp.set_nonblocking(false).unwrap();
    tcp.write_all(b"hello").unwrap();
    let mut got = [0; 5];
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
}

#[tokio::test]
async fn the_halves_of_a_lazy_stream_connect_with_the_first_write() {
    let (client, server) = engines();
    let listener = server.listen(ListenConfig::new(AT)).unwrap();
    let lazy = || client.connect_lazy(AT, ConnectConfig::default()).into_split();

    let (mut reader, mut writer) = lazy();
    writer.as_ref().set_keep_alive(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(reader.as_ref().keep_alive().unwrap(), Some(Duration::from_secs(60)));
    let reading = tokio::spawn(async move {
        let mut got = [0; 4];
        reader.peek(&mut got[..1]).await.unwrap();
        reader.read_exact(&mut got).await.unwrap();
        (reader, got)
    });
    tokio::task::yield_now().await;
    writer.write_all(b"ping").await.unwrap();
    let mut theirs = listener.accept().await.unwrap();
    theirs.write_all(b"pong").await.unwrap();
    let (reader, got) = reading.await.unwrap();
    assert_eq!(&got, b"pong");
    let stream = reader.reunite(writer).unwrap();
    assert_eq!(stream.keep_alive().unwrap(), Some(Duration::from_secs(60)), "it went over to the connection");

    // Nothing will be written, so a reader does not wait for ever, and nothing connects.
    let (mut reader, writer) = lazy();
    let reading = tokio::spawn(async move { reader.read(&mut [0]).await.map_err(|error| error.kind()) });
    tokio::task::yield_now().await;
    drop(writer);
    assert_eq!(reading.await.unwrap(), Err(io::ErrorKind::ConnectionAborted));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(listener.poll_accept(&mut cx), Poll::Pending));
}
