//! tonic, both ends: a call rides in the SYN only if the client says that it may run twice.
//!
//! `cargo run -p firstflight-adapters --features tonic,tower --example tonic_both`
//!
//! Linux grants cookies only after `sysctl net.ipv4.tcp_fastopen=3`. The service and its codec are written by hand, so
//! that this file needs no protoc. What `tonic-build` makes is used in the same way.

use bytes::{Buf, BufMut, Bytes};
use firstflight::{Client, ReplaySafety, Server};
use firstflight_adapters::{Connector, Incoming, Peer, TooEarlyLayer};
use futures_util::Stream;
use http::uri::PathAndQuery;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// Serves for ever.
pub async fn serve(server: Server) -> Result<(), tonic::transport::Error> {
    serve_over(Incoming::new(server)).await
}

/// Serves these connections. A client may be wrong about what may run twice, so early calls wait for the handshake.
pub async fn serve_over<I, IO>(incoming: I) -> Result<(), tonic::transport::Error>
where
    I: Stream<Item = std::io::Result<IO>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    tonic::transport::Server::builder()
        .layer(TooEarlyLayer::waiting())
        .add_service(Echo)
        .serve_with_incoming(incoming)
        .await
}

/// A channel to `uri`. It is lazy, so that the first call is the first flight. `ByMethod` makes calls wait for the
/// handshake: they are POSTs.
pub fn channel(client: &Client, uri: String, safety: ReplaySafety) -> Result<Channel, http::uri::InvalidUri> {
    let connector = Connector::new(client.clone()).replay_safety(safety);
    let endpoint: Endpoint = uri.parse::<http::Uri>()?.into();
    Ok(endpoint.connect_with_connector_lazy(connector))
}

/// Calls the service, which returns how many bytes arrived early, and what it got.
pub async fn call(channel: Channel, text: &'static str) -> Result<(u32, Bytes), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/example.Echo/Say");
    let response = client.unary(Request::new(Bytes::from_static(text.as_bytes())), path, Plain).await?;
    let mut answer = response.into_inner();
    Ok((answer.get_u32(), answer))
}

async fn say(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    let early = request.extensions().get::<Peer>().map_or(0, Peer::early_bytes);
    Ok(Response::new([&early.to_be_bytes(), &request.into_inner()[..]].concat().into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}", server.local_addrs()[0]);
    tokio::spawn(serve(server));
    let client = Client::new();
    for safety in [ReplaySafety::Safe, ReplaySafety::Safe, ReplaySafety::ByMethod] {
        let (early, answer) = call(channel(&client, uri.clone(), safety)?, "hello").await?;
        println!("{safety:?}: {early} bytes arrived early; answer: {answer:?}");
    }
    Ok(())
}

// What tonic-build would make.

#[derive(Clone)]
struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "example.Echo";
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(Plain).unary(Say, request).await) })
    }
}

struct Say;

impl tonic::server::UnaryService<Bytes> for Say {
    type Response = Bytes;
    type Future = Boxed<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(say(request))
    }
}

/// Messages are their bytes.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
