//! Questions and answers with one verifier.

use super::Patience;
use super::fault::Fault;
use super::route::Route;
use firstflight_wire::asap::message::{Challenge, MESSAGE_MAX, Message, MessageBytes, TransactionId};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// How many challenges the client answers, because one may expire on its way.
const CHALLENGES: usize = 3;

/// The address to ask, and the id of the question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) transaction: TransactionId,
}

/// An exchange with a verifier that has given a challenge, or is reached over TCP.
pub(super) struct Conversation {
    route: Route,
    peer: Peer,
    patience: Patience,
    way: ExchangeWay,
}

enum ExchangeWay {
    Datagrams(UdpSocket, Challenge),
    Stream,
}

impl Conversation {
    /// Gets a challenge, with the message that `make` makes without one. If no answer comes over UDP, the
    /// rest of the exchange uses TCP.
    pub(super) async fn open(
        route: &Route,
        peer: Peer,
        patience: &Patience,
        make: impl Fn(Option<Challenge>, bool) -> MessageBytes,
    ) -> Result<Self, Fault> {
        let (patience, route) = (*patience, route.clone());
        if matches!(route, Route::Streams(_)) {
            return Ok(Self { route, peer, patience, way: ExchangeWay::Stream });
        }
        let any: IpAddr =
            if peer.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).await.map_err(Fault::Socket)?;
        // From now on the kernel accepts datagrams only from there. Without a route, TCP would have none
        // either.
        socket.connect(peer.address).await.map_err(Fault::Socket)?;
        let answer = ask_by_datagram(&route, &socket, peer, &patience, &make(None, true)).await;
        if let Some(Message::Challenge(_) | Message::Refused(_)) = answer {
            route.handle_answer(peer.address);
        }
        let way = match answer {
            Some(Message::Challenge(message)) => ExchangeWay::Datagrams(socket, message.challenge),
            Some(Message::Refused(refused)) => return Err(Fault::Refused(refused)),
            Some(_) => return Err(Fault::Nonsense),
            None => ExchangeWay::Stream,
        };
        Ok(Self { route, peer, patience, way })
    }

    /// Sends the message that `make` makes of the challenge. The returned answer is never another challenge.
    pub(super) async fn ask(
        &mut self,
        make: impl Fn(Option<Challenge>, bool) -> MessageBytes,
    ) -> Result<Message, Fault> {
        for _ in 0..CHALLENGES {
            let answer = match &self.way {
                ExchangeWay::Stream => return self.ask_by_stream(&make(None, false)).await,
                ExchangeWay::Datagrams(socket, challenge) => {
                    let message = make(Some(*challenge), true);
                    ask_by_datagram(&self.route, socket, self.peer, &self.patience, &message).await
                }
            };
            match (answer, &mut self.way) {
                // The challenge expired while the client waited for others.
                (Some(Message::Challenge(message)), ExchangeWay::Datagrams(_, challenge)) => {
                    *challenge = message.challenge;
                }
                (Some(Message::Refused(refused)), _) => return Err(Fault::Refused(refused)),
                (Some(message), _) => return Ok(message),
                (None, way) => *way = ExchangeWay::Stream,
            }
        }
        Err(Fault::Nonsense)
    }

    async fn ask_by_stream(&self, message: &[u8]) -> Result<Message, Fault> {
        let exchange = async {
            let mut stream = self.route.stream(self.peer.address).await?;
            let mut framed = Vec::with_capacity(2 + message.len());
            framed.extend((message.len() as u16).to_be_bytes());
            framed.extend_from_slice(message);
            stream.write_all(&framed).await?;
            let len = usize::from(stream.read_u16().await?);
            let mut buffer = [0; MESSAGE_MAX];
            let answer = buffer.get_mut(..len).ok_or(io::ErrorKind::InvalidData)?;
            stream.read_exact(answer).await?;
            Ok::<_, io::Error>(Message::parse(answer).ok())
        };
        let answer = match timeout(self.patience.stream, exchange).await {
            Ok(answer) => answer.map_err(Fault::Silent)?,
            Err(_) => return Err(Fault::Silent(io::ErrorKind::TimedOut.into())),
        };
        match answer {
            Some(answer) if answer.transaction() != self.peer.transaction => Err(Fault::Nonsense),
            Some(Message::Refused(refused)) => Err(Fault::Refused(refused)),
            None | Some(Message::Challenge(_)) => Err(Fault::Nonsense),
            Some(answer) => Ok(answer),
        }
    }
}

/// Sends a datagram until it is answered. Ignores datagrams that do not answer it.
async fn ask_by_datagram(
    route: &Route,
    socket: &UdpSocket,
    peer: Peer,
    patience: &Patience,
    message: &[u8],
) -> Option<Message> {
    let mut wait = patience.first;
    for _ in 0..patience.sends {
        if !route.may_send(socket, peer.address) {
            return None;
        }
        // If the port is closed, an ICMP error says so here or in `recv`. Then only TCP is left.
        socket.send(message).await.ok()?;
        match timeout(wait, answer(socket, peer)).await {
            Ok(answer) => return answer.ok(),
            Err(_) => wait *= 2,
        }
    }
    None
}

async fn answer(socket: &UdpSocket, peer: Peer) -> io::Result<Message> {
    let mut buffer = [0; MESSAGE_MAX + 1];
    loop {
        let len = socket.recv(&mut buffer).await?;
        match Message::parse(buffer.get(..len).unwrap_or_default()) {
            Ok(message) if message.transaction() == peer.transaction => return Ok(message),
            _ => tracing::debug!(peer = %peer.address, "a datagram that is no answer"),
        }
    }
}
