//! hyper-util's client by https: the first visit takes two round trips, and a GET of the next one rides in the first flight.
//!
//! `cargo run -p firstflight-adapters --features tls --example https_client -- https://www.example.com/`

use bytes::Bytes;
use firstflight::Client;
use firstflight_adapters::{FirstFlightInfo, HttpsConnector};
use firstflight_tls::{Connector, H2, HTTP_1_1};
use http::{Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::time::Duration;

/// The client.
pub type HttpsClient = legacy::Client<HttpsConnector, Full<Bytes>>;

/// A client of HTTP/2 and HTTP/1.1.
pub fn client(connector: HttpsConnector) -> HttpsClient {
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

/// Returns the answer, its protocol, and about its connection.
pub async fn visit(
    client: &HttpsClient,
    method: Method,
    uri: &str,
) -> Result<(String, Version, FirstFlightInfo), Box<dyn Error>> {
    let request = Request::builder().method(method).uri(uri).body(Full::default())?;
    let mut response = client.request(request).await?;
    let answer = response.body_mut().collect().await?.to_bytes();
    let info = response.extensions().get::<FirstFlightInfo>().ok_or("not a connection of HttpsConnector")?;
    Ok((String::from_utf8_lossy(&answer).into_owned(), response.version(), info.clone()))
}

/// Waits for a ticket for the next visit, which comes behind the answer, for a second at most.
pub async fn ticket(info: &FirstFlightInfo) {
    for _ in 0..100 {
        if info.tickets() > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("say what to visit: https://HOST/")?;
    let tls = Connector::builder().alpn([H2, HTTP_1_1]).build()?;
    let connector = HttpsConnector::new(Client::new(), tls).https_only(true);
    for method in [Method::GET, Method::GET, Method::POST] {
        // A client of its own for each visit has no connection that is open already. The tickets are the connector's.
        let client = client(connector.clone());
        let (answer, version, info) = visit(&client, method.clone(), &uri).await?;
        let early = info.tls().map_or("none", |handshake| handshake.early.as_str());
        println!("{method}: {version:?}, early data: {early}, {} bytes", answer.len());
        ticket(&info).await;
    }
    Ok(())
}
