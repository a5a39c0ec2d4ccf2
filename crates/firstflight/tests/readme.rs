//! README.md's client and server, as they stand there, in a namespace of their own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::in_namespace;
use firstflight::{Client, Server, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The repository's page and the package's.
const PAGES: [&str; 2] = [include_str!("../../../README.md"), include_str!("../README.md")];
const VISITS: usize = 200;

#[allow(dead_code, reason = "the test calls `get` itself")]
mod client {
    use firstflight::{Client, FirstFlight};
    use tokio::io::AsyncReadExt;

    pub(super) async fn get(client: &Client) -> std::io::Result<String> {
        let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
        let mut stream = client.connect("127.0.0.1:8080", request).await?;
        println!("{}", stream.outcome());
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::main(flavor = "current_thread")]
    async fn main() -> std::io::Result<()> {
        let client = Client::new();
        get(&client).await?;
        get(&client).await?;
        Ok(())
    }
}

#[allow(dead_code, reason = "the test calls `serve` itself")]
mod server {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    pub(super) async fn serve() -> std::io::Result<()> {
        let server = firstflight::Server::bind("0.0.0.0:8080").await?;
        loop {
            let mut stream = server.accept().await?;
            tokio::spawn(async move {
                let _length = stream.read(&mut [0; 1024]).await?;
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await
            });
        }
    }

    #[tokio::main(flavor = "current_thread")]
    async fn main() -> std::io::Result<()> {
        serve().await
    }
}

#[test]
fn these_are_the_programs_of_the_readme() {
    let indented = |block: &str| {
        let lines =
            block.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") });
        lines.collect::<Vec<_>>().join("\n")
    };
    let ours = include_str!("readme.rs").replace("pub(super) ", "");
    for page in PAGES {
        let page = page.replace("```rust,no_run\n", "```rust\n");
        let mut blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in [blocks.next().unwrap(), blocks.next().unwrap()] {
            let block = block.replace("www.example.com:80", "127.0.0.1:8080");
            assert!(ours.contains(&indented(&block)), "README.md has another program:\n{block}");
        }
    }
}

/// The two lines that README.md shows.
#[test]
fn the_readmes_client_prints_what_the_readme_says() {
    in_namespace("3", || async {
        let server = Server::builder().address("127.0.0.1:8080".parse().unwrap()).tcp_only().bind().unwrap();
        tokio::spawn(async move {
            loop {
                answer(server.accept().await.unwrap()).await;
            }
        });
        let client = Client::new();
        let mut printed = String::new();
        for _visit in 0..2 {
            let request = firstflight::FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
            let stream = client.connect("127.0.0.1:8080", request).await.unwrap();
            printed += &format!("{}\n", stream.outcome());
        }
        assert!(
            PAGES[0].contains(&format!("```text\n{printed}```")),
            "README.md shows other lines than\n{printed}"
        );
    });
}

/// No answer is lost to a reset, whether the first flight was accepted or not.
#[test]
fn the_readmes_client_gets_its_servers_answer_every_time() {
    in_namespace("3", || async {
        tokio::spawn(server::serve());
        let client = Client::new();
        while client::get(&client).await.is_err() {
            // The server is not there yet.
            tokio::task::yield_now().await;
        }
        for visit in 0..VISITS {
            let answer = client::get(&client).await;
            assert_eq!(
                answer.unwrap_or_else(|error| panic!("visit {visit}: {error}")),
                "HTTP/1.0 200 OK\r\n\r\nhello"
            );
        }
    });
}

/// A server that answers and drops its stream without a look at the request: the client gets the answer, and its request
/// runs once. `setting` says whether the request comes in the SYN, or when the stream is gone.
fn unread(setting: &str, accepted: bool) {
    in_namespace(setting, move || async move {
        let server = Server::builder().address("127.0.0.1:8080".parse().unwrap()).tcp_only().bind().unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&served);
        tokio::spawn(async move {
            loop {
                let stream = server.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                answer(stream).await;
            }
        });
        let client = Client::new();
        for visit in 0..VISITS {
            let answer = client::get(&client).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("visit {visit}: {error}")), "hello");
        }
        let request = firstflight::FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
        let last = client.connect("127.0.0.1:8080", request).await.unwrap();
        assert_eq!(last.outcome().is_accepted(), accepted, "{}", last.outcome());
        assert!(served.load(Ordering::Relaxed) <= VISITS + 1, "a request ran twice");
    });
}

async fn answer(mut stream: Stream) {
    use tokio::io::AsyncWriteExt;
    stream.write_all(b"hello").await.unwrap();
}

#[test]
fn an_answer_to_an_unread_request_arrives_every_time() {
    unread("3", true);
    unread("0", false);
}
