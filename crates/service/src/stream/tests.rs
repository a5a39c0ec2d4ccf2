#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::Sockets;
use std::net::Ipv4Addr;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Ends a test that would otherwise wait for an answer without end.
const LONG: Duration = Duration::from_secs(30);

/// Echoes every message.
struct Echo;

impl Messages for Echo {
    const LARGEST: usize = 16;
    const PER_CONNECTION: usize = 8;
    type Answer = Vec<u8>;

    fn handle_datagram(&self, _: SocketAddr, message: &[u8]) -> Option<Vec<u8>> {
        Some(message.to_vec())
    }

    fn handle_stream(&self, _: SocketAddr, message: &[u8]) -> Option<Vec<u8>> {
        Some(message.to_vec())
    }
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    timeout(LONG, socket.connect(to)).await.unwrap().unwrap()
}

/// Whether a message is answered. Waits for the answer or the end of the connection.
async fn answers(stream: &mut TcpStream) -> bool {
    if stream.write_all(&[0, 2, 7, 8]).await.is_err() {
        return false;
    }
    let mut answer = [0; 4];
    timeout(LONG, stream.read_exact(&mut answer)).await.unwrap().is_ok() && answer == [0, 2, 7, 8]
}

/// A running service: its address, what stops it, and its task.
async fn start(limits: StreamLimits) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).await.unwrap();
    let at = sockets.addresses()[0];
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        sockets.run(Arc::new(Echo), limits, stop).await;
    });
    (at, stop, running)
}

/// The service does not wait until the time limit of idle connections has passed.
#[tokio::test]
async fn an_idle_connection_ends_when_the_service_stops() {
    let never = Duration::from_secs(1 << 30);
    let limits = StreamLimits { patience: never, ..StreamLimits::per_client(2) };
    let (at, stop, running) = start(limits).await;
    let mut idle = connect(Ipv4Addr::LOCALHOST, at).await;
    assert!(answers(&mut idle).await);
    stop.send(()).unwrap();
    timeout(LONG, running).await.unwrap().unwrap();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
}

/// Found in review with 543 connections: idle connections take all places and never end by themselves. A new
/// client must still be answered.
#[tokio::test]
async fn idle_connections_of_strangers_stall_nobody() {
    let never = Duration::from_secs(1 << 30);
    let limits = StreamLimits { connections: 34, per_network: 16, per_client: 2, patience: never };
    let (at, stop, running) = start(limits).await;
    // It was answered, so the listener has accepted it.
    let mut first = connect(Ipv4Addr::new(127, 0, 200, 1), at).await;
    assert!(answers(&mut first).await);
    let mut idle = Vec::new();
    for n in 0..36u8 {
        idle.push(connect(Ipv4Addr::new(127, 0, n % 17, 1), at).await);
    }
    let mut mine = connect(Ipv4Addr::new(127, 0, 201, 1), at).await;
    assert!(answers(&mut mine).await);
    // A client that is alone in its network is not displaced.
    assert!(answers(&mut first).await);
    assert!(answers(&mut mine).await);
    drop(idle);
    drop((first, mine));
    let _ = stop.send(());
    timeout(LONG, running).await.unwrap().unwrap();
}
