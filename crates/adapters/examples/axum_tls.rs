//! axum over TLS 1.3: a GET of a client that was here before is early data, and is answered in one round trip. A POST waits.
//!
//! `cargo run -p firstflight-adapters --features axum,tls,tower --example axum_tls -- chain.pem key.pem 127.0.0.1:8443`
//!
//! `firstflight test-certificate localhost` makes localhost.pem and localhost.key for a trial, and
//! `curl --cacert localhost.pem https://localhost:8443/` asks.

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use firstflight::Server;
use firstflight_adapters::{Peer, TlsIncoming, TooEarlyLayer};
use firstflight_tls::{Acceptor, H2, HTTP_1_1};

async fn about(ConnectInfo(peer): ConnectInfo<Peer>) -> String {
    format!("{} bytes came early, asked for {}", peer.early_bytes(), peer.server_name().unwrap_or("no name"))
}

/// Serves for ever, over HTTP/2 and HTTP/1.1: the protocols of the acceptor.
pub async fn serve(server: Server, acceptor: Acceptor) -> std::io::Result<()> {
    let app = Router::new().route("/", get(about)).route("/", post(about));
    // What has effects waits until the client's Finished shows that it is no copy.
    let app = app.layer(TooEarlyLayer::waiting());
    let incoming = TlsIncoming::new(server, acceptor);
    axum::serve(incoming, app.into_make_service_with_connect_info::<Peer>()).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(chain), Some(key)) = (args.next(), args.next()) else {
        return Err("name the PEM files of the certificate and its key".into());
    };
    let at = args.next().unwrap_or_else(|| "127.0.0.1:8443".to_owned());
    let acceptor = Acceptor::builder().files(chain, key).alpn([H2, HTTP_1_1]).build()?;
    let server = Server::bind(at).await?;
    println!("{:?}; grants cookies: {}", server.local_addrs(), server.grants_cookies());
    Ok(serve(server, acceptor).await?)
}
