//! axum: handlers know whether a request arrived early.
//!
//! `cargo run -p firstflight-adapters --features axum --example axum_server -- 127.0.0.1:8080`
//!
//! Linux grants cookies only after `sysctl net.ipv4.tcp_fastopen=3`.

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use firstflight::Server;
use firstflight_adapters::{Incoming, Peer};

/// A safe request is answered at once, also if it is early.
async fn page(ConnectInfo(peer): ConnectInfo<Peer>) -> String {
    format!("{} bytes arrived early", peer.early_bytes())
}

/// A request with effects waits until it cannot be a copy.
async fn order(ConnectInfo(peer): ConnectInfo<Peer>) -> Result<String, String> {
    peer.confirmed().await.map_err(|error| error.to_string())?;
    Ok(format!("ordered; {} bytes arrived early", peer.early_bytes()))
}

/// Serves for ever.
pub async fn serve(server: Server) -> std::io::Result<()> {
    let app = Router::new().route("/", get(page)).route("/", post(order));
    axum::serve(Incoming::new(server), app.into_make_service_with_connect_info::<Peer>()).await
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = Server::bind(at).await?;
    println!("{:?}; grants cookies: {}", server.local_addrs(), server.grants_cookies());
    serve(server).await
}
