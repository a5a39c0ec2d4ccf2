//! What the network does, and what time it is: what verifiers say, and what the visits to servers showed.

use super::catalogue::Finding;
use super::report::Line;
use firstflight_wire::asap::message::{MESSAGE_MAX, Message, ProbeRequest, TransactionId};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long to wait for each of the datagrams to a verifier.
const WAITS: [Duration; 3] = [Duration::from_millis(500), Duration::from_millis(700), Duration::from_secs(1)];
/// How long a connect in TCP may take.
const CONNECT: Duration = Duration::from_secs(3);
/// The largest difference of clocks that counts as none: times are whole seconds, and travel.
const SAME: u64 = 2;
/// The largest difference that servers forgive (docs/spec/asap.md, the window's F), seconds.
const FORGIVEN: u64 = 10;

/// What one verifier showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    pub at: SocketAddr,
    pub udp: Udp,
    /// Whether it accepts TCP; `None` if it was not tried.
    pub tcp: Option<bool>,
}

/// What came back in UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Udp {
    /// A challenge: the address that the verifier sees, the local one, and by how many seconds our clock is ahead.
    Challenge { seen: IpAddr, local: IpAddr, ahead: i64 },
    /// Another answer.
    Other,
    /// The port is closed.
    Closed,
    /// Nothing.
    Silent,
}

impl Verifier {
    /// Asks the verifier at this address.
    pub(crate) async fn ask(at: SocketAddr) -> Self {
        let udp = udp(at).await.unwrap_or(Udp::Silent);
        let tcp = match udp {
            Udp::Silent => Some(matches!(timeout(CONNECT, TcpStream::connect(at)).await, Ok(Ok(_)))),
            _ => None,
        };
        Self { at, udp, tcp }
    }
}

/// By how many seconds `ours` is ahead of `theirs`, which is a whole second.
pub(crate) fn ahead(ours: SystemTime, theirs_secs: u64) -> i64 {
    unix(ours).cast_signed().saturating_sub(theirs_secs.cast_signed())
}

/// Unix time, seconds; 1970 for an earlier time.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

async fn udp(at: SocketAddr) -> io::Result<Udp> {
    let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(at).await?;
    let local = socket.local_addr()?.ip();
    let (mut number, mut nonce) = ([0; 8], [0; 8]);
    getrandom::fill(&mut number).and_then(|()| getrandom::fill(&mut nonce)).map_err(io::Error::other)?;
    let question = ProbeRequest::new(TransactionId(number), None, nonce).to_bytes();
    for wait in WAITS {
        let mut buffer = [0; MESSAGE_MAX + 1];
        let exchange = async {
            socket.send(&question).await?;
            loop {
                let len = socket.recv(&mut buffer).await?;
                match Message::parse(buffer.get(..len).unwrap_or_default()) {
                    Ok(message) if message.transaction() == TransactionId(number) => {
                        return io::Result::Ok(message);
                    }
                    _ => {}
                }
            }
        };
        match timeout(wait, exchange).await {
            Ok(Ok(Message::Challenge(found))) => {
                let ahead = ahead(SystemTime::now(), found.time.into());
                return Ok(Udp::Challenge { seen: found.seen.ip(), local, ahead });
            }
            Ok(Ok(_)) => return Ok(Udp::Other),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(Udp::Closed),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Udp::Silent)
}

/// What the visits to a server showed of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// A SYN with data arrived.
    Passes,
    /// SYNs with data were dropped, and others were not.
    Drops,
    /// Neither.
    NotSeen,
}

/// The verdicts about the network.
pub(crate) fn judge(verifiers: &[Verifier], servers: &[Passage]) -> Vec<Line> {
    vec![udp_line(verifiers), translator(verifiers), syn_data(servers)]
}

fn udp_line(verifiers: &[Verifier]) -> Line {
    let with = |test: fn(&Verifier) -> bool| verifiers.iter().find(|one| test(one));
    if verifiers.is_empty() {
        Line::new(Finding::UdpNotAsked, "No verifier was asked, so nothing is known of UDP.")
    } else if let Some(one) = with(|one| matches!(one.udp, Udp::Challenge { .. } | Udp::Other)) {
        Line::new(Finding::UdpAnswers, format_args!("The verifier {} answers in UDP.", one.at))
    } else if let Some(one) = with(|one| one.udp == Udp::Silent && one.tcp == Some(true)) {
        let detail = format_args!("The verifier {} answers in TCP and not in UDP.", one.at);
        Line::new(Finding::UdpBlocked, detail)
    } else if let Some(one) = with(|one| one.udp == Udp::Closed) {
        Line::new(Finding::UdpClosed, format_args!("The UDP port {} is closed.", one.at))
    } else {
        Line::new(Finding::UdpSilent, "No verifier answers, in UDP or in TCP.")
    }
}

fn translator(verifiers: &[Verifier]) -> Line {
    let seen: Vec<_> = verifiers
        .iter()
        .filter_map(|one| match one.udp {
            Udp::Challenge { seen, local, .. } => Some((seen.to_canonical(), local.to_canonical())),
            _ => None,
        })
        .collect();
    // Addresses of different families are no sign of several.
    let other = |(one, _): &(IpAddr, IpAddr)| {
        seen.iter().find(|(two, _)| two.is_ipv4() == one.is_ipv4() && two != one)
    };
    let Some((first, _)) = seen.first() else {
        return Line::new(Finding::TranslatorNotAsked, "No verifier said which address it sees.");
    };
    if let Some((second, _)) = seen.iter().find_map(other) {
        let detail = format_args!("Verifiers see this machine as {first} and as {second}.");
        Line::new(Finding::TranslatorSeveral, detail)
    } else if let Some((seen, local)) = seen.iter().find(|(seen, local)| seen != local) {
        let detail = format_args!(
            "A translator is on the way: {local} is seen as {seen}. First flights work while it stays."
        );
        Line::new(Finding::TranslatorOneAddress, detail)
    } else {
        Line::new(Finding::TranslatorNone, format_args!("Verifiers see this machine's own address, {first}."))
    }
}

fn syn_data(servers: &[Passage]) -> Line {
    let count = |passage| servers.iter().filter(|one| **one == passage).count();
    match (count(Passage::Passes), count(Passage::Drops)) {
        (passes @ 1.., _) => Line::new(
            Finding::NetworkPasses,
            format_args!("SYNs with data are not dropped on the way to {passes} of the servers."),
        ),
        (0, drops @ 2..) => Line::new(
            Finding::NetworkDrops,
            format_args!("SYNs with data are dropped on the way to all {drops} servers."),
        ),
        (0, _) => {
            Line::new(Finding::NetworkNotSeen, "No server showed whether this network passes SYNs with data.")
        }
    }
}

/// The verdict about this machine's clock. `servers` are the differences to servers of HTTP.
pub(crate) fn clock(verifiers: &[Verifier], servers: &[i64]) -> Line {
    let of_verifiers = verifiers.iter().filter_map(|one| match one.udp {
        Udp::Challenge { ahead, .. } => Some((ahead, one.at)),
        _ => None,
    });
    // If one of several verifiers agrees, the clocks of the others are wrong.
    if let Some((ahead, at)) = of_verifiers.min_by_key(|(ahead, _)| ahead.unsigned_abs()) {
        let detail = format!("The clock {} that of the verifier {at}.", difference(ahead));
        return Line::new(
            match ahead.unsigned_abs() {
                by if by <= SAME => Finding::ClockAgrees,
                by if by <= FORGIVEN => Finding::ClockDiffers,
                _ => Finding::ClockWrong,
            },
            detail,
        );
    }
    let agrees = servers.iter().any(|ahead| ahead.unsigned_abs() <= SAME);
    if agrees {
        Line::new(Finding::ClockAgrees, "The clock agrees with a server's.")
    } else {
        Line::new(Finding::ClockNotCompared, "The clock was compared with no clock that must be right.")
    }
}

/// The verdict about the clock of a server of HTTP.
pub(crate) fn server_clock(ahead: i64) -> Line {
    let detail = format!("This machine's clock {} the server's.", difference(ahead));
    let agrees = ahead.unsigned_abs() <= SAME;
    Line::new(if agrees { Finding::ServerClockAgrees } else { Finding::ServerClockDiffers }, detail)
}

fn difference(ahead: i64) -> String {
    let by = humantime::format_duration(Duration::from_secs(ahead.unsigned_abs()));
    match ahead {
        _ if ahead.unsigned_abs() <= SAME => "agrees with".to_owned(),
        1.. => format!("is {by} ahead of"),
        _ => format!("is {by} behind"),
    }
}

#[cfg(test)]
mod tests;
