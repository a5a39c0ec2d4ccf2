//! `firstflight certificate`: obtains a certificate of a provenance verifier for this host.

use crate::error::{Error, Renamed};
use crate::network_id::NetworkChoice;
use crate::output;
use crate::utc::Time;
use crate::verifier::{VerifierError, VerifierPlace, seconds};
use clap::Subcommand;
use firstflight_credential::asap::{ClientCertificate, PrivateKey, PublicKey};
use firstflight_verifier::{
    Fault, Group, IssuerAddress, KeptCertificate, ObtainError, Patience, VantageAddress, Wanted, obtain,
    secure_rng,
};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Get a certificate of a provenance verifier for this host's address (ASAP)
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight certificate get --verifier 192.0.2.1:4433 --verifier-key KEY")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Get(Get),
}

/// Get a certificate and print its content, or print which verifier did not give it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight certificate get --verifier 192.0.2.1:4433 --verifier-key KEY
  firstflight certificate get --verifier 192.0.2.1:4433 --verifier-key KEY --group group.txt -o my.certificate

The exit code is 1 if the verifier or one of its vantage points did not answer or refused.")]
struct Get {
    /// The verifier's address and port, or its name (the port is 4433 by default); IPv4 is tried first
    #[arg(long, value_name = "ADDR:PORT|HOST[:PORT]")]
    verifier: VerifierPlace,
    /// The verifier's public key: 64 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    verifier_key: PublicKey,
    /// File of the verifier's vantage points: number, name, addresses
    #[arg(long, value_name = "FILE")]
    group: Option<PathBuf>,
    /// Requested duration; the verifier may give less
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    duration: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the certificate and its key to this file, which only its owner can read, for get --certificate. If the file has a
    /// certificate of this verifier that is still good, it is renewed, and stays that of its site
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What -o was
    #[arg(long, value_name = "FILE", hide = true)]
    out: Option<PathBuf>,
    /// With -o: the local network, for which alone the certificate is used: 32 hexadecimal digits of your choice, or auto
    /// (from the default route's gateway)
    #[arg(long, value_name = "HEX|auto", default_value = "auto", requires = "output")]
    network_id: NetworkChoice,
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let Command::Get(args) = args.command;
    get(&args).await.map_err(Error::from)?;
    Ok(ExitCode::SUCCESS)
}

impl Get {
    /// Asks the verifier, at each of its addresses until one gives an answer. Returns which it was.
    async fn obtain(
        &self,
        group: &[VantageAddress],
        wanted: &Wanted<'_>,
    ) -> Result<(ClientCertificate, SocketAddr), VerifierError> {
        let unknown = |error| VerifierError::Unknown(self.verifier.to_string(), error);
        let mut addresses = self.verifier.addresses().await.map_err(unknown)?.into_iter().peekable();
        while let Some(at) = addresses.next() {
            let issuer = IssuerAddress { group: group.to_vec(), ..IssuerAddress::new(at, self.verifier_key) };
            match obtain(&issuer, wanted.clone(), &Patience::default()).await {
                Ok(certificate) => return Ok((certificate, at)),
                // The others may be other machines, and this one is silent.
                Err(ObtainError::Issuer { fault: Fault::Silent(_) | Fault::Socket(_), .. })
                    if addresses.peek().is_some() => {}
                Err(error) => return Err(VerifierError::Obtain(error)),
            }
        }
        Err(unknown(std::io::ErrorKind::NotFound.into()))
    }
}

async fn get(args: &Get) -> Result<(), VerifierError> {
    if args.out.is_some() {
        return Err(Renamed("--out", "-o").into());
    }
    let group = match &args.group {
        Some(path) => {
            Group::read(path).map_err(|error| VerifierError::Group(path.clone(), error))?.addresses()
        }
        None => Vec::new(),
    };
    let key = PrivateKey::generate(&mut secure_rng().map_err(VerifierError::Random)?);
    let network = args.network_id.network(args.output.is_some()).await;
    // One of another verifier or network, or one that is over, is replaced.
    let kept = args.output.as_ref().and_then(|path| KeptCertificate::open(path).ok());
    let kept = kept.filter(|kept| *kept.verifier() == args.verifier_key && kept.network() == network);
    let old = kept.as_ref().map(|kept| Arc::clone(kept.certificate()));
    let wanted = Wanted { key, wished: args.duration, old: old.as_deref() };
    let (certificate, at) = args.obtain(&group, &wanted).await?;
    match (kept, &args.output) {
        (Some(mut kept), _) => kept.renew(certificate.clone()).map_err(VerifierError::Certificate)?,
        (None, Some(path)) => {
            // The file has no vantage points.
            let asked = Some(at).filter(|_| group.is_empty());
            let made = KeptCertificate::create(path, certificate.clone(), network, asked);
            made.map_err(VerifierError::Certificate)?;
        }
        (None, None) => {}
    }
    let report = Report::new(&certificate);
    if args.json {
        output::json(&report);
    } else {
        output::line(&report);
    }
    Ok(())
}

/// The content of a certificate, without its secret.
#[derive(Serialize)]
struct Report {
    address: IpAddr,
    verifier: String,
    client_key: String,
    valid_from: String,
    valid_until: String,
    duration_s: u32,
    vantage_points: u8,
    refreshed: bool,
}

impl Report {
    fn new(certificate: &ClientCertificate) -> Self {
        let body = certificate.body();
        let time = |seconds: u64| Time(seconds * 1000).rfc3339();
        Self {
            address: certificate.address(),
            verifier: body.verifier.to_string(),
            client_key: certificate.key().public().to_string(),
            valid_from: time(body.valid_from.into()),
            valid_until: time(body.ends()),
            duration_s: body.duration(),
            vantage_points: body.flags.vantage(),
            refreshed: body.flags.is_refreshed(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = if self.vantage_points == 1 { "vantage point" } else { "vantage points" };
        writeln!(f, "verifier {} certifies that {} has the key", self.verifier, self.address)?;
        writeln!(f, "  {}", self.client_key)?;
        let Self { valid_from, valid_until, duration_s, vantage_points, .. } = self;
        write!(f, "from {valid_from} until {valid_until} ({duration_s} s), seen by {vantage_points} {points}")
    }
}
