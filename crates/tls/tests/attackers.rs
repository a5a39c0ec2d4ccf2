//! Peers that send what no TLS end sends: no panic, bounded memory, an error that names them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ANSWER, REQUEST, World, safe, site};
use firstflight::credential::NetworkId;
use firstflight_tls::{AcceptError, ConnectError, Departure};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// Random bytes, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn hello(world: &World) -> firstflight_tls::Hello {
    world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap()
}

/// Gives `bytes` to the acceptor, and then the end.
async fn accept(world: &World, bytes: &[u8]) -> AcceptError {
    let (mut attacker, theirs) = duplex(1 << 20);
    attacker.write_all(bytes).await.unwrap();
    attacker.shutdown().await.unwrap();
    let mut stream = match world.acceptor.accept_over(theirs).await {
        Err(error) => return error,
        Ok(stream) => stream,
    };
    assert!(stream.is_early());
    assert!(stream.confirmed().await.is_err() && stream.is_early());
    AcceptError::Closed
}

#[tokio::test]
async fn what_is_no_hello_is_refused_with_an_alert() {
    let world = World::new();
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\x53\x11\0\0\0", &[0; 100], &[22; 100]] {
        let (mut attacker, theirs) = duplex(1 << 16);
        attacker.write_all(text).await.unwrap();
        let error = world.acceptor.accept_over(theirs).await.unwrap_err();
        assert!(matches!(error, AcceptError::Client(_)), "{error}");
        let mut alert = Vec::new();
        attacker.read_to_end(&mut alert).await.unwrap();
        assert_eq!(alert.first(), Some(&21), "{error}");
    }
}

#[tokio::test]
async fn cut_and_altered_hellos_are_refused() {
    let world = World::new();
    world.visit(safe()).await;
    let first = hello(&world).bytes().to_vec();
    for length in 0..first.len().min(600) {
        assert!(matches!(accept(&world, &first[..length]).await, AcceptError::Closed), "{length}");
    }
    let mut random = Random(7);
    for _ in 0..2000 {
        let mut altered = first.clone();
        for _ in 0..=random.next() % 4 {
            let at = random.next() as usize % altered.len();
            altered[at] = random.next() as u8;
        }
        accept(&world, &altered).await;
    }
}

/// One byte at a time, from both ends.
#[tokio::test]
async fn a_byte_at_a_time_is_slow_but_right() {
    let world = World::new();
    for expected in [0, REQUEST.len() as u64] {
        let (ours, theirs) = duplex(1);
        let acceptor = world.acceptor.clone();
        let serving = tokio::spawn(async move {
            let mut theirs = acceptor.accept_over(theirs).await.unwrap();
            theirs.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
            theirs.write_all(ANSWER).await.unwrap();
            theirs.shutdown().await.unwrap();
            theirs.early_bytes()
        });
        let mut ours = world.connector.connect_over(ours, &site(), safe()).await.unwrap();
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer.as_slice(), serving.await.unwrap()), (ANSWER, expected));
    }
}

/// Records that say that they are long, hellos that never end, and empty records: bounded, and soon over.
#[tokio::test]
async fn endless_hellos_are_bounded() {
    let world = World::new();
    let record = |length: u16, body: &[u8]| [&[22, 3, 1][..], &length.to_be_bytes(), body].concat();
    // A handshake message of 16 MiB.
    let begin = record(16_000, &[&[1, 0xff, 0xff, 0xff][..], &[0; 15_996]].concat());
    let more = record(16_000, &[0; 16_000]);
    let endless = [&begin[..], &more.repeat(30)].concat();
    let empty = record(0, &[]).repeat(50_000);
    let too_long = record(u16::MAX, &[0; 20_000]);
    // A message of 60,000 bytes, in records of one byte.
    let head = [record(1, &[1]), record(1, &[0]), record(1, &[0xea]), record(1, &[0x60])].concat();
    let small = [&head[..], &record(1, &[0]).repeat(60_000)].concat();
    for bytes in [endless, empty, too_long, small] {
        let error = accept(&world, &bytes).await;
        assert!(matches!(error, AcceptError::Client(_) | AcceptError::TooLong(_)), "{error}");
    }
}

/// More early data than the server allows.
#[tokio::test]
async fn too_much_early_data_ends_the_connection() {
    let world = World::new();
    world.visit(safe()).await;
    // The ticket allows 16 KiB, so the server of a smaller limit gets more.
    let hello = world
        .connector
        .hello(
            &site(),
            Departure::elsewhere(NetworkId::UNKNOWN),
            firstflight::FirstFlight::safely_replayable(&[1; 16_384]),
        )
        .unwrap();
    assert_eq!(hello.early(), 16_384);
    // Another record of early data behind it, which nobody made: a bad MAC.
    let mut bytes = hello.bytes().to_vec();
    bytes.extend([23, 3, 3, 0, 40]);
    bytes.extend([1; 40]);
    let (mut attacker, theirs) = duplex(1 << 16);
    attacker.write_all(&bytes).await.unwrap();
    let Ok(mut stream) = world.acceptor.accept_over(theirs).await else { return };
    let mut got = Vec::new();
    assert!(stream.read_to_end(&mut got).await.is_err() && stream.is_early());
    assert!(got.len() <= 16_384);
}

#[tokio::test]
async fn a_server_that_sends_garbage_is_named() {
    let world = World::new();
    let mut random = Random(3);
    for n in 0..300 {
        let (ours, mut server) = duplex(1 << 16);
        let mut bytes: Vec<u8> = (0..200).map(|_| random.next() as u8).collect();
        if n % 2 == 0 {
            bytes[..5].copy_from_slice(&[22, 3, 3, 0, 100]);
        }
        server.write_all(&bytes).await.unwrap();
        server.shutdown().await.unwrap();
        let error = world.connector.connect_over(ours, &site(), safe()).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Server(_) | ConnectError::Closed | ConnectError::Refused(_)),
            "{error:?}"
        );
    }
}

/// Records that were altered on the way are errors at the reader.
#[tokio::test]
async fn altered_records_are_errors() {
    let world = World::new();
    let (ours, theirs) = world.pair(safe()).await;
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    ours.io_mut().write_all(&[23, 3, 3, 0, 30]).await.unwrap();
    ours.io_mut().write_all(&[9; 30]).await.unwrap();
    let mut got = Vec::new();
    let error = theirs.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((error.kind(), got.as_slice()), (std::io::ErrorKind::InvalidData, REQUEST));
    // It stays an error.
    assert!(theirs.read(&mut [0; 9]).await.is_err());
}
