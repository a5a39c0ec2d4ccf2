//! HTTP/1.1.

use super::*;
use std::time::Duration;

#[tokio::test]
async fn a_request_goes_on_without_what_concerns_one_hop() {
    let (mut client, backend, place) = pair("", "").await;
    send(
        &mut client,
        "GET /a?b=c HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\n\
         X-Forwarded-For: 203.0.113.1\r\nAccept: */*\r\n\r\n",
    )
    .await;
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("get /a?b=c http/1.1\r\n"), "{asked}");
    assert!(asked.contains("host: www.example.com\r\n") && asked.contains("accept: */*\r\n"), "{asked}");
    assert!(
        asked.contains("x-forwarded-for: 127.0.0.1\r\n") && asked.contains("x-forwarded-proto: http\r\n")
    );
    assert!(!asked.contains("x-hop") && !asked.contains("connection:") && !asked.contains("early-data"));
    send(&mut far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5\r\nX-App: 1\r\n\r\nok")
        .await;
    let answer = head(&mut client).await;
    assert!(answer.starts_with("http/1.1 200 ok\r\n") && answer.contains("x-app: 1"), "{answer}");
    assert!(!answer.contains("keep-alive"), "{answer}");
    assert_eq!(exactly(&mut client, 2).await, b"ok");
    let line = &place.lines(1).await[0];
    assert_eq!(
        (&line["status"], &line["path"], &line["service"]),
        (&200.into(), &"/a?b=c".into(), &"s".into())
    );
    assert_eq!((&line["bytes_out"], &line["end"]), (&2.into(), &"closed".into()));
}

/// The field of the trace that a backend gets for a request with these fields, and what the log says.
async fn traced(listener: &str, sent: &str) -> (Option<String>, serde_json::Value) {
    let (mut client, backend, place) = pair(listener, "").await;
    send(&mut client, &format!("GET / HTTP/1.1\r\nHost: a\r\n{sent}\r\n")).await;
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert_eq!(
        asked.contains("tracestate: a=b"),
        asked.contains("4bf92f3577b34da6a3ce929d0e0e4736"),
        "{asked}"
    );
    send(&mut far, OK).await;
    head(&mut client).await;
    exactly(&mut client, 2).await;
    let field = asked.lines().find_map(|line| line.strip_prefix("traceparent: ")).map(str::to_owned);
    (field, place.lines(1).await[0]["trace_id"].clone())
}

#[tokio::test]
async fn a_trace_is_passed_on_or_begun_as_the_listener_says() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let theirs = format!("00-{trace}-00f067aa0ba902b7-00");
    let sent = format!("traceparent: {theirs}\r\ntracestate: a=b\r\n");
    assert_eq!(traced("", &sent).await, (Some(theirs.clone()), trace.into()));
    assert_eq!(traced("traceparent = \"pass\"", &sent).await, (Some(theirs), trace.into()));
    let null = serde_json::Value::Null;
    assert_eq!(traced("traceparent = \"remove\"", &sent).await, (None, null.clone()));
    assert_eq!(traced("traceparent = \"pass\"", "").await, (None, null));
    for sent in ["", "traceparent: 00-1-2-3\r\ntracestate: a=b\r\n"] {
        let (field, logged) = traced("", sent).await;
        let field = field.unwrap();
        assert!(field.len() == 55 && field.ends_with("-01") && !field.contains(trace), "{field}");
        assert_eq!(logged, field[3..35]);
    }
}

/// It goes on as HTTP/1.1, and servers refuse that without a host.
#[tokio::test]
async fn a_request_of_http_1_0_without_a_host_gets_one() {
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, "GET /a HTTP/1.0\r\n\r\n").await;
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("get /a http/1.1\r\n") && asked.contains("host: localhost\r\n"), "{asked}");
    assert!(!asked.contains("x-forwarded-host"), "nobody has said one: {asked}");
    send(&mut far, OK).await;
    assert!(head(&mut client).await.contains("200 ok"));
}

#[tokio::test]
async fn connections_to_backends_are_kept_and_a_closed_one_costs_no_request() {
    let (mut client, backend, place) = pair("", "").await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    send(&mut client, get).await;
    let mut far = backend.accept().await;
    for _ in 0..2 {
        head(&mut far).await;
        send(&mut far, OK).await;
        head(&mut client).await;
        exactly(&mut client, 2).await;
        send(&mut client, get).await;
    }
    // The backend reads the third request, and closes instead of answering.
    head(&mut far).await;
    drop(far);
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, OK).await;
    assert!(head(&mut client).await.contains("200 ok"));
    exactly(&mut client, 2).await;
    // A request that is not idempotent is not repeated.
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await;
    head(&mut far).await;
    drop(far);
    assert!(head(&mut client).await.contains("502"));
    assert_eq!(place.lines(4).await[3]["status"], 502);
}

#[tokio::test]
async fn a_request_with_two_lengths_is_refused_and_ends_its_connection() {
    for lengths in [
        "Content-Length: 40\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 40",
    ] {
        let (mut client, backend, _place) = pair("", "").await;
        let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        send(&mut client, &format!("POST / HTTP/1.1\r\nHost: a\r\n{lengths}\r\n\r\n{smuggled}")).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        let next = tokio::time::timeout(Duration::from_millis(100), backend.accept()).await;
        assert!(next.is_err(), "a request reached the backend");
    }
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "400"),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", "400"),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "405"),
    ] {
        let (mut client, _backend, _place) = pair("", "").await;
        send(&mut client, request).await;
        let answer = head(&mut client).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn limits_have_their_status() {
    let (mut client, _backend, _place) = pair("max_body = 3", "").await;
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await;
    assert!(head(&mut client).await.contains(" 413 "));
    let (mut client, backend, _place) = pair("max_body = 3", "").await;
    send(
        &mut client,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
    )
    .await;
    let _far = backend.accept().await;
    assert!(head(&mut client).await.contains(" 413 "));
    let (mut client, _backend, _place) = pair("max_header_bytes = 9000", "").await;
    let long = "x".repeat(20_000);
    send(&mut client, &format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n")).await;
    assert!(head(&mut client).await.contains(" 431 "));
    let (mut client, backend, place) = pair("", "response_timeout = \"50ms\"").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let _far = backend.accept().await;
    assert!(head(&mut client).await.contains(" 504 "));
    assert_eq!(place.lines(1).await[0]["status"], 504);
    let (mut client, backend, _place) = pair("", "").await;
    drop(backend);
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head(&mut client).await.contains(" 502 "));
    let (mut client, _backend, _place) = pair("header_timeout = \"50ms\"", "").await;
    send(&mut client, "GET / HTT").await;
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "a request without an end was answered");
}

/// Bytes of a response that wait in the gateway's host for a client that does not read.
const LARGE: usize = 1_000_000;

/// RFC 9112 §9.6: a host answers what comes for a connection that its program has closed with a RST, and throws away what it
/// has not yet sent.
#[tokio::test]
async fn a_client_that_sends_after_the_end_gets_the_whole_response() {
    let (mut client, backend, place) = pair("", "").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, &format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n{}", "x".repeat(LARGE))).await;
    head(&mut client).await;
    place.lines(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    send(&mut client, "GET / HTTP/1.1\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), LARGE);
}

#[tokio::test]
async fn a_client_reads_why_its_upload_was_refused() {
    // hyper ends connections on which an upgrade was asked for in another way.
    for more in ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"] {
        let (mut client, _backend, _place) = pair("max_body = 3", "").await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n{more}\r\n");
        send(&mut client, &head).await;
        // As many clients do, it sends everything before it reads.
        send(&mut client, &"x".repeat(4_000_000)).await;
        let mut answer = String::new();
        client.shutdown().await.unwrap();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{more}: {answer}");
    }
}

#[tokio::test]
async fn a_switch_of_protocols_makes_a_tunnel() {
    let (mut client, backend, place) = pair("", "").await;
    send(&mut client, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.contains("upgrade: websocket\r\n") && asked.contains("connection: upgrade\r\n"), "{asked}");
    send(
        &mut far,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
    )
    .await;
    let answer = head(&mut client).await;
    assert!(answer.starts_with("http/1.1 101 ") && answer.contains("upgrade: websocket\r\n"), "{answer}");
    assert_eq!(exactly(&mut client, 5).await, b"hello");
    send(&mut client, "ping").await;
    assert_eq!(exactly(&mut far, 4).await, b"ping");
    client.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
    send(&mut far, "bye").await;
    drop(far);
    assert_eq!(exactly(&mut client, 3).await, b"bye");
    let lines = place.lines(2).await;
    let tunnel = lines.iter().find(|line| line["event"] == "connection").unwrap();
    assert_eq!((&tunnel["bytes_in"], &tunnel["bytes_out"]), (&4.into(), &8.into()));
}

/// RFC 9110 §7.8.
#[tokio::test]
async fn a_switch_to_what_the_client_did_not_ask_for_is_a_bad_answer() {
    for fields in [
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: other\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, other\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: other\r\n",
        "Connection: Upgrade\r\n",
        "Upgrade: websocket\r\n",
        "",
    ] {
        let (mut client, backend, _place) = pair("", "").await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(&mut far, &format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\nhello")).await;
        let answer = head(&mut client).await;
        assert!(answer.starts_with("http/1.1 502 "), "{fields}: {answer}");
        // There is no tunnel.
        assert_eq!(far.read(&mut [0; 1]).await.unwrap_or(0), 0, "{fields}");
    }
}

#[tokio::test]
async fn a_tunnel_whose_backend_ends_first_still_takes_what_the_client_sends() {
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    send(&mut far, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    head(&mut client).await;
    far.shutdown().await.unwrap();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    send(&mut client, "late").await;
    assert_eq!(exactly(&mut far, 4).await, b"late");
}

#[tokio::test]
async fn a_drain_ends_connections_after_the_request_under_way() {
    let (mut client, backend, place) = pair("", "").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    place.drain.send_replace(true);
    send(&mut far, OK).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.to_lowercase().contains("connection: close") && answer.ends_with("ok"), "{answer}");
    // One without a request ends soon.
    let (mut client, _backend, place) = pair("", "").await;
    place.drain.send_replace(true);
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_meets_a_drain_is_answered() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for kept in [false, true] {
        let (mut client, backend, place) = pair("", "").await;
        let mut far = None;
        if kept {
            send(&mut client, get).await;
            let mut first = backend.accept().await;
            head(&mut first).await;
            send(&mut first, OK).await;
            assert!(!head(&mut client).await.contains("connection: close"));
            exactly(&mut client, 2).await;
            far = Some(first);
        }
        place.drain.send_replace(true);
        send(&mut client, get).await;
        let mut far = match far {
            Some(far) => far,
            None => backend.accept().await,
        };
        head(&mut far).await;
        send(&mut far, OK).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.to_lowercase().contains("connection: close") && answer.ends_with("ok"),
            "{kept}: {answer}"
        );
    }
}

#[tokio::test]
async fn an_idle_connection_ends() {
    let (mut client, _backend, _place) = pair("idle_timeout = \"50ms\"", "").await;
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_backend_with_tls_is_asked_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["app.internal".to_owned()]).unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let acceptor = firstflight_tls::Acceptor::builder()
        .certificate(vec![made.cert.der().clone()], key)
        .alpn([firstflight_tls::HTTP_1_1])
        .build()
        .unwrap();
    let tls = |name: &str| format!("proxy_protocol = true\n[service.tls]\nname = \"{name}\"\nca = {ca:?}");
    let (mut client, backend, _place) = pair("", &tls("app.internal")).await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // The PROXY header is in front of TLS.
    let mut far = backend.accept().await;
    let header = exactly(&mut far, 28).await;
    assert!(firstflight_http::proxy_header::read(&header).unwrap().is_some());
    let mut far = acceptor.accept_over(far).await.unwrap();
    assert!(head(&mut far).await.starts_with("get / "));
    assert_eq!(far.server_name(), Some("app.internal"));
    send(&mut far, OK).await;
    far.flush().await.unwrap();
    assert!(head(&mut client).await.contains("200 ok"));
    // A certificate of another name.
    let (mut client, backend, _place) = pair("", &tls("other.internal")).await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut far = backend.accept().await;
    exactly(&mut far, 28).await;
    let (accepted, answer) = tokio::join!(acceptor.accept_over(far), head(&mut client));
    drop(accepted);
    assert!(answer.contains(" 502 "), "{answer}");
}

#[tokio::test]
async fn a_head_may_have_as_many_lines_as_the_listener_says() {
    for (listener, most) in [("", 100), ("max_headers = 120", 120), ("max_headers = 3", 3)] {
        let more = |count: usize| "X-More: 1\r\n".repeat(count - 1);
        let (mut client, backend, _place) = pair(listener, "").await;
        send(&mut client, &format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", more(most))).await;
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(&mut far, OK).await;
        assert!(head(&mut client).await.starts_with("http/1.1 200 "), "{most}");
        exactly(&mut client, 2).await;
        send(&mut client, &format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", more(most + 1))).await;
        assert!(head(&mut client).await.starts_with("http/1.1 431 "), "{most}");
    }
}
