//! Whether this host's network lets in datagrams from hosts that it never sent to.
//!
//! An answer to a first flight that travelled inside a DNS lookup comes from a server that the client never
//! contacted. Most address translators and firewalls drop it. This module finds out in advance whether it
//! would arrive.

use super::{Fault, Patience};
use firstflight_service::secure_rng;
use firstflight_wire::asap::message::{Challenge, MESSAGE_MAX, Message, ProbeRequest, TransactionId};
use rand_core::Rng;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// How many challenges the client answers, because one may expire on its way.
const CHALLENGES: usize = 3;

/// How an address translator maps one socket for several remote hosts (RFC 4787 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The mapping is the same for all remote hosts.
    EndpointIndependent,
    /// The mapping depends on the remote host.
    Dependent,
}

impl Mapping {
    /// Its name in kebab-case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::Dependent => "endpoint-dependent",
        }
    }
}

/// What was found out about the reachability of a socket at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The socket's address as the first verifier sees it.
    pub seen: SocketAddr,
    /// The socket's address as the second verifier sees it.
    pub seen_by_second: SocketAddr,
    /// Whether a datagram arrived from an address that the socket never sent to.
    pub strangers: bool,
}

impl Reach {
    /// Whether the socket has one address for all remote hosts.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        if self.seen == self.seen_by_second { Mapping::EndpointIndependent } else { Mapping::Dependent }
    }

    /// Whether a server that was never contacted can answer: it knows the address, and its answer arrives.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.strangers && self.mapping() == Mapping::EndpointIndependent
    }
}

/// A UDP socket, or the part of one that carries the messages of verifiers
/// ([`MESSAGE_MAGIC`](firstflight_wire::asap::message::MESSAGE_MAGIC)). It is bound and not connected.
pub trait Datagrams {
    /// Sends a datagram.
    fn send_to(&mut self, datagram: &[u8], to: SocketAddr) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives a datagram into `buffer`, cut to the buffer's length. Returns its length and its sender.
    /// Dropping the future loses no datagram.
    fn recv_from(
        &mut self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> + Send;
}

impl Datagrams for &UdpSocket {
    async fn send_to(&mut self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        UdpSocket::send_to(self, datagram, to).await.map(drop)
    }

    async fn recv_from(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        UdpSocket::recv_from(self, buffer).await
    }
}

/// Finds out whether datagrams of strangers, hosts that it never sent to, reach `socket`. It asks two
/// verifiers at different addresses, of which the first sends probes. `socket` must be the socket that is to
/// be reached, and not connected. Datagrams that are not answers are dropped, so other users of the socket
/// need a part of their own ([`Datagrams`]). The result holds as long as the mapping does: 15 s without
/// keep-alives is safe, and an hour with them.
///
/// # Errors
/// Which verifier gave no answer, and why.
pub async fn reach(
    socket: impl Datagrams + Send,
    verifiers: [SocketAddr; 2],
    patience: &Patience,
) -> Result<Reach, (SocketAddr, Fault)> {
    let [first, second] = verifiers;
    let mut asking = AskingVerifier { socket, contacted: vec![first], patience: *patience };
    // Ask in this order, so that the second verifier is still a stranger when the probe comes.
    let (seen, strangers) = asking.probe(first).await.map_err(|fault| (first, fault))?;
    asking.contacted.push(second);
    let (seen_by_second, _) = asking.challenge(second).await.map_err(|fault| (second, fault))?;
    Ok(Reach { seen, seen_by_second, strangers })
}

/// Whether [`reach`] can ask these two verifiers: they are at different addresses of one family.
#[must_use]
pub fn is_pair([first, second]: [SocketAddr; 2]) -> bool {
    first.ip() != second.ip() && first.is_ipv4() == second.is_ipv4()
}

pub(super) struct AskingVerifier<S> {
    pub(super) socket: S,
    /// The addresses that the socket has sent to, which are not strangers.
    pub(super) contacted: Vec<SocketAddr>,
    pub(super) patience: Patience,
}

impl<S: Datagrams + Send> AskingVerifier<S> {
    /// The socket's address as `verifier` sees it, and its challenge.
    async fn challenge(
        &mut self,
        verifier: SocketAddr,
    ) -> Result<(SocketAddr, (Question, Challenge)), Fault> {
        let question = Question::new()?;
        match self.ask(verifier, question, None).await? {
            Some(Message::Challenge(answer)) => Ok((answer.seen, (question, answer.challenge))),
            Some(Message::Refused(refused)) => Err(Fault::Refused(refused)),
            Some(_) => Err(Fault::Nonsense),
            None => Err(Fault::Silent(io::ErrorKind::TimedOut.into())),
        }
    }

    /// The socket's address as `verifier` sees it, and whether its probe arrives.
    pub(super) async fn probe(&mut self, verifier: SocketAddr) -> Result<(SocketAddr, bool), Fault> {
        let (seen, (question, mut challenge)) = self.challenge(verifier).await?;
        for _ in 0..CHALLENGES {
            match self.ask(verifier, question, Some(challenge)).await? {
                Some(Message::Probe(_)) => return Ok((seen, true)),
                // The challenge expired on its way.
                Some(Message::Challenge(again)) => challenge = again.challenge,
                Some(Message::Refused(refused)) => return Err(Fault::Refused(refused)),
                Some(_) => return Err(Fault::Nonsense),
                // The verifier is reachable, as its challenge shows, so the probe was dropped.
                None => return Ok((seen, false)),
            }
        }
        Err(Fault::Nonsense)
    }

    /// Sends a question until it is answered, by the verifier or by a probe of a stranger.
    async fn ask(
        &mut self,
        verifier: SocketAddr,
        question: Question,
        challenge: Option<Challenge>,
    ) -> Result<Option<Message>, Fault> {
        let message = ProbeRequest::new(question.transaction, challenge, question.nonce).to_bytes();
        let mut wait = self.patience.first;
        for _ in 0..self.patience.sends {
            self.socket.send_to(&message, verifier).await.map_err(Fault::Socket)?;
            match timeout_at(Instant::now() + wait, self.answer(verifier, question)).await {
                Ok(answer) => return answer.map(Some).map_err(Fault::Socket),
                Err(_) => wait *= 2,
            }
        }
        Ok(None)
    }

    async fn answer(&mut self, verifier: SocketAddr, question: Question) -> io::Result<Message> {
        let mut buffer = [0; MESSAGE_MAX + 1];
        loop {
            let (len, from) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // A router or host reported an error about the sent datagram, which will be sent again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let Ok(message) = Message::parse(buffer.get(..len).unwrap_or_default()) else { continue };
            if message.transaction() != question.transaction {
                continue;
            }
            match message {
                // The probe must come from another address. Another port alone would pass a filter that
                // checks only addresses.
                Message::Probe(probe)
                    if probe.nonce == question.nonce
                        && self.contacted.iter().all(|known| known.ip() != from.ip()) =>
                {
                    return Ok(message);
                }
                Message::Probe(_) => {}
                _ if from == verifier => return Ok(message),
                _ => {}
            }
        }
    }
}

/// The values that all messages about one probe share.
#[derive(Debug, Clone, Copy)]
struct Question {
    transaction: TransactionId,
    nonce: [u8; 8],
}

impl Question {
    fn new() -> Result<Self, Fault> {
        let mut rng = secure_rng().map_err(Fault::Socket)?;
        let mut question = Self { transaction: TransactionId([0; 8]), nonce: [0; 8] };
        rng.fill_bytes(&mut question.transaction.0);
        rng.fill_bytes(&mut question.nonce);
        Ok(question)
    }
}
