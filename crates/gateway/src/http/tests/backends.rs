//! What backends with HTTP/1 say, and what becomes of it.

use super::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Another client of the same gateway.
async fn another(place: &TestSite) -> TcpStream {
    let (client, stream) = accepted().await;
    place.serve(stream);
    client
}

/// The whole answer to one request whose connection ends.
async fn whole(client: &mut TcpStream, request: &str) -> String {
    send(client, request).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

const CLOSE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_response_with_two_lengths_is_whole() {
    let chunked = "5\r\nhello\r\n0\r\n\r\n";
    for (fields, body) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", chunked),
        ("Transfer-Encoding: chunked\r\nContent-Length: 500", chunked),
        ("Content-Length: 5\r\nContent-Length: 5", "hello"),
        ("Content-Length: 5, 5", "hello"),
    ] {
        for http2 in [false, true] {
            let (mut client, backend, place) = pair("", "").await;
            let answering = tokio::spawn(async move {
                let mut far = backend.accept().await;
                head(&mut far).await;
                send(&mut far, &format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}")).await;
                (far, backend)
            });
            if http2 {
                let (parts, body) = get_by_h2(client).await.unwrap();
                assert_eq!((parts.status.as_u16(), &body[..]), (200, &b"hello"[..]), "{fields}");
                let lengths: Vec<_> = parts.headers.get_all("content-length").iter().collect();
                assert!(lengths.is_empty() || lengths == ["5"], "{fields}: {lengths:?}");
            } else {
                let answer = whole(&mut client, CLOSE).await.to_lowercase();
                assert!(answer.contains("hello"), "{fields}: {answer}");
                let coded = answer.contains("transfer-encoding: chunked");
                assert_eq!(answer.matches("content-length: 5\r\n").count(), usize::from(!coded), "{answer}");
            }
            drop((answering.await, place));
        }
    }
}

/// A GET by HTTP/2: its head, and its body.
async fn get_by_h2(client: TcpStream) -> Result<(hyper::http::response::Parts, Bytes), hyper::Error> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
    let (parts, body) = sender.send_request(request).await?.into_parts();
    Ok((parts, body.collect().await?.to_bytes()))
}

#[tokio::test]
async fn a_response_whose_coding_would_be_lost_is_a_502() {
    for fields in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
    ] {
        let (mut client, backend, _place) = pair("", "").await;
        send(&mut client, GET).await;
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(&mut far, &format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n0\r\n\r\n")).await;
        assert!(head(&mut client).await.contains(" 502 "), "{fields}");
    }
}

#[tokio::test]
async fn a_body_that_must_not_be_there_answers_nobody_else() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let asked_head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (request, answer) in [
        (asked_head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (asked_head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (asked_head, "HTTP/1.1 200 OK\r\n\r\n"),
        (get, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        (get, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    ] {
        let (mut client, backend, place) = pair("", "").await;
        send(&mut client, request).await;
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(&mut far, answer).await;
        let got = head(&mut client).await;
        assert!(!got.starts_with("http/1.1 204") || !got.contains("content-length"), "{got}");
        // The next client's request comes by another connection, so what the first one still has is for nobody.
        let mut next = another(&place).await;
        send(&mut next, get).await;
        let mut second = tokio::time::timeout(Duration::from_secs(20), backend.accept()).await.expect(answer);
        let _ = far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison").await;
        head(&mut second).await;
        send(&mut second, OK).await;
        assert!(head(&mut next).await.contains(" 200 "));
        assert_eq!(exactly(&mut next, 2).await, b"ok", "{answer}");
    }
}

const CHALLENGE: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n\
                         Content-Length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_on_which_a_client_logs_in_has_no_other_client() {
    // A challenge, credentials, or what a backend says of the connection.
    for (fields, answer) in [
        ("", CHALLENGE),
        ("Authorization: ntlm TlRM\r\n", OK),
        ("Proxy-Authorization: Negotiate YII=\r\n", OK),
        ("", "HTTP/1.1 200 OK\r\nPersistent-Auth: true\r\nContent-Length: 2\r\n\r\nok"),
        ("", "HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm=\"x\", NTLM\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let (mut alice, backend, place) = pair("", "").await;
        let login = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        send(&mut alice, &login).await;
        let mut hers = backend.accept().await;
        head(&mut hers).await;
        send(&mut hers, answer).await;
        let body = if head(&mut alice).await.contains("content-length: 2") { 2 } else { 0 };
        exactly(&mut alice, body).await;
        // Another client does not get it.
        let mut mallory = another(&place).await;
        send(&mut mallory, GET).await;
        let mut other = tokio::time::timeout(Duration::from_secs(20), backend.accept()).await.expect(answer);
        head(&mut other).await;
        send(&mut other, OK).await;
        head(&mut mallory).await;
        // She does, again and again, so the login works, and for later requests, too.
        for _ in 0..3 {
            send(&mut alice, GET).await;
            tokio::time::timeout(Duration::from_secs(20), head(&mut hers)).await.expect(answer);
            send(&mut hers, OK).await;
            assert!(head(&mut alice).await.contains(" 200 "));
            exactly(&mut alice, 2).await;
        }
        // It ends with her.
        drop(alice);
        assert_eq!(hers.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}

/// HTTP/2 has no such logins: its clients go on with HTTP/1.1, or use another scheme.
#[tokio::test]
async fn a_login_of_a_connection_is_not_for_http2() {
    let (client, backend, place) = pair("", "").await;
    let asking = tokio::spawn(get_by_h2(client));
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, CHALLENGE).await;
    let error = asking.await.unwrap().unwrap_err();
    let reason = std::error::Error::source(&error).and_then(|error| error.downcast_ref::<::h2::Error>());
    assert_eq!(reason.and_then(::h2::Error::reason), Some(::h2::Reason::HTTP_1_1_REQUIRED));
    assert_eq!(far.read(&mut [0; 1]).await.unwrap_or(0), 0, "the connection is nobody's");
    let asking = tokio::spawn(get_by_h2(another(&place).await));
    let mut far = backend.accept().await;
    head(&mut far).await;
    let basic = CHALLENGE.replace("Negotiate", "Basic realm=\"x\"");
    send(&mut far, &basic).await;
    let (parts, _) = asking.await.unwrap().unwrap();
    assert_eq!(parts.status, 401);
    assert_eq!(parts.headers.get_all("www-authenticate").iter().collect::<Vec<_>>(), ["Basic realm=\"x\""]);
}

#[tokio::test]
async fn reason_phrases_pass() {
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, GET).await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, "HTTP/1.1 200 Everything Fine\r\nContent-Length: 0\r\n\r\n").await;
    assert!(head(&mut client).await.starts_with("http/1.1 200 everything fine\r\n"));
}

#[tokio::test]
async fn a_response_that_the_backend_cuts_does_not_end_in_order_for_http_1_0() {
    for fields in ["Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"] {
        let (mut client, backend, _place) = pair("", "").await;
        send(&mut client, "GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(&mut far, &format!("HTTP/1.1 200 OK\r\n{fields}\r\n3\r\nabc\r\n")).await;
        head(&mut client).await;
        exactly(&mut client, 3).await;
        drop(far);
        let mut rest = Vec::new();
        let error = client.read_to_end(&mut rest).await.expect_err(fields);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{fields}");
    }
}

/// A client that is told nothing would send its next request, and lose it.
#[tokio::test]
async fn a_connection_that_ends_because_a_body_is_not_read_says_so() {
    let upload = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\nx";
    let (mut client, backend, _place) = pair("", "").await;
    drop(backend);
    send(&mut client, upload).await;
    let answer = head(&mut client).await;
    assert!(answer.contains(" 502 ") && answer.contains("connection: close\r\n"), "{answer}");
    // The backend's own answer.
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, upload).await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, "HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let answer = head(&mut client).await;
    assert!(answer.contains(" 413 ") && answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn what_belongs_to_a_head_or_a_hop_is_no_trailer() {
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\n\r\n").await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(
        &mut far,
        "HTTP/1.1 200 OK\r\nTrailer: x-sum, content-length, connection\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nConnection: x\r\n\r\n",
    )
    .await;
    head(&mut client).await;
    let rest = head(&mut client).await;
    assert!(!rest.contains("content-length") && !rest.contains("connection"), "{rest}");
}

/// A whole response behind the one that was asked for, at once or a moment later.
#[tokio::test]
async fn bytes_behind_a_response_answer_nobody() {
    const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for at_once in [true, false] {
        for _ in 0..20 {
            let (mut client, backend, place) = pair("", "").await;
            let mut next = another(&place).await;
            send(&mut client, GET).await;
            let mut far = backend.accept().await;
            head(&mut far).await;
            if at_once {
                send(&mut far, &format!("{OK}{POISON}")).await;
            } else {
                send(&mut far, OK).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                send(&mut far, POISON).await;
            }
            head(&mut client).await;
            exactly(&mut client, 2).await;
            if !at_once {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            send(&mut next, GET).await;
            let answering = async {
                let mut far = backend.accept().await;
                head(&mut far).await;
                send(&mut far, OK).await;
                far
            };
            let (_far, got) = tokio::join!(answering, async {
                head(&mut next).await;
                exactly(&mut next, 2).await
            });
            assert_eq!(got, b"ok", "at once: {at_once}");
        }
    }
}

#[tokio::test]
async fn a_websocket_of_a_client_that_logged_in_uses_its_connection() {
    let (mut alice, backend, _place) = pair("", "").await;
    send(&mut alice, "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: NTLM x\r\n\r\n").await;
    let mut hers = backend.accept().await;
    head(&mut hers).await;
    send(&mut hers, OK).await;
    head(&mut alice).await;
    exactly(&mut alice, 2).await;
    send(&mut alice, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert!(head(&mut hers).await.contains("upgrade: websocket"));
    send(
        &mut hers,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi",
    )
    .await;
    assert!(head(&mut alice).await.contains(" 101 "));
    assert_eq!(exactly(&mut alice, 2).await, b"hi");
}

#[tokio::test]
async fn a_failure_names_its_backend_and_what_failed() {
    let (mut client, backend, place) = pair("", "response_timeout = \"100ms\"").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    assert!(head(&mut client).await.starts_with("http/1.1 504 "));
    let line = &place.lines(1).await[0];
    assert_eq!((&line["end"], &line["status"]), (&"response-timeout".into(), &504.into()), "{line}");
    assert_eq!(line["backend"], backend.at.to_string());
    let gone = backend.at;
    drop((backend, far));
    let place = TestSite::new(HTTP, "", gone);
    let (mut near, stream) = accepted().await;
    place.serve(stream);
    send(&mut near, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head(&mut near).await.starts_with("http/1.1 502 "));
    assert_eq!(place.lines(1).await[0]["end"], "connect");
}
