//! hyper-util's client: a GET rides in the SYN, and a POST of the same client waits for the handshake.
//!
//! `cargo run -p firstflight-adapters --features hyper-util --example hyper_client -- http://127.0.0.1:8080/`

use bytes::Bytes;
use firstflight::Client;
use firstflight::credential::Outcome;
use firstflight_adapters::{Connector, FirstFlightInfo};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use std::error::Error;

/// The client.
pub type HttpClient = legacy::Client<Connector, Full<Bytes>>;

/// A client that makes a connection for each request, as on visits that are far apart.
pub fn client() -> HttpClient {
    let connector = Connector::new(Client::new());
    legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

/// Returns the answer, and the outcome of the first flight.
pub async fn visit(
    client: &HttpClient,
    method: Method,
    uri: &str,
) -> Result<(String, Outcome), Box<dyn Error>> {
    let request = Request::builder().method(method).uri(uri).body(Full::default())?;
    let mut response = client.request(request).await?;
    let answer = response.body_mut().collect().await?.to_bytes();
    let info = response.extensions().get::<FirstFlightInfo>().ok_or("not a connection of Connector")?;
    Ok((String::from_utf8_lossy(&answer).into_owned(), info.outcome()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("say what to visit: http://HOST:PORT/")?;
    let client = client();
    for method in [Method::GET, Method::GET, Method::POST] {
        let (answer, outcome) = visit(&client, method.clone(), &uri).await?;
        println!("{method}: {}: {outcome}\n{answer}", outcome.as_str());
    }
    Ok(())
}
