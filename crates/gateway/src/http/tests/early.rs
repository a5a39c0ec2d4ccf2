//! Requests in first flights, on an emulated path, and in TLS early data.

use super::*;
use crate::testing::Path;
use firstflight::FirstFlight;
use firstflight_tls::Connector;
use firstflight_tls::rustls::RootCertStore;

async fn place(listener: &str) -> (TestSite, Backend) {
    let backend = Backend::new().await;
    (TestSite::new(&format!("{HTTP}\n{listener}"), "", backend.at), backend)
}

#[tokio::test]
async fn an_early_get_goes_on_at_once_and_says_so() {
    let path = Path::new().await;
    let (place, backend) = place("").await;
    let (connecting, stream) = path.connect(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    place.serve(stream);
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.contains("early-data: 1\r\n"), "{asked}");
    assert!(!connecting.is_finished(), "the request waited for the client's ACK");
    send(&mut far, OK).await;
    let mut near = connecting.await.unwrap();
    assert!(head(&mut near).await.contains("200 ok"));
    assert_eq!(exactly(&mut near, 2).await, b"ok");
    let line = &place.lines(1).await[0];
    assert_eq!((&line["early"], &line["early_bytes"]), (&"forwarded".into(), &28.into()));
}

/// As when the rest did not fit into a lookup.
#[tokio::test]
async fn the_first_line_alone_makes_a_connection_ready_and_runs_nothing() {
    let path = Path::new().await;
    let (place, backend) = place("").await;
    let (connecting, stream) = path.connect(b"GET /a HTTP/1.1\r\n").await;
    place.serve(stream);
    let mut far = backend.accept().await;
    assert!(!connecting.is_finished(), "it waited for the rest");
    let mut near = connecting.await.unwrap();
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), far.read_u8()).await;
    assert!(early.is_err(), "something ran before the head was there");
    send(&mut near, "Host: a\r\n\r\n").await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("get /a http/1.1\r\n"), "{asked}");
    send(&mut far, OK).await;
    assert!(head(&mut near).await.contains("200 ok"));
}

#[tokio::test]
async fn a_short_label_is_the_request_for_its_url() {
    use firstflight_http::label::short_path;
    let path = Path::new().await;
    let url = "http://a/reports/overview?format=short";
    let (place, backend) = place(&format!("short = [{url:?}]")).await;
    let short = short_path(&hyper::Method::GET, &url.parse().unwrap());
    let request = format!("GET {short} HTTP/1.1\r\nHost: a\r\n\r\n");
    let (connecting, stream) = path.connect(request.leak().as_bytes()).await;
    place.serve(stream);
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("get /reports/overview?format=short http/1.1\r\n"), "{asked}");
    // What may be early is decided by the URL: this one has a query.
    assert!(connecting.is_finished() && !asked.contains("early-data"), "{asked}");
    send(&mut far, OK).await;
    let mut near = connecting.await.unwrap();
    let answer = head(&mut near).await;
    assert!(answer.contains("content-location: /reports/overview?format=short\r\n"), "{answer}");
    assert_eq!(exactly(&mut near, 2).await, b"ok");
    // Of another host it is none.
    send(&mut near, &format!("GET {short} HTTP/1.1\r\nHost: b\r\n\r\n")).await;
    let answer = head(&mut near).await;
    assert!(answer.contains(" 404 ") && !answer.contains("content-location"), "{answer}");
    let lines = place.lines(2).await;
    assert_eq!(lines[0]["path"], "/reports/overview?format=short");
    assert_eq!((&lines[0]["early"], &lines[1]["status"]), (&"waited".into(), &404.into()));
}

#[tokio::test]
async fn an_early_post_waits_for_the_clients_ack() {
    let path = Path::new().await;
    let (place, backend) = place("").await;
    let (connecting, stream) =
        path.connect(b"POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n100").await;
    place.serve(stream);
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(connecting.is_finished(), "the request went on before the client had the server's answer");
    assert!(!asked.contains("early-data"), "{asked}");
    assert_eq!(exactly(&mut far, 3).await, b"100");
    send(&mut far, OK).await;
    assert!(head(&mut connecting.await.unwrap()).await.contains("200 ok"));
    assert_eq!(place.lines(1).await[0]["early"], "waited");
}

#[tokio::test]
async fn a_backend_that_says_too_early_is_asked_again_after_the_ack() {
    let path = Path::new().await;
    let (place, backend) = place("").await;
    let (connecting, stream) = path.connect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    place.serve(stream);
    let mut far = backend.accept().await;
    assert!(head(&mut far).await.contains("early-data: 1\r\n"));
    send(&mut far, "HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n").await;
    // By another connection or by the same one.
    let again = async {
        tokio::select! {
            mut other = backend.accept() => { let asked = head(&mut other).await; (other, asked) }
            asked = head(&mut far) => (far, asked),
        }
    };
    let (mut far, asked) = again.await;
    assert!(connecting.is_finished(), "it was asked again before the client had the server's answer");
    assert!(!asked.contains("early-data"), "{asked}");
    send(&mut far, OK).await;
    assert!(head(&mut connecting.await.unwrap()).await.contains("200 ok"));
}

#[tokio::test]
async fn if_the_client_marked_its_request_it_gets_the_425() {
    let path = Path::new().await;
    let (place, backend) = place("").await;
    let (connecting, stream) = path.connect(b"GET / HTTP/1.1\r\nHost: a\r\nEarly-Data: 1\r\n\r\n").await;
    place.serve(stream);
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert_eq!(asked.matches("early-data: 1\r\n").count(), 1, "{asked}");
    send(&mut far, "HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n").await;
    assert!(head(&mut connecting.await.unwrap()).await.starts_with("http/1.1 425 "));
    // Also on a connection that is confirmed.
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\nEarly-Data: 1\r\nConnection: early-data\r\n\r\n").await;
    let (mut other, asked) = tokio::select! {
        mut other = backend.accept() => { let asked = head(&mut other).await; (other, asked) }
        asked = head(&mut far) => (far, asked),
    };
    assert!(asked.contains("early-data: 1\r\n"), "the mark was removed: {asked}");
    send(&mut other, "HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\n\r\n").await;
    assert!(head(&mut client).await.starts_with("http/1.1 425 "));
}

#[tokio::test]
async fn what_a_proxy_in_front_marked_is_never_confirmed() {
    let (place, backend) = place("proxy_protocol_from = [\"127.0.0.0/8\"]").await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let (from, to) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
    let marked = firstflight_http::proxy_header::about(from, to, None, post.len() as u32).unwrap();
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    client.write_all(&[&marked[..], post.as_bytes(), post.as_bytes()].concat()).await.unwrap();
    assert!(head(&mut client).await.starts_with("http/1.1 425 "));
    // The second request is behind the mark.
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("post / ") && asked.contains("x-forwarded-for: 192.0.2.1\r\n"), "{asked}");
}

/// A proxy in front says so with the header (RFC 8470). Nothing that comes here later can tell that it is no copy.
#[tokio::test]
async fn what_is_marked_by_its_header_passes_only_if_it_may_be_early() {
    let (place, backend) = place("").await;
    for (request, mark) in [("POST / ", "1"), ("GET /?pay=1 ", "1"), ("GET /%70ay ", "yes")] {
        let (mut client, stream) = accepted().await;
        place.serve(stream);
        send(&mut client, &format!("{request}HTTP/1.1\r\nHost: a\r\nEarly-Data: {mark}\r\n\r\n")).await;
        assert!(head(&mut client).await.starts_with("http/1.1 425 "), "{request}");
    }
    let (mut client, stream) = accepted().await;
    place.serve(stream);
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head(&mut backend.accept().await).await.starts_with("post / "));
}

#[tokio::test]
async fn tls_early_data_is_early_until_the_finished() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let certificate = format!("certificate = [{{ chain = {chain:?}, key = {key:?} }}]");
    let (place, backend) = place(&format!("[listener.tls]\n{certificate}")).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let connector = Connector::builder().roots(roots).alpn([firstflight_tls::HTTP_1_1]).build().unwrap();
    let site = "www.example.com:443".parse().unwrap();
    let path = Path::new().await;
    let get = FirstFlight::safely_replayable(b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n");
    for early in [false, true] {
        let (ours, theirs) = path.plain().await;
        place.serve(theirs);
        let near = connector.connect_over(ours, &site, get);
        let answered = async {
            let mut far = backend.accept().await;
            let asked = head(&mut far).await;
            send(&mut far, OK).await;
            asked
        };
        let (near, asked) = tokio::join!(near, answered);
        assert_eq!(asked.contains("early-data: 1\r\n"), early, "{asked}");
        assert!(asked.contains("x-forwarded-proto: https\r\n"));
        let mut near = near.unwrap();
        assert!(head(&mut near).await.contains("200 ok"));
        exactly(&mut near, 2).await;
        // Another name of the same connection.
        send(&mut near, "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n").await;
        assert!(head(&mut near).await.starts_with("http/1.1 421 "));
        let _ = near.leave().await;
    }
    assert_eq!(place.lines(3).await[2]["early"], "forwarded");
}
