//! Round trips of TLS and of sealed first flights in network namespaces: `tls` runs `tests/tls/run.py` of the source tree,
//! and `tls-end` is what it runs at the ends of the wire.

mod client;
pub mod files;
mod foreign;
mod plot;
mod quic;
mod server;
mod visit;

use crate::networks::script;
use clap::{Args, Subcommand};
use firstflight::Authority;
use firstflight::credential::asap::Identity;
use std::error::Error;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The server's name, and the public name of its seal keys.
pub const NAME: &str = "www.example.com";
/// Serves as it should.
const PORT: u16 = 443;
/// Shows a certificate of an authority that clients do not trust.
const WRONG_CERTIFICATE: u16 = 444;
/// Takes neither the cookies nor the certificates of clients.
const REFUSES: u16 = 445;
/// Takes certificates of the verifier as of one of another operator: before the client's ACK it sends three times the bytes
/// received (asap.md 7.8).
const FOREIGN: u16 = 446;
const PORTS: [u16; 4] = [PORT, WRONG_CERTIFICATE, REFUSES, FOREIGN];
/// QUIC's UDP port.
const QUIC: u16 = 4433;
const VERIFIER: u16 = 4434;

pub type Failure = Box<dyn Error + Send + Sync>;

/// The table of round trips of TLS and sealed first flights; needs root. All arguments are those of tests/tls/run.py
/// (`-- --help` shows them). It runs the commands in the directory of this one.
#[derive(Debug, Args)]
pub struct Tls {
    /// For tests/tls/run.py
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// An end of the wire of `tls`.
#[derive(Debug, Subcommand)]
pub enum WireEnd {
    /// Write the certificates of a new authority into a directory: a chain for the server, and one that is not trusted.
    Files {
        directory: PathBuf,
        /// The chain of the server, bytes at least.
        #[arg(long, default_value_t = 2700)]
        chain: usize,
    },
    /// Serve by the kernel's TCP and in UDP, by an engine on a TUN device, and QUIC; and certify addresses.
    Serve(server::Serve),
    /// Visit the servers as JSON objects on standard input say, one a line. One object on standard output follows each.
    Visit(client::TlsEnds),
    /// Visit a server of another implementation over the kernel's TCP.
    Foreign(foreign::Foreign),
    /// Draw the results (JSON of `tls --json`) as SVG.
    Plot { results: PathBuf, svg: PathBuf },
}

/// Replaces this process by the script.
/// Errors: when the source tree that this command was built from is missing, or Python is.
pub fn run(options: &Tls) -> Result<String, Box<dyn Error>> {
    script("tests/tls/run.py", &options.arguments)
}

/// Runs an end.
/// Errors: when it cannot begin, or a visit cannot be made.
pub fn end(end: &WireEnd) -> Result<String, Failure> {
    match end {
        WireEnd::Files { directory, chain } => files::write(directory, *chain),
        WireEnd::Serve(options) => server::run(options),
        WireEnd::Visit(options) => client::run(options),
        WireEnd::Foreign(options) => foreign::run(options),
        WireEnd::Plot { results, svg } => {
            let results = serde_json::from_str(&std::fs::read_to_string(results)?)?;
            std::fs::write(svg, plot::svg(&results)?)?;
            Ok(format!("wrote {}", svg.display()))
        }
    }
}

fn authority(port: u16) -> Result<Authority, Failure> {
    Ok(Authority::new(NAME, port)?)
}

fn identity(port: u16) -> Identity {
    Identity::name(NAME, port)
}

const fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}
