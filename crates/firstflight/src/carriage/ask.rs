//! The names of a first flight, and what the resolver says to them.

use super::{DnsPath, SILENT};
use firstflight_dns::FragmentQuery;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// How long answers are awaited: resolvers ask silent name servers again for some seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read: more than a fragment's without EDNS can have.
const ANSWER: usize = 1500;

/// Asks for all of them at once, from a port of their own.
pub(super) async fn send(resolver: SocketAddr, queries: &[FragmentQuery]) -> io::Result<UdpSocket> {
    let any: IpAddr =
        if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    for query in queries {
        socket.send(query.as_bytes()).await?;
    }
    Ok(socket)
}

/// Hears what becomes of them: somebody who does not like them is not asked again today.
pub(super) async fn listen(path: DnsPath, socket: UdpSocket, mut queries: Vec<FragmentQuery>) {
    let asked = queries.len();
    let until = Instant::now() + PATIENCE;
    let mut buffer = [0; ANSWER];
    while !queries.is_empty() {
        let len = match timeout_at(until, socket.recv(&mut buffer)).await {
            Ok(Ok(len)) => len,
            // Nobody listens there, say: then the ordinary lookup has failed, too.
            Ok(Err(_)) => return,
            Err(_) => break,
        };
        let message = buffer.get(..len).unwrap_or_default();
        let answer =
            queries.iter().enumerate().find_map(|(at, query)| Some((at, query.read_answer(message)?)));
        let Some((at, echo)) = answer else { continue };
        queries.swap_remove(at);
        if echo.stops() {
            return stop(&path, &format_args!("{echo:?}"));
        }
    }
    let mut state = path.0.lock();
    state.silent = if queries.len() == asked { state.silent.saturating_add(1) } else { 0 };
    let silent = state.silent >= SILENT;
    drop(state);
    if silent {
        stop(&path, &"no answers");
    }
}

fn stop(path: &DnsPath, why: &dyn std::fmt::Display) {
    let (network, resolver) = (path.0.network, path.0.resolver);
    tracing::info!(%resolver, "no first flights by lookups with this resolver for a day: {why}");
    if let Ok(now) = crate::certificate_clock() {
        path.0.lock().manners.handle_refusal(network, resolver.ip(), now);
    }
}
