//! `firstflight asap record`: what an operator publishes in the DNS.

use crate::error::Error;
use crate::output;
use firstflight::credential::asap::PublicKey;
use firstflight_wire::asap::{ServiceParam, UdpService, VerifierIds};
use std::fmt::Write;
use std::num::NonZeroU16;

/// Print the parameter of an HTTPS record by which a server says that it takes certificates
///
/// It stands behind the priority and the target of the record, as in
/// `_8080._https.www.example.com. 300 IN HTTPS 1 www.example.com. key65300="…"`; a server at port 80 or 443 has the
/// record at its own name (RFC 9460 section 9.1).
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  firstflight asap record --verifier-key KEY --udp-port 8080")]
pub struct Args {
    /// Public key of a verifier that the server trusts; once more for each
    #[arg(long, value_name = "KEY", required = true)]
    verifier_key: Vec<PublicKey>,
    /// The server takes TCP in UDP on this port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    udp_port: Option<u16>,
    /// The server takes certificates in TCP on IP
    #[arg(long, required_unless_present = "udp_port")]
    ip: bool,
    /// Bytes that the server takes in a SYN
    #[arg(
        long, value_name = "BYTES", default_value_t = 1220,
        value_parser = clap::value_parser!(u16).range(i64::from(ServiceParam::MIN_MSS)..)
    )]
    mss: u16,
    /// All servers of the name share one memory of requests: each is executed once
    #[arg(long)]
    shared_guard: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Error> {
    let ids: Vec<[u8; 4]> = args.verifier_key.iter().map(|key| key.id().0).collect();
    let ids = VerifierIds::new(&ids).ok_or(Error::TooManyVerifiers(VerifierIds::MAX))?;
    let udp = args.udp_port.and_then(NonZeroU16::new).map(|port| UdpService { port, carriage: None });
    let param = ServiceParam::new(args.ip, udp, args.mss, ids, args.shared_guard);
    let mut bytes = [0; ServiceParam::MAX_LEN];
    let len = param.and_then(|param| param.emit(&mut bytes).ok()).unwrap_or_default();
    output::line(&format_args!(
        "key{}=\"{}\"",
        ServiceParam::KEY,
        presentation(bytes.get(..len).unwrap_or_default())
    ));
    Ok(())
}

/// As in zone files: every octet by its number (RFC 9460 §2.1, RFC 1035 §5.1).
fn presentation(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:03}");
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn octets_have_three_digits() {
        assert_eq!(super::presentation(&[0, 9, 65, 255]), "\\000\\009\\065\\255");
    }
}
