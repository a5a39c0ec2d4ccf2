use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

fn pair() -> (DuplexStream, Lingering<DuplexStream>) {
    let (client, server) = duplex(64 * 1024);
    (client, Lingering::new(server))
}

/// How long the shutdown takes.
async fn closed(server: &mut Lingering<DuplexStream>) -> Duration {
    let begun = Instant::now();
    server.shutdown().await.unwrap();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_the_end_is_thrown_away_until_the_client_closes() {
    let (mut client, mut server) = pair();
    let sending = tokio::spawn(async move {
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        client.write_all(&vec![1; 1 << 20]).await.unwrap();
    });
    assert!(closed(&mut server).await < Duration::from_millis(100));
    sending.await.unwrap();
    // The stages come once.
    assert_eq!(closed(&mut server).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_is_waited_for_five_seconds_and_one_that_sends_for_thirty() {
    let (_client, mut server) = pair();
    let took = closed(&mut server).await;
    assert!((QUIET..QUIET + Duration::from_millis(10)).contains(&took), "{took:?}");

    let (mut client, mut server) = pair();
    tokio::spawn(async move {
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let took = closed(&mut server).await;
    assert!((WHOLE..WHOLE + Duration::from_millis(10)).contains(&took), "{took:?}");
}

/// As hyper does for clients that close first.
#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_after_the_clients_end() {
    let (mut client, mut server) = pair();
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(closed(&mut server).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_closes_one_direction_goes_on_in_the_other() {
    let (mut client, mut server) = pair();
    client.write_all(b"late").await.unwrap();
    server.stop();
    assert_eq!(closed(&mut server).await, Duration::ZERO);
    let mut late = [0; 4];
    server.read_exact(&mut late).await.unwrap();
    assert_eq!(&late, b"late");
}
