#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use tokio::io::AsyncWriteExt;

/// A field without any index.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let mut field = vec![0, u8::try_from(name.len()).unwrap()];
    field.extend_from_slice(name.as_bytes());
    field.push(u8::try_from(value.len()).unwrap());
    field.extend_from_slice(value);
    field
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value.as_bytes())).collect()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn headers(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(fields))
}

fn server() -> (Frames, Messages) {
    let (strict, messages) = Strict::of_server((), 1024);
    let mut frames = strict.frames;
    frames.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    (frames, messages)
}

/// Streams of these messages that are malformed.
fn malformed(messages: &Messages, streams: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    let is_malformed = |stream: &u32| messages.of_request(*stream).is_malformed();
    streams.step_by(2).filter(is_malformed).collect()
}

const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "http"), (":authority", "a")];

fn get<'a>(path: &'a str, fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    GET.into_iter().chain([(":path", path)]).chain(fields.iter().copied()).collect()
}

fn is_malformed_get(path: &str, fields: &[(&str, &str)]) -> bool {
    let (mut frames, messages) = server();
    frames.feed(&headers(1, &get(path, fields)));
    !malformed(&messages, 1..=1).is_empty()
}

#[test]
fn a_path_with_a_fragment_is_malformed() {
    for path in [
        "#",
        "#x",
        "##",
        "/#",
        "/a#b",
        "/a?x#/admin",
        "?x",
        "?#x",
        "*#",
        "*?x",
        "a",
        "",
        "/ü",
        "/a?ü",
        "/<",
        "/`",
        "/ a",
        "/\x7f",
    ] {
        assert!(is_malformed_get(path, &[]), "{path}");
    }
    for path in ["/", "*", "/a?b", "//", "/?", "/%23", "/*", "/a@b:80"] {
        assert!(!is_malformed_get(path, &[]), "{path}");
    }
}

#[test]
fn a_value_with_a_space_at_an_end_is_malformed() {
    for value in [" v", "v ", "\tv", "v\t", " ", "\t"] {
        assert!(is_malformed_get("/", &[("x-a", "v"), ("x-b", value), ("x-c", "v")]), "{value:?}");
    }
    assert!(!is_malformed_get("/", &[("x-a", "v w\tx"), ("x-b", "")]));
}

#[test]
fn pseudo_header_fields_come_first_and_never_in_trailers() {
    assert!(is_malformed_get("/", &[("x-a", "v"), (":path", "/b")]));
    let (mut frames, messages) = server();
    for (stream, trailers) in
        [(1, ("x-sum", "1")), (3, (":path", "/q")), (5, (":status", "200")), (7, ("x", "1 "))]
    {
        frames.feed(&headers(stream, &get("/", &[])));
        frames.feed(&frame(0, 0, stream, b"abc"));
        frames.feed(&headers(stream, &[trailers]));
    }
    frames.feed(&headers(9, &get("/", &[])));
    assert_eq!(malformed(&messages, 1..=9), [3, 5, 7]);
}

#[test]
fn only_http_has_requests() {
    for (scheme, malformed) in [("http", false), ("HTTPS", false), ("ftp", true), ("", true)] {
        let (mut frames, messages) = server();
        frames.feed(&headers(1, &[(":method", "GET"), (":scheme", scheme), (":path", "/"), ("host", "a")]));
        assert_eq!(messages.of_request(1).is_malformed(), malformed, "{scheme}");
    }
}

#[test]
fn a_response_is_malformed_by_its_own_head_or_trailers() {
    let (strict, messages) = Strict::of_client((), 1024);
    let mut frames = strict.frames;
    let watched: Vec<_> = [1, 3, 5, 7, 9, 11]
        .map(|stream: u32| messages.begin(|| Ok::<_, ()>(()), |()| stream).unwrap().1)
        .into_iter()
        .collect();
    let (head, early) = ([(":status", "200"), ("x-a", "v")], [(":status", "103"), ("link", "x")]);
    for (stream, blocks) in [
        (1, vec![&early[..], &early, &head, &[("x-sum", "1")]]),
        (3, vec![&[(":status", "103"), ("link", "x ")], &head]),
        (5, vec![&[(":status", "200"), ("x-a", "\tv")]]),
        (7, vec![&head, &[("x-sum", "1"), (":status", "200")]]),
        (9, vec![&head, &[(":status", "200")]]),
        (11, vec![&head, &[("x-sum", " 1")]]),
        // Nobody has asked.
        (13, vec![&head, &[("x-sum", " 1")]]),
    ] {
        blocks.into_iter().for_each(|block| frames.feed(&headers(stream, block)));
    }
    let malformed: Vec<_> = watched.iter().map(WatchedStream::is_malformed).collect();
    assert_eq!(malformed, [false, true, true, true, true, true]);
    drop(watched);
    let known = messages.lock();
    assert!(known.malformed.is_empty() && !known.lost);
    assert!(matches!(&known.peer, Peer::Server(waited) if waited.is_empty()));
}

#[test]
fn a_block_may_have_padding_a_priority_and_continuations() {
    let (mut frames, messages) = server();
    let block = block(&get("/", &[("x-a", "v ")]));
    let (first, second) = block.split_at(7);
    let mut padded = vec![2, 0, 0, 0, 3, 16];
    padded.extend_from_slice(first);
    padded.extend([0, 0]);
    let mut bytes = frame(HEADERS, PADDED | PRIORITY, 1, &padded);
    bytes.extend(frame(CONTINUATION, 0, 1, &[]));
    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, second));
    bytes.extend(headers(3, &get("/", &[])));
    // One byte at a time.
    bytes.chunks(1).for_each(|byte| frames.feed(byte));
    assert_eq!(malformed(&messages, 1..=3), [1]);
}

#[test]
fn nothing_is_well_formed_behind_a_block_that_cannot_be_read() {
    let mut own_parent = vec![0, 0, 0, 1, 16];
    own_parent.extend(block(&get("/", &[])));
    for wrong in [
        frame(HEADERS, END_HEADERS | PRIORITY, 1, &own_parent),
        frame(HEADERS, END_HEADERS, 1, &[0x80]),
        frame(HEADERS, END_HEADERS, 1, &[0, 1, b'a']),
        frame(HEADERS, END_HEADERS | PADDED, 1, &[9, 0]),
        frame(CONTINUATION, END_HEADERS, 1, &[]),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        frame(HEADERS, END_HEADERS, 1, &vec![0; FRAME + 1]),
        [frame(HEADERS, 0, 1, &[]), headers(3, &GET)].concat(),
    ] {
        let (mut frames, messages) = server();
        frames.feed(&wrong);
        frames.feed(&headers(5, &get("/", &[])));
        assert_eq!(malformed(&messages, 5..=5), [5], "{wrong:?}");
    }
}

#[test]
fn a_peer_with_many_malformed_messages_gets_no_answers() {
    let (mut frames, messages) = server();
    for stream in 0..=MOST as u32 {
        assert!(!messages.lock().lost);
        frames.feed(&headers(2 * stream + 1, &get("#", &[])));
    }
    assert!(messages.lock().lost);
}

/// What h2's encoder writes, with its table and its codes, is read as what it is.
#[tokio::test]
async fn blocks_of_h2_are_read_whole() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (strict, messages) = Strict::of_server(far, 16 * 1024);
    tokio::spawn(async move {
        let mut server = h2::server::handshake(strict).await.unwrap();
        while let Some(request) = server.accept().await {
            let (_, mut respond) = request.unwrap();
            respond.send_response(hyper::Response::new(()), true).unwrap();
        }
    });
    let (mut sender, connection) = h2::client::handshake(near).await.unwrap();
    tokio::spawn(connection);
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for n in 0..300_u32 {
        sender = sender.ready().await.unwrap();
        let mut request = hyper::Request::get(format!("http://host{}.example/path/{n}?~{{", n % 7));
        for field in 0..n % 5 {
            let value =
                vec![b'!' + u8::try_from((n * 7 + field) % 90).unwrap(); (n * field) as usize % 900 + 1];
            request = request.header(format!("x-{}", (n + field) % 11), value);
        }
        if n % 3 == 0 {
            request = request.header("x-odd", [b" ", &[0xe9, n as u8 | 0x80][..]].concat());
            wanted.push(2 * n + 1);
        }
        let (response, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        response.await.unwrap();
        found.extend(malformed(&messages, 2 * n + 1..=2 * n + 1));
    }
    assert_eq!(found, wanted);
    assert!(!messages.lock().lost);
}

#[tokio::test]
async fn bytes_pass_unchanged() {
    let (mut near, far) = tokio::io::duplex(64);
    let (mut strict, _) = Strict::of_client(far, 1024);
    near.write_all(b"no HTTP/2 at all, but long enough").await.unwrap();
    drop(near);
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut strict, &mut text).await.unwrap();
    assert_eq!(text, "no HTTP/2 at all, but long enough");
}

proptest::proptest! {
    /// It does not matter how the bytes come, and none of them stops the reader.
    #[test]
    fn any_bytes_are_read_the_same_in_pieces(
        frames in proptest::collection::vec(
            (0_u8..11, proptest::prelude::any::<u8>(), 0_u32..6, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)),
            0..8,
        ),
        size in 1_usize..20,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, stream, body)| frame(*kind, *flags, *stream, body)).collect();
        let read = |size: usize| {
            let (mut frames, messages) = server();
            bytes.chunks(size).for_each(|piece| frames.feed(piece));
            let known = messages.lock();
            let mut malformed: Vec<_> = known.malformed.iter().copied().collect();
            malformed.sort_unstable();
            (known.lost, malformed)
        };
        proptest::prop_assert_eq!(read(size), read(bytes.len().max(1)));
    }
}
