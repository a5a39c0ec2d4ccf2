//! What clients of HTTP/1.1 may send, and how their connections end.

use super::*;
use std::io::ErrorKind;
use std::time::Duration;

/// A request at the backend.
struct Through {
    client: TcpStream,
    far: TcpStream,
    asked: String,
    body: Vec<u8>,
    _place: TestSite,
}

/// Sends a request, and reads it at the backend with so many bytes of its body.
async fn through(request: &str, listener: &str, body: usize) -> Through {
    let (mut client, backend, place) = pair(listener, "").await;
    send(&mut client, request).await;
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    let body = exactly(&mut far, body).await;
    Through { client, far, asked, body, _place: place }
}

/// The status of what is sent, and everything else that comes until the connection ends.
async fn refused(request: &str) -> String {
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, request).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer.matches("HTTP/1.").count(), 1, "{request:?}: {answer}");
    let next = tokio::time::timeout(Duration::from_millis(50), backend.accept()).await;
    assert!(next.is_err(), "it reached the backend: {request:?}");
    answer.get(9..12).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_body_of_a_get_without_a_length_reaches_the_backend() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let Through { asked, body, .. } = through(&request, "", "5\r\nhello\r\n0\r\n\r\n".len()).await;
        assert!(asked.contains("transfer-encoding: chunked\r\n"), "{asked}");
        assert_eq!(body, b"5\r\nhello\r\n0\r\n\r\n", "{method}");
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let Through { asked, body, .. } = through(&request, "", 5).await;
        assert!(asked.contains("content-length: 5\r\n") && !asked.contains("transfer-encoding"), "{asked}");
        assert_eq!(body, b"hello", "{method}");
    }
}

#[tokio::test]
async fn transfer_codings_that_are_not_known_are_refused() {
    for (codings, status) in [
        ("Transfer-Encoding: gzip, chunked", "501"),
        ("Transfer-Encoding: JUNK, chunked", "501"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", "501"),
        ("Transfer-Encoding: gzip", "400"),
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{codings}\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        assert_eq!(refused(&request).await, status, "{codings}");
    }
}

#[tokio::test]
async fn a_length_behind_many_spaces_is_read() {
    let spaces = " ".repeat(140);
    let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:{spaces}{}\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}",
        smuggled.len()
    );
    assert_eq!(refused(&request).await, "400");
}

#[tokio::test]
async fn an_upload_changes_nothing_of_what_is_read_behind_it() {
    let (mut client, backend, _place) = pair("", "").await;
    let body = "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n".repeat(200);
    let post = format!(
        "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length:{}{}\r\n\r\n{body}",
        " ".repeat(140),
        body.len()
    );
    send(&mut client, &post).await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    assert_eq!(exactly(&mut far, body.len()).await, body.as_bytes());
    send(&mut far, OK).await;
    assert!(head(&mut client).await.contains(" 200 "));
    exactly(&mut client, 2).await;
    send(
        &mut client,
        "POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    .await;
    assert!(head(&mut client).await.contains(" 400 "));
}

#[tokio::test]
async fn hosts_that_are_none_are_refused() {
    for host in ["a.example:abc", "a:99999", "a,b", "*", "a b/c", "a..b", "", "a\r\nHost: b"] {
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await, "400", "{host}");
        assert_eq!(
            refused(&format!("GET / HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await,
            "400",
            "{host}"
        );
    }
}

#[tokio::test]
async fn a_dot_behind_a_name_passes_by_no_route() {
    let listener = "[[listener.route]]\nhost = [\"b.example\"]\nmethod = [\"NOTHING\"]\nservice = \"s\"\n\
                    [[listener.route]]\nhost = [\"b.example\"]\nservice = \"s\"\nearly = \"never\"";
    for host in ["b.example", "b.example.", "B.EXAMPLE.:80"] {
        let (mut client, backend, place) = pair(listener, "").await;
        send(&mut client, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        send(
            &mut {
                let mut far = backend.accept().await;
                head(&mut far).await;
                far
            },
            OK,
        )
        .await;
        assert!(head(&mut client).await.contains(" 200 "));
        assert_eq!(place.lines(1).await[0]["host"], "b.example");
    }
}

#[tokio::test]
async fn targets_pass_as_far_as_a_uri_can_hold_them() {
    for (target, seen) in [
        ("/a<b>`c", "/a%3Cb%3E%60c"),
        ("/a?b=<c>", "/a?b=%3Cc%3E"),
        ("/{a}|^\"\\", "/{a}|^\"\\"),
        ("/\u{e4}", "/%C3%A4"),
    ] {
        let (mut client, backend, _place) = pair("", "").await;
        send(&mut client, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let mut far = backend.accept().await;
        assert!(
            head(&mut far).await.starts_with(&format!("get {} http/1.1\r\n", seen.to_lowercase())),
            "{target}"
        );
    }
    assert_eq!(refused("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n").await, "400");
    assert_eq!(refused("CONNECT http://a:443 HTTP/1.1\r\nHost: a\r\n\r\n").await, "400");
    for (target, seen) in [("http://a", "*"), ("*", "*"), ("http://a/", "/"), ("/x", "/x")] {
        let Through { asked, .. } =
            through(&format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"), "", 0).await;
        assert!(asked.starts_with(&format!("options {seen} http/1.1\r\nhost: a\r\n")), "{target}: {asked}");
        assert!(!asked.contains("firstflight"), "{asked}");
    }
}

#[tokio::test]
async fn fields_that_become_those_of_others_are_dropped_unless_they_are_allowed() {
    let odd =
        "X_Real_IP: 203.0.113.5\r\nX_Forwarded_For: 203.0.113.5\r\nEarly_Data: 1\r\nX.Y: z\r\nX-Fine: 1\r\n";
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{odd}\r\n");
    let Through { asked, .. } = through(&request, "", 0).await;
    assert!(!asked.contains('_') && !asked.contains("x.y") && asked.contains("x-fine: 1\r\n"), "{asked}");
    let Through { asked, .. } = through(&request, "odd_field_names = true", 0).await;
    assert!(asked.contains("x_real_ip: ") && asked.contains("x.y: z\r\n"), "{asked}");
}

#[tokio::test]
async fn what_is_expected_is_known_or_refused() {
    assert_eq!(
        refused("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n").await,
        "417"
    );
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n")
        .await;
    let mut far = backend.accept().await;
    assert!(head(&mut client).await.starts_with("http/1.1 100 "));
    send(&mut client, "x").await;
    assert!(!head(&mut far).await.contains("expect"));
    assert_eq!(exactly(&mut far, 1).await, b"x");
}

#[tokio::test]
async fn trailers_of_a_request_have_nothing_that_belongs_into_its_head() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, host, content-length, x-forwarded-for\r\n\r\n\
                   1\r\nx\r\n0\r\nX-Sum: 1\r\nHost: b\r\nContent-Length: 5\r\nX-Forwarded-For: 203.0.113.5\r\nX_Odd: 1\r\n\r\n";
    let (mut client, backend, _place) = pair("", "").await;
    send(&mut client, request).await;
    let mut far = backend.accept().await;
    head(&mut far).await;
    assert_eq!(exactly(&mut far, 6).await, b"1\r\nx\r\n");
    let rest = head(&mut far).await;
    assert!(rest.starts_with("0\r\n"), "{rest}");
    assert!(!rest.contains("host") && !rest.contains("length") && !rest.contains("forwarded"), "{rest}");
}

/// RFC 9112 §8: the end of the connection is the only sign of a whole response.
#[tokio::test]
async fn a_response_that_is_cut_is_no_clean_end_for_a_client_that_waits_for_the_end() {
    for cut in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\na\r\nhello"] {
        let Through { mut client, mut far, _place, .. } =
            through("GET / HTTP/1.0\r\nHost: a\r\n\r\n", "", 0).await;
        send(&mut far, &format!("HTTP/1.1 200 OK\r\n{cut}")).await;
        let answer = head(&mut client).await;
        assert!(answer.contains(" 200 "), "{answer}");
        assert_eq!(exactly(&mut client, 5).await, b"hello");
        drop(far);
        let error = client.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{cut}");
    }
    let Through { mut client, mut far, _place, .. } =
        through("GET / HTTP/1.0\r\nHost: a\r\n\r\n", "", 0).await;
    send(&mut far, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").await;
    head(&mut client).await;
    assert_eq!(exactly(&mut client, 5).await, b"hello");
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_connection_whose_body_is_not_read_says_that_it_ends() {
    let listener = "[[listener.route]]\nhost = [\"x\"]\nservice = \"s\"";
    let (mut client, backend, _place) = pair(listener, "retries = 0").await;
    drop(backend);
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx").await;
    let answer = head(&mut client).await;
    assert!(answer.contains(" 502 ") && answer.contains("connection: close\r\n"), "{answer}");
    let (mut client, backend, _place) = pair(listener, "retries = 0").await;
    drop(backend);
    send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let answer = head(&mut client).await;
    assert!(answer.contains(" 502 ") && !answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_has_its_time_and_not_that_of_a_head() {
    let (mut client, backend, _place) = pair("header_timeout = \"100ms\"\nidle_timeout = \"1h\"", "").await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    send(&mut client, get).await;
    let mut far = backend.accept().await;
    for _ in 0..2 {
        head(&mut far).await;
        send(&mut far, OK).await;
        assert!(head(&mut client).await.contains(" 200 "));
        exactly(&mut client, 2).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        send(&mut client, get).await;
    }
    head(&mut far).await;
    let (mut client, _backend, place) = pair("header_timeout = \"100ms\"", "").await;
    send(&mut client, "GET /slow HTTP/1.1\r\nHost: a\r\n").await;
    assert!(head(&mut client).await.contains(" 408 "));
    let line = &place.lines(1).await[0];
    assert_eq!((&line["status"], &line["path"]), (&408.into(), &"/slow".into()));
}

/// A backend that takes no connection: its queue is full, and further SYNs wait.
async fn silent() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let at = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(at)).await
    {
        held.push(stream);
    }
    (at, held, listener)
}

#[tokio::test]
async fn nobody_is_connected_to_for_a_client_that_has_left() {
    for reset in [true, false] {
        let (at, _held, _listener) = silent().await;
        let place = TestSite::new(HTTP, "connect_timeout = \"1h\"", at);
        let (mut client, stream) = accepted().await;
        place.serve(stream);
        send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        if reset {
            client.set_zero_linger().unwrap();
        }
        drop(client);
        let line = &place.lines(1).await[0];
        assert_eq!((&line["end"], &line["status"]), (&"client-left".into(), &serde_json::Value::Null));
    }
}

#[tokio::test]
async fn a_client_that_closes_its_direction_gets_its_answer() {
    let Through { mut client, mut far, _place, .. } =
        through("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 0).await;
    client.shutdown().await.unwrap();
    tokio::time::sleep(HALF_CLOSED_AND_MORE).await;
    send(&mut far, OK).await;
    assert!(head(&mut client).await.contains(" 200 "));
    assert_eq!(exactly(&mut client, 2).await, b"ok");
}

const HALF_CLOSED_AND_MORE: Duration = Duration::from_millis(1300);
