//! Visits to a TLS server of another implementation, over the kernel's TCP.

use super::{Failure, NAME};
use clap::Args;
use firstflight::{Authority, FirstFlight};
use firstflight_tls::{Connector, Early, Hybrid};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The server, and how often it is visited.
#[derive(Debug, Args)]
pub struct Foreign {
    /// The server's address
    #[arg(long)]
    at: SocketAddr,
    /// The authority of its certificate, PEM
    #[arg(long)]
    ca: PathBuf,
    /// The hybrid key exchange: prefer, require or never
    #[arg(long, default_value = "prefer", value_parser = hybrid)]
    hybrid: Hybrid,
    /// Visits, one after the other, with one memory of tickets
    #[arg(long, default_value_t = 1)]
    visits: usize,
}

fn hybrid(text: &str) -> Result<Hybrid, String> {
    match text {
        "prefer" => Ok(Hybrid::Prefer),
        "require" => Ok(Hybrid::Require),
        "never" => Ok(Hybrid::Never),
        _ => Err("prefer, require or never".to_owned()),
    }
}

/// Makes the visits. Each is a line of JSON.
pub fn run(options: &Foreign) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let connector = Connector::builder().ca_file(&options.ca)?.http1().hybrid(options.hybrid).build()?;
    let server: Authority = format!("{NAME}:{}", options.at.port()).parse()?;
    let mut lines = Vec::new();
    for _ in 0..options.visits {
        let told = runtime.block_on(visit(&connector, options.at, &server));
        lines.push(told.unwrap_or_else(|error| json!({ "error": error.to_string() })).to_string());
    }
    Ok(lines.join("\n"))
}

async fn visit(connector: &Connector, at: SocketAddr, server: &Authority) -> Result<Value, Failure> {
    let request = format!("GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    let request = FirstFlight::safely_replayable(request.as_bytes());
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let mut stream = connector.connect_over(stream, server, request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    stream.shutdown().await?;
    let how = stream.handshake();
    let early = match how.early {
        Early::None => "none",
        Early::Accepted => "accepted",
        _ => "refused",
    };
    let status = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default());
    Ok(json!({
        "hybrid": how.hybrid,
        "resumed": how.resumed,
        "retried": how.retried,
        "early": early,
        "protocol": stream.alpn().map(String::from_utf8_lossy),
        "status": status,
    }))
}
