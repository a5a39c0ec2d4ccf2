//! Tasks that wait for the handshake on the kernel's TCP, where they share a place for a waker with the task that writes.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::{in_namespace, nft};
use firstflight::credential::Outcome;
use firstflight::{Authority, Client, FirstFlight, Server};
use firstflight_adapters::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// More than fits into any buffer.
const ANSWER: usize = 16 << 20;
const FIRST: FirstFlight<'_> = FirstFlight::safely_replayable(b"request");

#[test]
fn tasks_wait_for_the_handshake_beside_the_one_that_writes() {
    in_namespace("3", || async {
        let server = Server::bind("127.0.0.1:0").await.unwrap();
        let at: Authority = server.local_addrs()[0].into();
        let mut incoming = Incoming::new(server);
        let client = Client::new();
        let (first, accepted) = tokio::join!(client.connect(&at, FIRST), incoming.accept());
        drop((first.unwrap(), accepted));
        // Nothing that only acknowledges arrives: neither is the handshake complete, nor can the writer go on.
        let rule = "tcp flags & (syn | fin | rst | psh | ack) == ack drop";
        let chain = format!("type filter hook input priority 0; tcp dport {} {rule};", at.port());
        if !nft(&format!("table inet t {{ chain c {{ {chain} }}; }}")) {
            eprintln!("skipped: there is no nft");
            return;
        }
        let mut stream = client.connect(&at, FIRST).await.unwrap();
        assert_eq!(stream.outcome(), Outcome::Accepted);
        let mut served = incoming.accept().await;
        let peer = served.peer();
        assert_eq!((peer.early_bytes(), peer.is_early()), (7, true));
        let (mut waiting, mut writing) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
        writing.spawn(async move {
            served.read_exact(&mut [0; 7]).await.unwrap();
            served.write_all(&vec![1; ANSWER]).await.unwrap();
            served.shutdown().await
        });
        for _ in 0..5 {
            let peer = peer.clone();
            waiting.spawn(async move { peer.confirmed().await.map(|()| peer.is_early()) });
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(peer.is_early() && waiting.try_join_next().is_none() && writing.try_join_next().is_none());
        assert!(nft("delete table inet t"));
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer.len(), ANSWER);
        while let Some(one) = waiting.join_next().await {
            assert!(!one.unwrap().unwrap());
        }
        writing.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!((peer.early_bytes(), peer.is_early()), (7, false));
    });
}
