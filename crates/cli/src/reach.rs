//! `firstflight reach`: whether servers that this host never contacted can answer it.

use crate::error::Error;
use crate::output;
use crate::verifier::VerifierError;
use firstflight_verifier::{Fault, Patience, Reach, is_pair, reach};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use tokio::net::UdpSocket;

/// Find out whether servers that this host never contacted can answer it
///
/// The answer to a first flight inside a DNS lookup comes from such a server. Most address translators and firewalls
/// drop it. Two verifiers say how they see one UDP socket of this host, and the first one has a datagram sent from
/// an address that the socket never sent to.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight reach --verifier 192.0.2.1:4433 --verifier 192.0.2.2:4433
  firstflight reach --verifier 192.0.2.1:4433 --verifier 192.0.2.2:4433 --port 5000 --json

The first verifier has to run with --probe-from.")]
pub struct Args {
    /// Two verifiers, at different addresses of one family
    #[arg(long, value_name = "ADDR:PORT", required = true)]
    verifier: Vec<SocketAddr>,
    /// The UDP port of this host to try; 0 takes any
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let report = examine(&args).await.map_err(Error::from)?;
    if args.json {
        output::json(&report);
    } else {
        output::line(&report);
    }
    Ok(ExitCode::SUCCESS)
}

async fn examine(args: &Args) -> Result<Report, VerifierError> {
    let &[first, second] = args.verifier.as_slice() else { return Err(VerifierError::ReachPair) };
    if !is_pair([first, second]) {
        return Err(VerifierError::ReachPair);
    }
    let any: IpAddr =
        if first.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let failed = |error| VerifierError::Reach(first, Fault::Socket(error));
    let socket = UdpSocket::bind((any, args.port)).await.map_err(failed)?;
    let local_port = socket.local_addr().map_err(failed)?.port();
    let found = reach(&socket, [first, second], &Patience::default()).await;
    let found = found.map_err(|(verifier, fault)| VerifierError::Reach(verifier, fault))?;
    Ok(Report::new(local_port, found))
}

/// The result.
#[derive(Serialize)]
struct Report {
    local_port: u16,
    seen: SocketAddr,
    seen_by_second: SocketAddr,
    mapping: &'static str,
    strangers: bool,
    open: bool,
}

impl Report {
    fn new(local_port: u16, found: Reach) -> Self {
        let Reach { seen, seen_by_second, strangers } = found;
        let mapping = found.mapping().as_str();
        Self { local_port, seen, seen_by_second, mapping, strangers, open: found.is_open() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_port, seen, seen_by_second, .. } = self;
        write!(f, "UDP port {local_port} is seen as {seen}")?;
        if seen != seen_by_second {
            write!(f, ", and as {seen_by_second} by the second verifier")?;
        }
        let arrives = if self.strangers { "arrives" } else { "does not arrive" };
        writeln!(f, "; a datagram from a stranger {arrives}")?;
        f.write_str(if self.open {
            "servers that were never contacted can answer here"
        } else {
            "servers that were never contacted cannot answer here"
        })
    }
}
