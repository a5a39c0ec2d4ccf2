//! The names of a first flight, and the resolver's answers to them.

use super::DnsPath;
use super::exchange::{AnswerFuture, Exchange};
use firstflight_dns::{FlightId, FragmentQuery, Meaning};
use firstflight_wire::Instant as Moment;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;

/// How long to wait for answers. Resolvers repeat questions to silent name servers for some seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read, bytes. It is more than the answer to a fragment can have without EDNS.
const ANSWER: usize = 1500;

/// Questions whose answers have not arrived yet.
pub(super) enum PendingAnswers {
    Socket(UdpSocket),
    Exchange(FuturesUnordered<AnswerFuture>),
}

impl PendingAnswers {
    /// Waits for the next answer; `None` if no more can come.
    async fn answer(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Socket(socket) => {
                let mut buffer = vec![0; ANSWER];
                // The error concerns all questions, for example because the port is closed.
                let len = socket.recv(&mut buffer).await.ok()?;
                buffer.truncate(len);
                Some(buffer)
            }
            Self::Exchange(answers) => loop {
                // The error concerns this question only.
                if let Ok(answer) = answers.next().await? {
                    return Some(answer);
                }
            },
        }
    }
}

/// Asks all questions at once: through `exchange`, or from a new UDP port.
pub(super) async fn send(
    resolver: SocketAddr,
    exchange: Option<&Exchange>,
    queries: &[FragmentQuery],
) -> io::Result<PendingAnswers> {
    if let Some(exchange) = exchange {
        return Ok(PendingAnswers::Exchange(
            queries.iter().map(|query| exchange.ask(query.as_bytes())).collect(),
        ));
    }
    let any: IpAddr =
        if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    for (at, query) in queries.iter().enumerate() {
        match socket.send(query.as_bytes()).await {
            Ok(_) => {}
            Err(error) if at == 0 => return Err(error),
            // Those that have left may be all that the front needs.
            Err(_) => break,
        }
    }
    Ok(PendingAnswers::Socket(socket))
}

/// Waits for the answers to the names of `flight`. If the resolver refuses, changes or loses the names, it is not
/// asked again for a while. Returns when enough names were answered for the front to have the whole first flight, or
/// `None` if that did not happen.
pub(super) async fn listen(
    path: DnsPath,
    mut answers: PendingAnswers,
    mut queries: Vec<FragmentQuery>,
    flight: FlightId,
) -> Option<Moment> {
    let inner = &path.0;
    let (mut enough, mut lost) = (None, 0);
    let until = inner.time.now() + PATIENCE;
    while !queries.is_empty() {
        let left = until - inner.time.now();
        let Some(Some(message)) = inner.time.timeout(left, answers.answer()).await else { break };
        let answer =
            queries.iter().enumerate().find_map(|(at, query)| Some((at, query.read_answer(&message)?)));
        let Some((at, echo)) = answer else { continue };
        queries.swap_remove(at);
        let stopped = inner.manners().handle_answer(flight, echo, inner.now());
        if let Some(pause) = stopped {
            tell(&path, pause, &format_args!("{echo:?}"));
            return None;
        }
        lost += usize::from(echo.meaning() == Meaning::Lost);
        if queries.len() + lost <= usize::from(inner.form.parity) {
            enough = enough.or_else(|| Some(inner.time.now()));
        }
    }
    let stopped = inner.manners().handle_end(flight, inner.now());
    if let Some(pause) = stopped {
        tell(&path, pause, &"names are not answered");
    }
    enough
}

fn tell(path: &DnsPath, pause: Duration, why: &dyn std::fmt::Display) {
    let resolver = path.0.resolver;
    tracing::info!(%resolver, ?pause, "no first flights of this zone by lookups with this resolver: {why}");
}
