//! Lazy streams on an emulated path.

use super::*;
use crate::link::{PathConfig, real_time_pair};
use crate::{ConnectConfig, Endpoint, ListenConfig};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server that sends back what it gets, and what connects to it; and the first flights that the connects got.
fn begin() -> (impl Fn() -> LazyStream, Arc<Mutex<Vec<Vec<u8>>>>) {
    let path = PathConfig::default();
    let (a, b) = real_time_pair(path.clone(), path, 1).unwrap();
    let client = Endpoint::new(crate::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
    let server = Endpoint::new(crate::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
    let at = "10.0.0.2:80".parse().unwrap();
    let listener = server.listen(ListenConfig::new(at)).unwrap();
    tokio::spawn(async move {
        let _server = server;
        while let Ok(stream) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::io::copy(&mut reader, &mut writer).await?;
                writer.shutdown().await
            });
        }
    });
    let flights: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let told = Arc::clone(&flights);
    let connect = move || {
        let (client, told) = (client.clone(), Arc::clone(&told));
        LazyStream::new(move |first: Vec<u8>| async move {
            told.lock().unwrap().push(first.clone());
            client.connect(at, FirstFlight::safely_replayable(&first), &ConnectConfig::default()).await
        })
    };
    (connect, flights)
}

async fn echo(mut stream: LazyStream, writes: &[&[u8]]) {
    for write in writes {
        stream.write_all(write).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut got = vec![0; writes.iter().map(|write| write.len()).sum()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(got, writes.concat());
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_first_write_is_the_first_flight() {
    let (connect, flights) = begin();
    echo(connect(), &[b"one", b"two"]).await;
    assert_eq!(*flights.lock().unwrap(), [b"one".to_vec()]);
    // Without a write there is no connect, and nothing to close.
    let mut unused = connect();
    unused.flush().await.unwrap();
    unused.shutdown().await.unwrap();
    assert_eq!(unused.outcome(), Outcome::Undecided);
    assert_eq!(flights.lock().unwrap().len(), 1);
}

/// What was shut down has ended, for the reader that waits already, too.
#[tokio::test]
async fn a_shutdown_before_the_first_write_ends_the_stream() {
    let (connect, flights) = begin();
    let (mut reader, mut writer) = tokio::io::split(connect());
    let reading = tokio::spawn(async move { reader.read(&mut [0]).await });
    tokio::task::yield_now().await;
    writer.shutdown().await.unwrap();
    assert_eq!(within(reading).await.unwrap().unwrap(), 0);
    writer.shutdown().await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(writer.write(b"late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let late = io::IoSlice::new(b"late");
    assert_eq!(writer.write_vectored(&[late]).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert!(flights.lock().unwrap().is_empty());

    // As a proxy does for a client that closes at once.
    let (mut client, mut inside) = tokio::io::duplex(64);
    let copying =
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut inside, &mut connect()).await });
    client.shutdown().await.unwrap();
    assert_eq!(within(copying).await.unwrap().unwrap(), (0, 0));
    assert_eq!(within(client.read(&mut [0])).await.unwrap(), 0);
}

/// The value of `future`, which must not hang.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}

#[tokio::test]
async fn a_preface_of_http2_takes_the_request_along() {
    let (connect, flights) = begin();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let request = b"\0\0\x01\x01\x05\0\0\0\x01\x82";
    echo(connect(), &[preface, request, b"more"]).await;
    assert_eq!(*flights.lock().unwrap(), [[&preface[..], request].concat()]);
    // Without a request it goes alone, soon.
    echo(connect(), &[preface]).await;
    assert_eq!(flights.lock().unwrap()[1], preface);
}

#[tokio::test]
async fn a_reader_that_waits_is_woken_and_an_error_is_returned_once() {
    let (connect, _) = begin();
    let (mut reader, mut writer) = tokio::io::split(connect());
    let reading = tokio::spawn(async move { reader.read_u8().await });
    tokio::task::yield_now().await;
    writer.write_all(b"x").await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), b'x');

    let refused = || async { Err(io::ErrorKind::ConnectionRefused.into()) };
    let mut stream = LazyStream::new(move |_| refused());
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn the_method_decides_what_may_run_twice() {
    let safe = |data: &[u8]| ReplaySafety::ByMethod.flight(data).is_replayable();
    assert!(safe(b"GET / HTTP/1.1\r\n\r\n"));
    assert!(!safe(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"));
    assert!(!safe(b"anything else"));
    assert!(ReplaySafety::Safe.flight(b"anything").is_replayable());
    assert!(!ReplaySafety::Unsafe.flight(b"GET / HTTP/1.1\r\n\r\n").is_replayable());
}
