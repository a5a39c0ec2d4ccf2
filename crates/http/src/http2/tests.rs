#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use h2::client;
use hyper::{HeaderMap, StatusCode};
use std::future::poll_fn;
use std::sync::atomic::AtomicUsize;
use tokio::io::duplex;
use tokio::time::Instant;

const SETTINGS: Settings = Settings {
    streams: 200,
    head: 16 * 1024,
    stream_window: 65_535,
    connection_window: 1 << 20,
    patience: Duration::from_secs(60),
};

/// Pieces that do not come.
const LATE: usize = 1_000_000;

/// Bodies that are there, and pieces that were asked of them.
#[derive(Default)]
struct Counts {
    alive: AtomicUsize,
    asked: AtomicUsize,
}

/// A body: `left` pieces of 1000 bytes, and then the trailers. If it `is_sized`, it says its size.
struct Pieces {
    left: usize,
    trailers: Option<HeaderMap>,
    counts: Arc<Counts>,
    is_sized: bool,
}

impl Pieces {
    fn new(left: usize, trailers: Option<HeaderMap>, counts: &Arc<Counts>) -> Self {
        counts.alive.fetch_add(1, Ordering::Relaxed);
        Self { left, trailers, counts: Arc::clone(counts), is_sized: false }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.counts.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if self.left == LATE {
            return Poll::Pending;
        }
        Poll::Ready(match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1000]))))
            }
            None => self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
        })
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_sized { SizeHint::with_exact(self.left as u64 * 1000) } else { SizeHint::default() }
    }
}

/// A client of a server that answers `/N` and `/sized/N` with N pieces, `/sized/late` with none yet, and `/upload` with the size of the body, once it has come.
async fn connect(settings: Settings, window: u32) -> (client::SendRequest<Bytes>, Arc<Counts>) {
    let (near, far) = duplex(1 << 20);
    let counts = Arc::<Counts>::default();
    let counted = Arc::clone(&counts);
    let server = serve(far, &settings, move |request: Request<RequestBody>| {
        let counts = Arc::clone(&counted);
        async move {
            let (parts, mut body) = request.into_parts();
            let path = parts.uri.path().trim_start_matches('/').to_owned();
            if path == "never" {
                let _held = Pieces::new(0, None, &counts);
                return std::future::pending().await;
            }
            let mut trailers = HeaderMap::new();
            for (name, value) in [("grpc-status", "0"), ("connection", "x"), ("content-length", "1")] {
                trailers.insert(name, HeaderValue::from_static(value));
            }
            if path == "upload" {
                let mut size = 0;
                while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    size += frame?.data_ref().map_or(0, Bytes::len);
                }
                trailers.insert("x-size", size.into());
            }
            let sized = path.strip_prefix("sized/");
            let count = sized.unwrap_or(&path).parse().unwrap_or(if sized.is_some() { LATE } else { 0 });
            let mut body = Pieces::new(count, Some(trailers), &counts);
            body.is_sized = sized.is_some();
            let mut response = Response::new(body);
            response.headers_mut().insert("connection", HeaderValue::from_static("close"));
            Ok(response)
        }
    });
    tokio::spawn(server);
    let mut builder = client::Builder::new();
    builder.initial_window_size(window).max_concurrent_reset_streams(1000);
    let (sender, connection) = builder.handshake(near).await.unwrap();
    tokio::spawn(connection);
    (sender, counts)
}

use hyper::header::HeaderValue;

fn request(path: &str) -> Request<()> {
    Request::get(format!("http://a/{path}")).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_response_is_whole_with_its_trailers() {
    let (mut client, _) = connect(SETTINGS, 65_535).await;
    for path in ["300", "sized/300"] {
        let (response, _) = client.send_request(request(path), true).unwrap();
        let mut response = response.await.unwrap();
        assert!(response.headers().contains_key("date") && !response.headers().contains_key("connection"));
        let body = response.body_mut();
        let mut size = 0;
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            size += data.len();
            body.flow_control().release_capacity(data.len()).unwrap();
        }
        assert_eq!(size, 300_000);
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["grpc-status"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_is_given_up_whatever_else_it_does() {
    let (mut client, counts) = connect(SETTINGS, 0).await;
    let begun = Instant::now();
    let stalled: Vec<_> = (0..100).map(|_| client.send_request(request("5"), true).unwrap().0).collect();
    let mut bodies = Vec::new();
    for response in stalled {
        bodies.push(response.await.unwrap().into_body());
    }
    assert_eq!(counts.alive.load(Ordering::Relaxed), 100);
    for body in &mut bodies {
        let error = body.data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::CANCEL));
    }
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(counts.alive.load(Ordering::Relaxed), 0, "what they held is free");
    // Others of the connection go on.
    let (response, _) = client.send_request(request("0"), true).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_response_are_asked_for_once_its_client_takes_some() {
    let (mut client, counts) = connect(SETTINGS, 0).await;
    let _held = client.send_request(request("sized/3"), true).unwrap().0.await.unwrap().into_body();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!((counts.alive.load(Ordering::Relaxed), counts.asked.load(Ordering::Relaxed)), (1, 0));
    // One that has no bytes for sure needs no window, and neither do its trailers.
    let mut empty = client.send_request(request("0"), true).unwrap().0.await.unwrap().into_body();
    assert!(empty.data().await.is_none());
    assert!(empty.trailers().await.unwrap().unwrap().contains_key("grpc-status"));
}

#[tokio::test(start_paused = true)]
async fn responses_that_have_no_bytes_yet_leave_the_window_to_others() {
    let (mut client, counts) = connect(SETTINGS, 65_535).await;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(client.send_request(request("sized/late"), true).unwrap().0.await.unwrap());
    }
    let mut body = client.send_request(request("sized/30"), true).unwrap().0.await.unwrap().into_body();
    let mut size = 0;
    // The connection's window is 65,535 bytes, and nothing is released.
    while size < 30_000 {
        size += body.data().await.unwrap().unwrap().len();
    }
    assert_eq!(counts.alive.load(Ordering::Relaxed), 100);
}

#[tokio::test(start_paused = true)]
async fn a_few_bytes_now_and_then_are_no_progress_and_a_slow_reader_is_served() {
    let (mut client, counts) = connect(SETTINGS, 100).await;
    let mut body = client.send_request(request("5"), true).unwrap().0.await.unwrap().into_body();
    let begun = Instant::now();
    let error = loop {
        match body.data().await.unwrap() {
            Ok(data) => {
                tokio::time::sleep(Duration::from_secs(25)).await;
                let _ = body.flow_control().release_capacity(data.len());
            }
            Err(error) => break error,
        }
    };
    assert_eq!((error.reason(), counts.alive.load(Ordering::Relaxed)), (Some(Reason::CANCEL), 0));
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    // 100 bytes a second.
    let mut body = client.send_request(request("50"), true).unwrap().0.await.unwrap().into_body();
    let mut size = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        size += data.len();
        tokio::time::sleep(Duration::from_secs(1)).await;
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(size, 50_000);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_waits_for_100_continue_is_asked_for() {
    let (mut client, _) = connect(SETTINGS, 65_535).await;
    let post = Request::post("http://a/upload").header("expect", "100-continue").body(()).unwrap();
    let (mut response, mut body) = client.send_request(post, false).unwrap();
    let go_on = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(go_on.status(), StatusCode::CONTINUE);
    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let mut response = response.await.unwrap();
    while response.body_mut().data().await.is_some() {}
    assert_eq!(response.body_mut().trailers().await.unwrap().unwrap().get("x-size").unwrap(), "5");
    // One that is refused without its body gets its status only.
    let get = Request::get("http://a/0").header("expect", "100-continue").body(()).unwrap();
    let (response, _body) = client.send_request(get, false).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_resets_loses_its_connection() {
    let (mut client, counts) = connect(SETTINGS, 65_535).await;
    let mut refused = None;
    for n in 0..2 * RESETS {
        client = match client.ready().await {
            Ok(client) => client,
            Err(error) => {
                refused = Some((n, error.reason()));
                break;
            }
        };
        let (response, mut stream) = client.send_request(request("never"), true).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        stream.send_reset(Reason::CANCEL);
        drop(response);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(counts.alive.load(Ordering::Relaxed) <= 1, "what was reset is dropped");
    }
    let (n, reason) = refused.unwrap();
    assert_eq!(reason, Some(Reason::ENHANCE_YOUR_CALM));
    assert!((RESETS..RESETS + 3).contains(&n), "{n}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_may_reset_now_and_then() {
    let (mut client, _) = connect(SETTINGS, 65_535).await;
    for _ in 0..3 * RESETS {
        client = client.ready().await.unwrap();
        assert!(client.send_request(request("0"), true).unwrap().0.await.is_ok());
        let (_, mut stream) = client.send_request(request("never"), true).unwrap();
        stream.send_reset(Reason::CANCEL);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A client that still sends when the answer comes. Some take a reset then for the end, although the answer is there (curl 7.88:
/// "Stream error", 92).
#[tokio::test(start_paused = true)]
async fn a_client_that_still_sends_gets_its_answer_and_no_reset() {
    let (mut client, _) = connect(SETTINGS, 65_535).await;
    let post = |path: &str| Request::post(format!("http://a/{path}")).body(()).unwrap();
    for path in ["0", "3"] {
        let (response, mut body) = client.send_request(post(path), false).unwrap();
        body.send_data(Bytes::from_static(&[b'x'; 1000]), false).unwrap();
        let mut response = response.await.unwrap();
        while let Some(data) = response.body_mut().data().await {
            data.unwrap();
        }
        // It goes on in pieces, more than its window in all.
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            body.reserve_capacity(1000);
            assert!(poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().is_ok());
            body.send_data(Bytes::from_static(&[b'x'; 1000]), false).unwrap();
        }
        assert!(poll_fn(|cx| Poll::Ready(body.poll_reset(cx))).await.is_pending(), "{path}");
        body.send_data(Bytes::new(), true).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // One that sends for ever, and one that sends nothing more, are told to stop, and not that something failed.
    let begun = Instant::now();
    for (piece, within) in [(20_000, Duration::from_secs(2)), (0, Duration::from_secs(6))] {
        let (response, mut body) = client.send_request(post("0"), false).unwrap();
        response.await.unwrap();
        let reason = loop {
            tokio::select! {
                reason = poll_fn(|cx| body.poll_reset(cx)) => break reason.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    body.reserve_capacity(piece);
                    let room = body.capacity().min(piece);
                    if room > 0 {
                        body.send_data(Bytes::from(vec![b'x'; room]), false).unwrap();
                    }
                }
            }
        };
        assert_eq!(reason, Reason::NO_ERROR);
        assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
    }
    assert!(client.send_request(request("0"), true).unwrap().0.await.is_ok());
}
