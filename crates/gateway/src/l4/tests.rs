//! Connections that are early, on an emulated path, and their backends on loopback.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::testing::{Path, TestSite, accepted, backend};
use firstflight_http::{hello, proxy_header};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const TCP: &str = "mode = \"tcp\"";
const TLS: &str = "mode = \"tls-passthrough\"";

async fn read(stream: &mut (impl AsyncReadExt + Unpin), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn early_bytes_wait_for_the_clients_ack() {
    let path = Path::new().await;
    let (listener, at) = backend().await;
    let place = TestSite::new(TCP, "", at);
    let (connecting, stream) = path.connect(b"pay once").await;
    assert!(stream.is_early());
    let serving = place.serve(stream);
    // The backend is dialled at the first byte, and gets it when the client is known.
    let (mut far, _) = listener.accept().await.unwrap();
    assert_eq!(read(&mut far, 8).await, b"pay once");
    assert!(connecting.is_finished(), "the bytes went on before the client had the server's answer");
    far.write_all(b"paid").await.unwrap();
    far.shutdown().await.unwrap();
    let mut near = connecting.await.unwrap();
    assert_eq!(read(&mut near, 4).await, b"paid");
    near.shutdown().await.unwrap();
    serving.await.unwrap();
    let line = &place.lines(1).await[0];
    assert_eq!(line["early"], "waited");
    assert_eq!((&line["outcome"], &line["way"]), (&"accepted".into(), &"ip".into()));
    assert_eq!(
        (&line["early_bytes"], &line["bytes_in"], &line["bytes_out"]),
        (&8.into(), &8.into(), &4.into())
    );
    assert_eq!(line["end"], "closed");
}

#[tokio::test]
async fn a_replay_safe_backend_gets_early_bytes_at_once() {
    let path = Path::new().await;
    let (listener, at) = backend().await;
    let place = TestSite::new(TCP, "replay_safe = true", at);
    let (connecting, stream) = path.connect(b"look up").await;
    place.serve(stream);
    let (mut far, _) = listener.accept().await.unwrap();
    assert_eq!(read(&mut far, 7).await, b"look up");
    assert!(!connecting.is_finished(), "the bytes waited for the client's ACK");
    drop(far);
}

#[tokio::test]
async fn a_mark_says_which_bytes_are_early_and_no_others_pass() {
    let path = Path::new().await;
    let (listener, at) = backend().await;
    let place = TestSite::new(TCP, "replay_safe = true\nproxy_protocol = true", at);
    let (connecting, stream) = path.connect(b"look up").await;
    place.serve(stream);
    let (mut far, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    let said = loop {
        far.read_buf(&mut bytes).await.unwrap();
        if let Some(said) = proxy_header::read(&bytes).unwrap() {
            break said;
        }
    };
    assert_eq!(said.early_bytes, 7);
    assert_eq!(said.addresses.unwrap().1, "10.0.0.2:80".parse().unwrap());
    let mut near = connecting.await.unwrap();
    near.write_all(b", again").await.unwrap();
    let mut rest = bytes.split_off(said.length);
    while rest.len() < 14 {
        far.read_buf(&mut rest).await.unwrap();
    }
    assert_eq!(rest, b"look up, again");
}

#[tokio::test]
async fn of_tls_only_the_hello_passes_early() {
    let path = Path::new().await;
    let (listener, at) = backend().await;
    let place = TestSite::new(TLS, "", at);
    let hello = hello::sample("www.example.com");
    let early_data: &[u8] = &[23, 3, 3, 0, 5, 1, 2, 3, 4, 5];
    let data: &'static [u8] = [&hello[..], early_data].concat().leak();
    let (connecting, stream) = path.connect(data).await;
    place.serve(stream);
    let (mut far, _) = listener.accept().await.unwrap();
    assert_eq!(read(&mut far, hello.len()).await, hello);
    assert!(!connecting.is_finished(), "the hello waited for the client's ACK");
    // The answer to it does not wait either.
    far.write_all(b"server hello").await.unwrap();
    assert_eq!(read(&mut far, early_data.len()).await, early_data);
    assert!(connecting.is_finished(), "early data went on before the client had the server's answer");
    let mut near = connecting.await.unwrap();
    assert_eq!(read(&mut near, 12).await, b"server hello");
    drop((near, far));
    let line = &place.lines(1).await[0];
    assert_eq!((&line["early"], &line["host"]), (&"forwarded".into(), &"www.example.com".into()));
}

#[tokio::test]
async fn a_name_chooses_the_service_and_an_unknown_one_gets_an_alert() {
    let (listener, at) = backend().await;
    let route = format!("{TLS}\n[[listener.route]]\nhost = [\"*.example.com\"]\nservice = \"s\"");
    let place = TestSite::new(&route, "", at);
    // Without the default service.
    let text = format!("{:?}", place.site.load().config);
    assert!(text.contains("*.example.com"));
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    client.write_all(&hello::sample("a.example.com")).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    assert_eq!(read(&mut far, 5).await[0], 22);
}

#[tokio::test]
async fn a_backend_that_speaks_first_is_dialled_at_the_accept() {
    let (listener, at) = backend().await;
    let place = TestSite::new(TCP, "server_first = true", at);
    let (mut client, stream) = accepted().await;
    let serving = place.serve(stream);
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(b"220 ready\r\n").await.unwrap();
    assert_eq!(read(&mut client, 11).await, b"220 ready\r\n");
    client.write_all(b"QUIT").await.unwrap();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"QUIT");
    // The client has closed its direction only.
    far.write_all(b"221 bye").await.unwrap();
    drop(far);
    assert_eq!(read(&mut client, 7).await, b"221 bye");
    serving.await.unwrap();
}

/// A port that answers no SYN any more, because its queue is full. The connections hold it.
async fn deaf() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = socket.local_addr().unwrap();
    let listener = socket.listen(1).unwrap();
    let mut held = Vec::new();
    let patience = Duration::from_millis(300);
    while let Ok(connected) = timeout(patience, TcpStream::connect(at)).await {
        held.push(connected.unwrap());
    }
    (listener, held, at)
}

#[tokio::test]
async fn a_client_that_leaves_while_its_backend_is_dialled_is_let_go() {
    let (_listener, _held, at) = deaf().await;
    let hour = "connect_timeout = \"1h\"\nretries = 0";
    // It closes or resets before it has said anything; it resets after that.
    for (service, says, resets) in [
        ("server_first = true", false, false),
        ("server_first = true", false, true),
        ("", true, true),
        ("server_first = true", true, true),
    ] {
        let place = TestSite::new(TCP, &format!("{service}\n{hour}"), at);
        let (mut client, stream) = accepted().await;
        let serving = place.serve(stream);
        if says {
            client.write_all(b"x").await.unwrap();
            // Until the byte is read, which the reset would throw away.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if resets {
            client.set_zero_linger().unwrap();
        }
        assert!(!serving.is_finished());
        drop(client);
        // The dial would take an hour.
        serving.await.unwrap();
        assert_eq!(place.lines(1).await[0]["end"], "client-left", "{service} {says} {resets}");
    }
}

/// What comes during the dial is not lost, and an end behind it ends that direction only.
#[tokio::test]
async fn what_a_client_says_while_its_backend_is_dialled_arrives() {
    let (listener, at) = backend().await;
    let place = TestSite::new(TCP, "server_first = true", at);
    let (mut client, stream) = accepted().await;
    client.write_all(&[7; 100_000]).await.unwrap();
    client.shutdown().await.unwrap();
    let serving = place.serve(stream);
    let (mut far, _) = listener.accept().await.unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, [7; 100_000]);
    far.write_all(b"done").await.unwrap();
    drop(far);
    assert_eq!(read(&mut client, 4).await, b"done");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_half_closed_connection_ends_soon_when_nothing_passes() {
    let (listener, at) = backend().await;
    let place =
        TestSite::new(&format!("{TCP}\nhalf_closed_timeout = \"100ms\"\nidle_timeout = \"1h\""), "", at);
    let (mut client, stream) = accepted().await;
    let serving = place.serve(stream);
    client.write_all(b"x").await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read(&mut far, 1).await, b"x");
    serving.await.unwrap();
    assert_eq!(place.lines(1).await[0]["end"], "half-closed");
    assert!(client.read(&mut [0]).await.is_err(), "what was cut is reset");
    drop(far);
}

#[tokio::test]
async fn a_client_without_a_backend_is_reset() {
    let (listener, at) = backend().await;
    drop(listener);
    let place = TestSite::new(TCP, "", at);
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    client.write_all(b"x").await.unwrap();
    let error = client.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(place.lines(1).await[0]["end"], "no-backend");
}

#[tokio::test]
async fn a_proxy_header_is_taken_from_trusted_networks_and_needed_there() {
    let (listener, at) = backend().await;
    let place = TestSite::new(
        &format!("{TCP}\nproxy_protocol_from = [\"127.0.0.0/8\"]"),
        "proxy_protocol = true",
        at,
    );
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    let header =
        proxy_header::about("192.0.2.1:9".parse().unwrap(), "192.0.2.2:443".parse().unwrap(), None, 3)
            .unwrap();
    client.write_all(&[&header[..], b"abc"].concat()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    while bytes.len() < header.len() + 3 {
        far.read_buf(&mut bytes).await.unwrap();
    }
    // The mark of the proxy in front goes on.
    assert_eq!(bytes, [&header[..], b"abc"].concat());
    drop((client, far));
    assert_eq!(place.lines(1).await[0]["peer"], "192.0.2.1:9");

    let (mut client, stream) = accepted().await;
    let serving = place.serve(stream);
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    serving.await.unwrap();
    assert!(client.read(&mut [0; 1]).await.is_err(), "a connection without a header went on");
}
