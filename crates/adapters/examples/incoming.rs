//! A stream of accepted connections: the combinators of futures bound how many are served at a time.
//!
//! `cargo run -p firstflight-adapters --features stream --example incoming -- 127.0.0.1:7000`
//!
//! Linux grants cookies only after `sysctl net.ipv4.tcp_fastopen=3`.

use firstflight::Server;
use firstflight_adapters::{Incoming, ServerStream};
use futures_util::StreamExt;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Answers one line.
async fn answer(mut stream: ServerStream) -> io::Result<()> {
    let peer = stream.peer();
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).await?;
    stream.write_all(format!("{} early: {line}", peer.early_bytes()).as_bytes()).await?;
    stream.shutdown().await
}

/// Serves for ever, at most 100 connections at a time.
pub async fn serve(server: Server) {
    Incoming::new(server)
        .for_each_concurrent(100, |stream| async {
            if let Err(error) = async { answer(stream?).await }.await {
                eprintln!("{error}");
            }
        })
        .await;
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    serve(Server::bind(at).await?).await;
    Ok(())
}
