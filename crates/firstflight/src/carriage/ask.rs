//! The names of a first flight, and what the resolver says to them.

use super::exchange::{Answer, Exchange};
use super::{DnsPath, SILENT};
use firstflight_dns::FragmentQuery;
use firstflight_wire::Instant as Moment;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;

/// How long answers are awaited: resolvers ask silent name servers again for some seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read: more than a fragment's without EDNS can have.
const ANSWER: usize = 1500;

/// Questions that wait for answers.
pub(super) enum Asked {
    Socket(UdpSocket),
    Exchange(FuturesUnordered<Answer>),
}

impl Asked {
    /// Waits for the next answer.
    async fn answer(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Socket(socket) => {
                let mut buffer = vec![0; ANSWER];
                let len = socket.recv(&mut buffer).await?;
                buffer.truncate(len);
                Ok(buffer)
            }
            Self::Exchange(answers) => match answers.next().await {
                Some(answer) => answer,
                None => pending().await,
            },
        }
    }
}

/// Asks for all of them at once: through `exchange`, or from a port of their own.
pub(super) async fn send(
    resolver: SocketAddr,
    exchange: Option<&Exchange>,
    queries: &[FragmentQuery],
) -> io::Result<Asked> {
    if let Some(exchange) = exchange {
        return Ok(Asked::Exchange(queries.iter().map(|query| exchange.ask(query.as_bytes())).collect()));
    }
    let any: IpAddr =
        if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    for query in queries {
        socket.send(query.as_bytes()).await?;
    }
    Ok(Asked::Socket(socket))
}

/// Hears what becomes of them: somebody who does not like them is not asked again today. Gives since when so many were
/// answered that the front has the whole, if it has.
pub(super) async fn listen(
    path: DnsPath,
    mut answers: Asked,
    mut queries: Vec<FragmentQuery>,
) -> Option<Moment> {
    let asked = queries.len();
    let mut enough = None;
    let time = path.0.time.clone();
    let until = time.now() + PATIENCE;
    while !queries.is_empty() {
        let message = match time.timeout(until - time.now(), answers.answer()).await {
            Some(Ok(message)) => message,
            // Nobody listens there, say: then the ordinary lookup has failed, too.
            Some(Err(_)) => return None,
            None => break,
        };
        let answer =
            queries.iter().enumerate().find_map(|(at, query)| Some((at, query.read_answer(&message)?)));
        let Some((at, echo)) = answer else { continue };
        queries.swap_remove(at);
        if echo.stops() {
            stop(&path, &format_args!("{echo:?}"));
            return None;
        }
        if queries.len() <= usize::from(path.0.parity) {
            enough = enough.or_else(|| Some(time.now()));
        }
    }
    let mut state = path.0.lock();
    state.silent = if queries.len() == asked { state.silent.saturating_add(1) } else { 0 };
    let silent = state.silent >= SILENT;
    drop(state);
    if silent {
        stop(&path, &"no answers");
    }
    enough
}

fn stop(path: &DnsPath, why: &dyn std::fmt::Display) {
    let (network, resolver) = (path.0.network, path.0.resolver);
    tracing::info!(%resolver, "no first flights by lookups with this resolver for a day: {why}");
    if let Ok(now) = path.0.time.certificate_clock() {
        path.0.lock().manners.handle_refusal(network, resolver.ip(), now);
    }
}
