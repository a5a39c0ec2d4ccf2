//! The status 425 (RFC 8470), both ends: the server does not execute an early POST, and the client repeats it.
//!
//! `cargo run -p firstflight-adapters --features axum,hyper-util,tower --example too_early`
//!
//! On the loopback device a handshake takes microseconds, so hardly any request is early. The tests of this crate run
//! this file on a path where the client's ACK is late.

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use firstflight::{Client, ReplaySafety, Server};
use firstflight_adapters::{
    Accept, Connector, Incoming, Peer, RetryTooEarly, RetryTooEarlyLayer, TooEarlyLayer,
};
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tower_layer::Layer;
use tower_service::Service;

/// The client.
pub type HttpClient = legacy::Client<Connector, Full<Bytes>>;

/// Serves for ever. `layer` keeps early requests from `/`, if they are not safe.
pub async fn serve<A: Accept + Unpin>(listener: A, layer: TooEarlyLayer) -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "page" })).route("/", post(|| async { "ordered" }));
    let app = app.layer(layer).into_make_service_with_connect_info::<Peer>();
    axum::serve(Incoming::new(listener), app).await
}

/// A client that makes a connection for each request.
pub fn client(connector: Connector) -> HttpClient {
    legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

/// A client that sends every request early, and after a 425 once more, after the handshake.
pub fn retrying(connector: Connector) -> RetryTooEarly<HttpClient, HttpClient> {
    let late = client(connector.clone().replay_safety(ReplaySafety::Unsafe));
    RetryTooEarlyLayer::new(late).layer(client(connector.replay_safety(ReplaySafety::Safe)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/", server.local_addrs()[0]);
    tokio::spawn(serve(server, TooEarlyLayer::new()));
    let mut client = retrying(Connector::new(Client::new()));
    for method in [Method::GET, Method::GET, Method::POST] {
        let request = Request::builder().method(method.clone()).uri(&uri).body(Full::default())?;
        println!("{method}: {}", client.call(request).await.map(|response: Response<_>| response.status())?);
    }
    Ok(())
}
