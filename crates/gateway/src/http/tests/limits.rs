//! What one client may take away from others.

use super::*;
use ::h2::client::{self, SendRequest};
use bytes::Bytes;
use hyper::Request;
use std::time::Duration;

/// A client of HTTP/2 that opens windows of this size.
async fn connect(place: &TestSite, window: u32) -> SendRequest<Bytes> {
    let (near, stream) = accepted().await;
    place.serve(stream);
    let (sender, connection) = client::Builder::new()
        .initial_window_size(window)
        .max_send_buffer_size(8 << 20)
        .handshake(near)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a{path}")).body(()).unwrap()
}

/// A backend of many connections: each answers one request with this body, and says when it has ended.
fn answering(backend: Backend, body: &'static str) -> tokio::sync::mpsc::UnboundedReceiver<bool> {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut far = backend.accept().await;
            let tell = tell.clone();
            tokio::spawn(async move {
                head(&mut far).await;
                let _ = tell.send(true);
                send(&mut far, &format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{body}")).await;
                let _ = far.read_u8().await;
                let _ = tell.send(false);
            });
        }
    });
    told
}

#[tokio::test]
async fn clients_of_http_2_without_a_window_give_their_backends_back() {
    let backend = Backend::new().await;
    let place = TestSite::new(&format!("{HTTP}\nbody_timeout = \"300ms\""), "", backend.at);
    let mut told = answering(backend, "hello");
    let mut client = connect(&place, 0).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        client = client.ready().await.unwrap();
        held.push(client.send_request(get("/"), true).unwrap());
    }
    let (mut begun, mut ended) = (0, 0);
    while ended < 100 {
        match told.recv().await.unwrap() {
            true => begun += 1,
            false => ended += 1,
        }
    }
    assert_eq!(begun, 100);
    for (response, _) in held {
        let mut response = response.await.unwrap();
        let error = response.body_mut().data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(::h2::Reason::CANCEL));
    }
}

#[tokio::test]
async fn requests_of_one_client_beyond_the_limit_wait_and_those_of_others_do_not() {
    let backend = Backend::new().await;
    let listener = "max_requests_per_client = 3\ntrusted = [\"127.0.0.0/8\"]";
    let place = TestSite::new(&format!("{HTTP}\n{listener}"), "", backend.at);
    let mut client = connect(&place, 65_535).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        client = client.ready().await.unwrap();
        held.push(client.send_request(get("/one"), true).unwrap().0);
    }
    let mut far = Vec::new();
    for _ in 0..3 {
        let mut one = backend.accept().await;
        assert!(head(&mut one).await.starts_with("get /one "));
        far.push(one);
    }
    // A trusted proxy speaks for another client.
    let mut other = Request::get("http://a/two").header("x-forwarded-for", "203.0.113.5").body(()).unwrap();
    *other.version_mut() = hyper::Version::HTTP_2;
    client = client.ready().await.unwrap();
    let other = client.send_request(other, true).unwrap().0;
    let mut two = backend.accept().await;
    assert!(head(&mut two).await.starts_with("get /two "), "the fourth request did not wait");
    send(&mut two, OK).await;
    assert_eq!(other.await.unwrap().status(), 200);
    send(&mut far[0], OK).await;
    let fourth = async {
        tokio::select! {
            mut new = backend.accept() => head(&mut new).await,
            again = head(&mut far[0]) => again,
            again = head(&mut two) => again,
        }
    };
    let first = held.remove(0);
    let (asked, first) = tokio::join!(fourth, first);
    assert!(asked.starts_with("get /one "), "{asked}");
    assert_eq!(first.unwrap().status(), 200);
    drop((held, client));
}

#[tokio::test]
async fn requests_that_wait_too_long_for_the_others_of_their_client_are_refused() {
    let backend = Backend::new().await;
    let place = TestSite::new(
        &format!("{HTTP}\nmax_requests_per_client = 1\nheader_timeout = \"200ms\""),
        "",
        backend.at,
    );
    let mut client = connect(&place, 65_535).await;
    let (_one, _) = client.send_request(get("/"), true).unwrap();
    let mut far = backend.accept().await;
    head(&mut far).await;
    client = client.ready().await.unwrap();
    let (two, _) = client.send_request(get("/"), true).unwrap();
    assert_eq!(two.await.unwrap().status(), 503);
}

#[tokio::test]
async fn the_windows_of_the_connections_of_one_client_shrink() {
    let backend = Backend::new().await;
    let place = TestSite::new(&format!("{HTTP}\nmax_buffered_per_client = 1000000"), "", backend.at);
    let mut windows = Vec::new();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut client = connect(&place, 65_535).await;
        // The larger window has come with the answer.
        let (response, mut body) = client.send_request(get("/"), false).unwrap();
        body.reserve_capacity(2 << 20);
        let mut room = 0;
        while let Ok(Some(Ok(more))) = tokio::time::timeout(
            Duration::from_millis(200),
            std::future::poll_fn(|cx| body.poll_capacity(cx)),
        )
        .await
        {
            room = more;
        }
        windows.push(room);
        held.push((client, response, body));
    }
    assert!(windows[0] > windows[2] && windows[0] <= 500_000, "{windows:?}");
    assert_eq!(windows[7], 65_535, "{windows:?}");
}

#[tokio::test]
async fn an_expectation_by_http_2_is_answered() {
    let backend = Backend::new().await;
    let place = TestSite::new(HTTP, "", backend.at);
    let mut client = connect(&place, 65_535).await;
    let post = Request::post("http://a/")
        .header("expect", "100-continue")
        .header("content-length", "5")
        .body(())
        .unwrap();
    let (mut response, mut body) = client.send_request(post, false).unwrap();
    let go_on = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(go_on.status(), 100);
    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let mut far = backend.accept().await;
    assert!(!head(&mut far).await.contains("expect"));
    assert_eq!(exactly(&mut far, 5).await, b"hello");
    send(&mut far, OK).await;
    assert_eq!(response.await.unwrap().status(), 200);
    let post = Request::post("http://a/").header("expect", "magic").body(()).unwrap();
    client = client.ready().await.unwrap();
    assert_eq!(client.send_request(post, true).unwrap().0.await.unwrap().status(), 417);
}

#[tokio::test]
async fn a_body_by_http_2_without_a_length_reaches_the_backend() {
    for method in ["GET", "HEAD", "POST"] {
        let backend = Backend::new().await;
        let place = TestSite::new(HTTP, "", backend.at);
        let mut client = connect(&place, 65_535).await;
        let request = Request::builder().method(method).uri("http://a/").body(()).unwrap();
        let (_response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        let mut far = backend.accept().await;
        assert!(head(&mut far).await.contains("transfer-encoding: chunked\r\n"), "{method}");
        assert_eq!(exactly(&mut far, 15).await, b"5\r\nhello\r\n0\r\n\r\n", "{method}");
    }
}
