//! Sends a request inside the lookup of the server's address, and directly, and says which copy was first:
//! `inside_lookup HOST:PORT RESOLVER VERIFIER KEY SECOND_VERIFIER`, where the first visit learns that the server takes such
//! requests. `docs/dns-lookups.md` sets the servers up.

use firstflight::verifier::IssuerAddress;
use firstflight::{Client, FirstFlight, InsideLookups};
use std::error::Error;
use std::time::Duration;
use tokio::io::AsyncReadExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [server, resolver, verifier, key, second] = words.as_slice() else {
        return Err("usage: inside_lookup HOST:PORT RESOLVER VERIFIER KEY SECOND_VERIFIER".into());
    };
    let inside = InsideLookups::new(resolver.parse()?, [verifier.parse()?, second.parse()?])?;
    let issuer = IssuerAddress::new(verifier.parse()?, key.parse()?);
    let client = Client::builder().verifier(issuer).inside_lookups(inside).build()?;
    client.prepare(Duration::from_secs(5)).await;
    let request = format!("GET / HTTP/1.0\r\nHost: {server}\r\n\r\n");
    for _ in 0..2 {
        let first = FirstFlight::safely_replayable(request.as_bytes());
        let mut stream = client.connect(server.as_str(), first).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let way = stream.inside_lookup().map(|report| (report.way.as_str(), report.names));
        println!("{} bytes, {}, inside the lookup: {way:?}", answer.len(), stream.outcome().as_str());
    }
    client.close().await;
    Ok(())
}
