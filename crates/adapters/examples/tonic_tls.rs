//! tonic over TLS 1.3, both ends: a call of a client that was here before is early data, if the client says that it may run
//! twice.
//!
//! `cargo run -p firstflight-adapters --features tls,tonic,tower --example tonic_tls -- localhost.pem localhost.key`
//!
//! `firstflight test-certificate localhost` makes the two files. The service is that of `tonic_both`.

/// The service, and a call of it.
#[allow(dead_code, reason = "it is an example of its own")]
#[path = "tonic_both.rs"]
pub mod tonic_both;

use firstflight::{Client, ReplaySafety, Server};
use firstflight_adapters::{HttpsConnector, TlsIncoming};
use firstflight_tls::{Acceptor, Connector, H2};
use tonic::transport::{Channel, Endpoint};

/// Serves for ever. gRPC is HTTP/2, so this is the acceptor's protocol.
pub async fn serve(server: Server, acceptor: Acceptor) -> Result<(), tonic::transport::Error> {
    tonic_both::serve_over(TlsIncoming::new(server, acceptor)).await
}

/// A channel to `uri`, which begins with https. It is lazy, so that the first call is part of the first flight.
pub fn channel(
    connector: &HttpsConnector,
    uri: String,
    safety: ReplaySafety,
) -> Result<Channel, http::uri::InvalidUri> {
    let endpoint: Endpoint = uri.parse::<http::Uri>()?.into();
    Ok(endpoint.connect_with_connector_lazy(connector.clone().replay_safety(safety)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(chain), Some(key)) = (args.next(), args.next()) else {
        return Err("name the PEM files of a certificate for localhost and its key".into());
    };
    let acceptor = Acceptor::builder().files(&chain, key).alpn([H2]).build()?;
    let server = Server::bind("127.0.0.1:0").await?;
    let port = server.local_addrs().first().map_or(0, std::net::SocketAddr::port);
    tokio::spawn(serve(server, acceptor));
    let tls = Connector::builder().ca_file(chain)?.alpn([H2]).build()?;
    let connector = HttpsConnector::new(Client::new(), tls).https_only(true);
    for safety in [ReplaySafety::Safe, ReplaySafety::Safe, ReplaySafety::ByMethod] {
        let channel = channel(&connector, format!("https://localhost:{port}"), safety)?;
        let (early, answer) = tonic_both::call(channel, "hello").await?;
        println!("{safety:?}: {early} bytes came early; answer: {answer:?}");
        // The ticket for the next visit comes behind the answer.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Ok(())
}
