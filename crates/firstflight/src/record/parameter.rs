//! One parameter of a server's HTTPS record, and who vouches for it. Asked by itself, because a stub resolver does not show
//! the AD bit.

use super::{Names, absolute, service, usable, value};
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long an answer is waited for, by the number of the attempt. A validating resolver may have to ask several servers.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(3)];
/// What is accepted in a UDP answer without fragments (RFC 9715).
const UDP_ANSWER: u16 = 1232;
/// Name servers of the system that are asked (resolv.conf(5)).
const MOST_SERVERS: usize = 3;

/// The name servers that are asked for parameters.
#[derive(Debug, Clone, Default)]
pub(super) struct Servers {
    addresses: Vec<SocketAddr>,
    trust_ad: bool,
}

/// Who says that an answer was validated (DNSSEC), by the AD bit (RFC 4035 §3.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Validated {
    /// Nobody.
    No,
    /// A resolver to which the path was declared as trusted: [`Names::trust_ad`], or `options trust-ad` of resolv.conf.
    TrustedPath,
    /// Any other resolver. Everybody on the path to it can set the bit. One on a loopback address may only pass answers on,
    /// with the bit, from a resolver that is far away.
    Other,
}

/// A parameter of an HTTPS record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its value.
    pub value: Vec<u8>,
    /// How long it may be kept, seconds.
    pub ttl: u32,
    /// Whether it was validated.
    pub validated: Validated,
}

impl Servers {
    pub(super) fn one(server: SocketAddr) -> Self {
        Self { addresses: vec![server], trust_ad: false }
    }

    pub(super) fn system() -> Self {
        Self::of(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
    }

    /// Those of a resolv.conf.
    fn of(text: &str) -> Self {
        let mut servers = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse().ok());
                    servers.addresses.extend(address.map(|ip: IpAddr| SocketAddr::new(ip, 53)));
                }
                Some("options") => servers.trust_ad |= words.any(|word| word == "trust-ad"),
                _ => {}
            }
        }
        if servers.addresses.is_empty() {
            servers.addresses.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        servers.addresses.truncate(MOST_SERVERS);
        servers
    }

    /// The first of them, if it is on a loopback address.
    fn stub(&self) -> Option<SocketAddr> {
        self.addresses.first().copied().filter(|server| server.ip().to_canonical().is_loopback())
    }

    const fn validated(&self, authentic: bool) -> Validated {
        match authentic {
            false => Validated::No,
            true if self.trust_ad => Validated::TrustedPath,
            true => Validated::Other,
        }
    }

    /// The answer of the first server that has one.
    async fn ask(&self, name: &Name) -> io::Result<Message> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for wait in WAITS {
            for &server in &self.addresses {
                match timeout(wait, exchange(server, name)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => last = error,
                    Err(_) => last = io::ErrorKind::TimedOut.into(),
                }
                if last.kind() == io::ErrorKind::InvalidData {
                    // It says that it has no answer. Asking again would not help.
                    continue;
                }
            }
            if last.kind() == io::ErrorKind::InvalidData {
                break;
            }
        }
        Err(last)
    }
}

impl Names {
    /// Declares these resolvers, and the path to them, as trusted: their AD bit then counts for [`Parameter::validated`]. A
    /// loopback address is no reason: a forwarder there may pass the bit on from anywhere.
    #[must_use]
    pub const fn trust_ad(mut self, trust: bool) -> Self {
        self.servers.trust_ad = trust;
        self
    }

    /// The first resolver of the system's configuration, if it is on a loopback address, as that of systemd-resolved. Another
    /// one is not to be asked directly by who was not told to: the system may ask it over TLS.
    #[must_use]
    pub fn system_stub() -> Option<SocketAddr> {
        Servers::system().stub()
    }

    /// Whether all of these resolvers are on loopback addresses.
    #[must_use]
    pub fn are_local(&self) -> bool {
        self.servers.addresses.iter().all(|server| server.ip().to_canonical().is_loopback())
    }

    /// Queries one parameter, with this SvcParamKey, of the HTTPS record of a name for the server at `port`, without a cache.
    /// `None` if there is no such record, or it has no such parameter.
    ///
    /// # Errors
    /// When no resolver answers, or they report a failure, as after a failed validation.
    pub async fn parameter(&self, name: &str, port: u16, key: u16) -> io::Result<Option<Parameter>> {
        let absolute = absolute(name);
        let owner = Name::from_ascii(service(&absolute, port)).map_err(io::Error::other)?;
        let answer = self.servers.ask(&owner).await?;
        let ttl = answer.answers.iter().map(|record| record.ttl).min().unwrap_or_default();
        let found = usable(&answer.answers, &absolute, port, &[super::KEY, key])
            .into_iter()
            .find_map(|(record, _)| value(record, key));
        let validated = self.servers.validated(answer.metadata.authentic_data);
        Ok(found.map(|value| Parameter { value, ttl, validated }))
    }
}

/// Asks one server, in UDP, and by TCP if the answer does not fit.
async fn exchange(server: SocketAddr, name: &Name) -> io::Result<Message> {
    let mut id = [0; 2];
    crate::random_bytes(&mut id)?;
    let question = Query::query(name.clone(), RecordType::HTTPS);
    let mut query = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    // This client understands the bit (RFC 6840 §5.7).
    query.metadata.authentic_data = true;
    query.add_query(question.clone());
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_ANSWER);
    query.set_edns(edns);
    let bytes = query.to_vec().map_err(io::Error::other)?;
    let answer = by_udp(server, &query, &bytes).await?;
    let answer = if answer.metadata.truncation { by_tcp(server, &query, &bytes).await? } else { answer };
    match answer.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer),
        code => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the resolver says: {code}"))),
    }
}

async fn by_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let count = socket.recv(&mut buffer).await?;
        // Anything else is not the answer, and must not end the wait for it.
        if let Some(answer) = read(buffer.get(..count).unwrap_or_default(), query) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(server: SocketAddr, query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    read(&answer, query).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an answer"))
}

/// The answer to `query`, if these bytes are one.
fn read(bytes: &[u8], query: &Message) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    let fits = answer.metadata.id == query.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.queries == query.queries;
    fits.then_some(answer)
}

#[cfg(test)]
#[path = "parameter_tests.rs"]
mod tests;
