//! Backends with HTTP/2, whose connections requests share.

use super::*;
use ::h2::server::{Connection, SendResponse};
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use hyper::{HeaderMap, Request, Response};
use std::time::Duration;

const H2: &str = "protocol = \"h2\"";

type Far = Connection<TcpStream, Bytes>;
type BackendRequest = (Request<RecvStream>, SendResponse<Bytes>);

impl Backend {
    /// The next connection of HTTP/2.
    async fn accept_h2(&self) -> Far {
        ::h2::server::handshake(self.accept().await).await.unwrap()
    }
}

/// The next request. The connection lives on only while it is polled.
async fn asked(far: &mut Far) -> BackendRequest {
    far.accept().await.unwrap().unwrap()
}

/// Lets a connection live while something else is awaited.
async fn beside<T>(far: &mut Far, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        other = far.accept() => panic!("another request, or the end: {:?}", other.map(|other| other.map(|_| ()))),
    }
}

fn answer(respond: &mut SendResponse<Bytes>, body: &'static [u8]) {
    let head = Response::builder().header("content-length", body.len()).body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(Bytes::from_static(body), true).unwrap();
}

async fn read(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    all
}

fn request(method: &str, body: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn another(place: &TestSite) -> TcpStream {
    let (client, stream) = accepted().await;
    place.serve(stream);
    client
}

#[tokio::test]
async fn a_stream_that_a_backend_resets_has_been_executed() {
    for code in [Reason::PROTOCOL_ERROR, Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::ENHANCE_YOUR_CALM] {
        for method in ["GET", "DELETE", "PUT", "POST"] {
            let (mut client, backend, _place) = pair("", H2).await;
            // The first one makes the connection one that is kept.
            send(&mut client, &request("GET", "")).await;
            let mut far = backend.accept_h2().await;
            let (_, mut respond) = asked(&mut far).await;
            answer(&mut respond, b"ok");
            beside(&mut far, async {
                head(&mut client).await;
                exactly(&mut client, 2).await;
                send(&mut client, &request(method, "")).await;
            })
            .await;
            let (_, mut respond) = asked(&mut far).await;
            respond.send_reset(code);
            let got = beside(&mut far, head(&mut client)).await;
            assert!(got.contains(" 502 "), "{method} {code:?}: {got}");
        }
    }
}

#[tokio::test]
async fn a_request_that_a_backend_refused_goes_again_with_its_body() {
    for method in ["POST", "PUT", "GET"] {
        let (mut client, backend, _place) = pair("", H2).await;
        send(&mut client, &request(method, "hello")).await;
        let mut far = backend.accept_h2().await;
        for _ in 0..3 {
            let (mut asked, mut respond) = asked(&mut far).await;
            assert_eq!(beside(&mut far, read(asked.body_mut())).await, b"hello");
            respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (mut asked, mut respond) = asked(&mut far).await;
        assert_eq!(beside(&mut far, read(asked.body_mut())).await, b"hello");
        answer(&mut respond, b"ok");
        assert!(beside(&mut far, head(&mut client)).await.contains(" 200 "), "{method}");
    }
}

/// nginx does so after `keepalive_requests`.
#[tokio::test]
async fn a_post_above_the_last_stream_goes_to_a_new_connection_with_its_body() {
    let (mut client, backend, _place) = pair("", H2).await;
    send(&mut client, &request("POST", "hello")).await;
    let mut far = backend.accept().await;
    // By hand: the settings, and GOAWAY whose last stream is none.
    exactly(&mut far, 24).await;
    far.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    loop {
        let header = exactly(&mut far, 9).await;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        exactly(&mut far, length).await;
        // The end of the body.
        if header[3] == 0 && header[4] & 1 != 0 {
            break;
        }
    }
    far.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let mut next = backend.accept_h2().await;
    let (mut asked, mut respond) = asked(&mut next).await;
    assert_eq!(beside(&mut next, read(asked.body_mut())).await, b"hello");
    answer(&mut respond, b"ok");
    assert!(beside(&mut next, head(&mut client)).await.contains(" 200 "));
}

#[tokio::test]
async fn a_connection_that_drains_takes_no_new_request() {
    let (mut client, backend, place) = pair("", H2).await;
    send(&mut client, &request("GET", "")).await;
    let mut far = backend.accept_h2().await;
    let (_, mut first) = asked(&mut far).await;
    far.graceful_shutdown();
    let draining = tokio::spawn(async move { while far.accept().await.is_some() {} });
    // GOAWAY is on its way, and the gateway hears of it before it hears the answer.
    let mut other = another(&place).await;
    answer(&mut first, b"ok");
    assert!(head(&mut client).await.contains(" 200 "));
    send(&mut other, &request("POST", "x")).await;
    let mut next = backend.accept_h2().await;
    let (_, mut respond) = asked(&mut next).await;
    answer(&mut respond, b"ok");
    assert!(beside(&mut next, head(&mut other)).await.contains(" 200 "));
    draining.await.unwrap();
}

#[tokio::test]
async fn a_kept_connection_that_ends_silently_costs_no_get_and_runs_no_post_twice() {
    for (method, interim, expected) in [
        ("GET", false, " 200 "),
        ("DELETE", false, " 200 "),
        ("POST", false, " 502 "),
        ("GET", true, " 502 "),
    ] {
        let (mut client, backend, _place) = pair("", H2).await;
        send(&mut client, &request("GET", "")).await;
        let mut far = backend.accept_h2().await;
        let (_, mut respond) = asked(&mut far).await;
        answer(&mut respond, b"ok");
        beside(&mut far, async {
            head(&mut client).await;
            exactly(&mut client, 2).await;
            send(&mut client, &request(method, "")).await;
        })
        .await;
        let (_, mut respond) = asked(&mut far).await;
        if interim {
            let hints = Response::builder().status(103).body(()).unwrap();
            respond.send_informational(hints).unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(100), far.accept()).await;
        }
        std::mem::forget(respond);
        drop(far);
        if expected == " 200 " {
            let mut far = backend.accept_h2().await;
            let (_, mut respond) = asked(&mut far).await;
            answer(&mut respond, b"ok");
            assert!(beside(&mut far, head(&mut client)).await.contains(expected), "{method}");
        } else {
            assert!(head(&mut client).await.contains(expected), "{method}");
        }
    }
}

/// Reads nothing of these: what waits in the gateway is theirs, and not the backend connection's.
#[tokio::test]
async fn a_response_that_its_client_does_not_take_stops_no_other() {
    let (mut client, backend, place) = pair("", "protocol = \"h2\"\nstream_window = 65535").await;
    let serving = tokio::spawn(async move {
        let mut far = backend.accept_h2().await;
        let mut held = Vec::new();
        while let Some(Ok((asked, mut respond))) = far.accept().await {
            if asked.uri().path() == "/small" {
                answer(&mut respond, b"ok");
                continue;
            }
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from(vec![0; 8_000_000]), true).unwrap();
            held.push(stream);
        }
    });
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut client = another(&place).await;
        send(&mut client, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(head(&mut client).await.contains(" 200 "));
        slow.push(client);
    }
    // Nothing comes any more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..5 {
        send(&mut client, "GET /small HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let got = tokio::time::timeout(Duration::from_secs(20), head(&mut client)).await.unwrap();
        assert!(got.contains(" 200 "));
        let body = tokio::time::timeout(Duration::from_secs(20), exactly(&mut client, 2)).await;
        assert_eq!(body.unwrap(), b"ok");
    }
    serving.abort();
}

#[tokio::test]
async fn an_upload_that_a_backend_does_not_take_stops_no_other() {
    let (mut stuck, backend, place) = pair("", H2).await;
    let large = 1_000_000;
    let uploading = tokio::spawn(async move {
        let head = format!("POST /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n");
        stuck.write_all(head.as_bytes()).await.unwrap();
        let _ = stuck.write_all(&vec![0; large]).await;
        stuck
    });
    // It takes nothing of the body, which fills the window of the whole connection.
    let mut far = backend.accept_h2().await;
    let (_held, _respond) = asked(&mut far).await;
    let far = tokio::spawn(async move { far.accept().await.map(|_| ()) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut client = another(&place).await;
    send(&mut client, &request("POST", &"x".repeat(50_000))).await;
    let mut next =
        tokio::time::timeout(Duration::from_secs(20), backend.accept_h2()).await.expect("a connection");
    let (mut asked, mut respond) = asked(&mut next).await;
    assert_eq!(beside(&mut next, read(asked.body_mut())).await.len(), 50_000);
    answer(&mut respond, b"ok");
    assert!(beside(&mut next, head(&mut client)).await.contains(" 200 "));
    far.abort();
    uploading.abort();
}

#[tokio::test]
async fn more_requests_make_more_connections() {
    let (_client, backend, place) = pair("", "protocol = \"h2\"\nmax_streams = 2").await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = another(&place).await;
        send(&mut client, &request("GET", "")).await;
        clients.push(client);
    }
    let (mut one, mut two) = (backend.accept_h2().await, backend.accept_h2().await);
    let all = async {
        let held =
            [asked(&mut one).await, asked(&mut one).await, asked(&mut two).await, asked(&mut two).await];
        for (_, mut respond) in held {
            answer(&mut respond, b"ok");
        }
        tokio::join!(async { one.accept().await.map(|_| ()) }, async { two.accept().await.map(|_| ()) })
    };
    let answers = async {
        for client in &mut clients {
            assert!(head(client).await.contains(" 200 "));
        }
    };
    tokio::select! {
        _ = all => panic!("a connection ended"),
        () = answers => {}
    }
}

/// A backend that counts resets ends the connection of all (ENHANCE_YOUR_CALM).
#[tokio::test]
async fn a_client_that_gives_requests_up_makes_few_resets_at_the_backend() {
    let (client, backend, _place) = pair("", H2).await;
    let (over, mut is_over) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let mut far = backend.accept_h2().await;
        let (mut count, mut resets, mut tasks) = (0, 0, tokio::task::JoinSet::new());
        loop {
            tokio::select! {
                Some(Ok((_, mut respond))) = far.accept() => {
                    count += 1;
                    tasks.spawn(async move {
                        tokio::select! {
                            reset = std::future::poll_fn(|cx| respond.poll_reset(cx)) => return reset.is_ok(),
                            () = tokio::time::sleep(Duration::from_millis(50)) => {}
                        }
                        answer(&mut respond, b"late");
                        false
                    });
                }
                Some(done) = tasks.join_next() => resets += usize::from(done.unwrap()),
                _ = &mut is_over, if tasks.is_empty() => return (count, resets),
            }
        }
    });
    let (mut sender, connection) = ::h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..40 {
        sender = sender.ready().await.unwrap();
        let request = Request::get("http://a/").body(()).unwrap();
        let (response, mut stream) = sender.send_request(request, true).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        stream.send_reset(Reason::CANCEL);
        drop(response);
    }
    over.send(()).unwrap();
    let (count, resets) = serving.await.unwrap();
    assert!(count > 8 && resets <= 8, "{resets} of {count}");
}

#[tokio::test]
async fn a_client_that_gives_everything_up_is_given_up() {
    let (client, backend, _place) = pair("", H2).await;
    let serving = tokio::spawn(async move {
        let mut all = tokio::task::JoinSet::new();
        loop {
            let far = backend.accept().await;
            all.spawn(async move {
                let mut far = ::h2::server::handshake(far).await.unwrap();
                let mut held = Vec::new();
                while let Some(Ok((_, respond))) = far.accept().await {
                    held.push(respond);
                }
            });
        }
    });
    let (mut sender, connection) = ::h2::client::handshake(client).await.unwrap();
    let ended = tokio::spawn(connection);
    for n in 0.. {
        assert!(n < 2000, "it goes on for ever");
        sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(_) => break,
        };
        let Ok((response, mut stream)) =
            sender.send_request(Request::get("http://a/").body(()).unwrap(), true)
        else {
            break;
        };
        tokio::time::sleep(Duration::from_millis(2)).await;
        stream.send_reset(Reason::CANCEL);
        drop(response);
    }
    let _ = ended.await;
    serving.abort();
}

#[tokio::test]
async fn trailers_that_http2_does_not_have_stop_no_request_and_no_response() {
    let (mut client, backend, _place) = pair("", H2).await;
    send(
        &mut client,
        "POST / HTTP/1.1\r\nHost: a\r\nTrailer: x-sum, connection\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 1\r\nConnection: close\r\nTransfer-Encoding: x\r\n\r\n",
    )
    .await;
    let mut far = backend.accept_h2().await;
    let (mut asked, mut respond) = asked(&mut far).await;
    let trailers = beside(&mut far, async {
        read(asked.body_mut()).await;
        asked.body_mut().trailers().await.unwrap().unwrap_or_default()
    });
    let trailers = trailers.await;
    assert!(trailers.keys().all(|name| name == "x-sum"), "{trailers:?}");
    answer(&mut respond, b"ok");
    assert!(beside(&mut far, head(&mut client)).await.contains(" 200 "));
    // The other way: a backend with HTTP/1, a client with HTTP/2.
    let (client, backend, _place) = pair("", "").await;
    let answering = tokio::spawn(async move {
        let mut far = backend.accept().await;
        head(&mut far).await;
        send(
            &mut far,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nConnection: x\r\n\
             Keep-Alive: y\r\nX-Sum: 1\r\n\r\n",
        )
        .await;
        far
    });
    let (mut sender, connection) = ::h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    let (response, _) = sender.send_request(Request::get("http://a/").body(()).unwrap(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(read(&mut body).await, b"ok");
    let trailers: HeaderMap = body.trailers().await.unwrap().unwrap_or_default();
    assert!(trailers.keys().all(|name| name == "x-sum"), "{trailers:?}");
    drop(answering);
}

/// The code of a reset is for the gateway. A client would take NO_ERROR for an end.
#[tokio::test]
async fn a_response_that_a_backend_resets_has_no_end() {
    for code in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let (mut client, backend, _place) = pair("", H2).await;
        send(&mut client, &request("GET", "")).await;
        let mut far = backend.accept_h2().await;
        let (_, mut respond) = asked(&mut far).await;
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(b"half"), false).unwrap();
        beside(&mut far, head(&mut client)).await;
        stream.send_reset(code);
        let mut rest = Vec::new();
        let _ = beside(&mut far, client.read_to_end(&mut rest)).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{code:?}: {}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test]
async fn a_body_on_its_way_goes_on_behind_what_is_sent_again() {
    let (mut client, backend, _place) = pair("", H2).await;
    send(&mut client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    let mut far = backend.accept_h2().await;
    let (mut first, mut respond) = asked(&mut far).await;
    let begun = beside(&mut far, first.body_mut().data()).await.unwrap().unwrap();
    assert_eq!(begun, "hello");
    respond.send_reset(Reason::REFUSED_STREAM);
    let (mut second, mut respond) = asked(&mut far).await;
    send(&mut client, "again").await;
    assert_eq!(beside(&mut far, read(second.body_mut())).await, b"helloagain");
    answer(&mut respond, b"ok");
    assert!(beside(&mut far, head(&mut client)).await.contains(" 200 "));
}

#[tokio::test]
async fn a_body_that_is_too_long_to_keep_is_sent_once() {
    let (mut client, backend, _place) = pair("", H2).await;
    let large = 1_000_000;
    send(&mut client, &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n")).await;
    let (mut reading, mut writing) = client.into_split();
    let uploading = tokio::spawn(async move { writing.write_all(&vec![0; large]).await });
    let mut far = backend.accept_h2().await;
    let (mut first, mut respond) = asked(&mut far).await;
    let taken = async {
        let mut count = 0;
        while count < 100_000 {
            let data = first.body_mut().data().await.unwrap().unwrap();
            first.body_mut().flow_control().release_capacity(data.len()).unwrap();
            count += data.len();
        }
    };
    beside(&mut far, taken).await;
    respond.send_reset(Reason::REFUSED_STREAM);
    assert!(beside(&mut far, head(&mut reading)).await.contains(" 502 "));
    uploading.abort();
}

/// It takes no request at all, and says so in its settings.
#[tokio::test]
async fn a_backend_that_takes_no_stream_gets_few_connections() {
    let (mut client, backend, _place) = pair("", "protocol = \"h2\"\nconnect_timeout = \"500ms\"").await;
    let counting = tokio::spawn(async move {
        let mut all = Vec::new();
        loop {
            let far = backend.accept().await;
            let mut far = ::h2::server::Builder::new()
                .max_concurrent_streams(0)
                .handshake::<_, Bytes>(far)
                .await
                .unwrap();
            all.push(tokio::spawn(async move { while far.accept().await.is_some() {} }));
            assert!(all.len() < 10, "no end of connections");
        }
    });
    for _ in 0..3 {
        send(&mut client, &request("GET", "")).await;
        let got = head(&mut client).await;
        assert!(got.contains(" 50"), "{got}");
        let length: usize =
            got.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
        exactly(&mut client, length).await;
    }
    assert!(!counting.is_finished());
    counting.abort();
}

#[tokio::test]
async fn an_answer_may_come_long_after_the_body_and_interim_ones_before_it() {
    let (mut client, backend, _place) = pair("", H2).await;
    send(&mut client, &request("POST", "hello")).await;
    let mut far = backend.accept_h2().await;
    let (mut first, mut respond) = asked(&mut far).await;
    assert_eq!(beside(&mut far, read(first.body_mut())).await, b"hello");
    for _ in 0..3 {
        let hints = Response::builder().status(103).body(()).unwrap();
        respond.send_informational(hints).unwrap();
        beside(&mut far, tokio::time::sleep(Duration::from_millis(20))).await;
    }
    answer(&mut respond, b"ok");
    assert!(beside(&mut far, head(&mut client)).await.contains(" 200 "));
}

/// Bodies that are too long, or that end early, are resets at the backend, too.
#[tokio::test]
async fn bodies_that_fail_make_few_resets_at_the_backend() {
    let (mut client, backend, place) = pair("max_body = 3", H2).await;
    let (told, mut resets) = tokio::sync::mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        let mut all = tokio::task::JoinSet::new();
        loop {
            let far = backend.accept().await;
            let told = told.clone();
            all.spawn(async move {
                let mut far = ::h2::server::handshake(far).await.unwrap();
                let mut number = 0;
                while let Some(Ok((mut asked, mut respond))) = far.accept().await {
                    number += 1;
                    if asked.method() == "GET" {
                        answer(&mut respond, b"ok");
                        continue;
                    }
                    let told = told.clone();
                    tokio::spawn(async move {
                        while let Some(Ok(_)) = asked.body_mut().data().await {}
                        let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                        let _ = told.send((number, reset.is_ok()));
                    });
                }
            });
        }
    });
    for _ in 0..20 {
        let mut other = another(&place).await;
        send(
            &mut other,
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        )
        .await;
        assert!(head(&mut other).await.contains(" 413 "));
        send(&mut client, &request("GET", "")).await;
        assert!(head(&mut client).await.contains(" 200 "));
        exactly(&mut client, 2).await;
    }
    let mut most = 0;
    while let Ok(Some((number, true))) = tokio::time::timeout(Duration::from_millis(200), resets.recv()).await
    {
        most = most.max(number);
    }
    // Each time a POST and a GET. Behind the eighth POST its connection has no further requests.
    assert!(most <= 20, "a request of number {most} was reset on a connection");
    serving.abort();
}
