//! `firstflight asap inspect`.

use super::check::{Check, CheckVerdict, GivenFacts};
use crate::output;
use crate::utc::Time;
use data_encoding::HEXLOWER_PERMISSIVE;
use firstflight::credential::asap::{Identity, PublicKey};
use firstflight_explain::asap::{NotAnObject, Object};
use firstflight_files::to_hex;
use firstflight_verifier::{KeptCertificate, KeptError};
use firstflight_wire::asap::Encapsulation;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Longest object, bytes: a block's length has 16 bits.
const LONGEST: usize = 0xffff;
/// Longest file: the longest object in hexadecimal, with separators.
const LONGEST_FILE: usize = LONGEST * 3 + 64;

/// Decode an ASAP object and check its signatures
///
/// Recognises TCP options, credential blocks, certificate bodies, verifier messages and service parameters by their
/// first bytes, and files of certificate get -o, whose private key it does not show. The checks depend on what is given: the verifier's signature of a block needs --verifier-key and
/// --address, the client's also --identity, --encapsulation and --data.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight asap inspect fd08fa57110000c4
  firstflight asap inspect certificate.bin --verifier-key KEY --address 192.0.2.1
  firstflight asap inspect my.certificate
  firstflight asap inspect block.hex --verifier-key KEY --address 192.0.2.1 \\
    --identity www.example.com:443 --encapsulation ip --data request.txt
  xxd -p message.bin | firstflight asap inspect - --json

Exit codes: 0 nothing is wrong, 1 a check failed, 2 it is no such object.")]
pub struct Args {
    /// A file (bytes or hexadecimal), hexadecimal digits, or - for standard input
    #[arg(value_name = "FILE|HEX|-")]
    object: String,
    /// The verifier's public key, 64 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    verifier_key: Option<PublicKey>,
    /// The client's address: the source of the packet
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// The server's name and port as the client uses them
    #[arg(long, value_name = "NAME:PORT", value_parser = identity)]
    identity: Option<Identity>,
    /// How the first flight travels: TCP on IP, or TCP in UDP
    #[arg(long, value_name = "ip|udp", value_parser = encapsulation)]
    encapsulation: Option<Encapsulation>,
    /// The application data after the block; use /dev/null for none
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Also check the times, at this time: UTC as 2027-01-15T00:00:00Z, or Unix seconds
    #[arg(long, value_name = "TIME")]
    at: Option<Time>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn identity(text: &str) -> Result<Identity, &'static str> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Identity::address(address.ip(), address.port()));
    }
    let (name, port) = text.rsplit_once(':').ok_or("write the port, too, as in www.example.com:443")?;
    let port = port.parse().map_err(|_| "the port is a number up to 65535")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(legal) {
        return Err(
            "a name has letters, digits and hyphens (others as xn--…); write an IPv6 address in brackets",
        );
    }
    Ok(Identity::name(name, port))
}

fn encapsulation(text: &str) -> Result<Encapsulation, &'static str> {
    match text {
        "ip" => Ok(Encapsulation::Ip),
        "udp" => Ok(Encapsulation::Udp),
        _ => Err("ip or udp"),
    }
}

/// Why an object cannot be inspected. The user who gave it is at fault.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be read.
    #[error("cannot read {0}: {1}; name a file that you can read")]
    Read(PathBuf, io::Error),
    /// The text is neither a file nor hexadecimal.
    #[error("{} is neither a file nor hexadecimal digits: give one of them, or -", shortened(.0))]
    NeitherFileNorHex(String),
    /// There are no bytes.
    #[error("there are no bytes to inspect: give an object of ASAP")]
    Empty,
    /// There are more bytes than any object has.
    #[error("no object of ASAP is longer than {LONGEST} bytes: give one alone")]
    TooLong,
    /// A file with a certificate and its key that is of no use here.
    #[error("{0}")]
    Kept(KeptError),
    /// A block, and data behind it.
    #[error("{}, with --data", NotAnObject::DataBehindBlock)]
    DataBehindBlock,
    /// The bytes are not an object.
    #[error("{0}")]
    NotAnObject(NotAnObject),
}

/// The beginning of a text, in quotation marks.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{more}")
}

/// A file of `certificate get -o`, if that is what `object` names.
fn kept(object: &str) -> Result<Option<KeptCertificate>, InspectError> {
    let path = Path::new(object);
    // Only such files begin so.
    let mut first = [0];
    let begins = File::open(path).is_ok_and(|mut file| file.read(&mut first).is_ok_and(|read| read == 1));
    if !begins || first != *b"{" {
        return Ok(None);
    }
    KeptCertificate::open(path).map(Some).map_err(InspectError::Kept)
}

fn kept_words(kept: &KeptCertificate) -> String {
    let network = match kept.network().is_known() {
        true => to_hex(&kept.network().0).to_string(),
        false => "unknown, so that it is not used".to_owned(),
    };
    let site = kept.site().map_or_else(|| "none yet".to_owned(), ToString::to_string);
    let (address, left) = (kept.certificate().address(), kept.remaining().as_secs());
    format!(
        "a certificate and its private key, which is not shown, by the verifier\n  {}\nfor {address}, for {left} s more; site: {site}; network: {network}",
        kept.verifier()
    )
}

fn kept_record(kept: &KeptCertificate) -> Value {
    let network = kept.network().is_known().then(|| to_hex(&kept.network().0).to_string());
    json!({
        "verifier_key": kept.verifier().to_string(),
        "address": kept.certificate().address(),
        "site": kept.site().map(ToString::to_string),
        "network": network,
        "remaining_s": kept.remaining().as_secs(),
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, InspectError> {
    let kept = kept(&args.object)?;
    let bytes = match &kept {
        Some(kept) => kept.certificate().body().to_bytes().to_vec(),
        None => object_bytes(&args.object)?,
    };
    let certified = kept.as_ref().map(|kept| kept.certificate());
    let object = Object::read(&bytes).map_err(|error| match error {
        NotAnObject::DataBehindBlock => InspectError::DataBehindBlock,
        other => InspectError::NotAnObject(other),
    })?;
    let data = args.data.as_ref().map(|path| read(path)).transpose()?;
    let known = GivenFacts {
        verifier: args.verifier_key.or(certified.map(|certified| *certified.verifier())),
        address: args.address.or(certified.map(|certified| certified.address())),
        identity: args.identity.clone(),
        encapsulation: args.encapsulation,
        data,
        at: args.at,
    };
    let checks = known.check(&object, bytes.len());
    if args.json {
        let checks: Vec<_> = checks.iter().map(Check::record).collect();
        let mut record =
            json!({ "object": object.kind(), "fields": object.record(bytes.len()), "checks": checks });
        if let (Some(kept), Some(record)) = (&kept, record.as_object_mut()) {
            record.insert("kept".to_owned(), kept_record(kept));
        }
        output::json(&record);
    } else {
        if let Some(kept) = &kept {
            output::line(&kept_words(kept));
        }
        output::line(&object.words(bytes.len()));
        checks.iter().for_each(|check| output::line(check));
    }
    let wrong = checks.iter().any(|check| matches!(check.verdict, CheckVerdict::Wrong(_)));
    Ok(ExitCode::from(u8::from(wrong)))
}

fn object_bytes(given: &str) -> Result<Vec<u8>, InspectError> {
    let content = if given == "-" {
        read_from(io::stdin().lock()).map_err(|error| match error {
            Some(error) => InspectError::Read("standard input".into(), error),
            None => InspectError::TooLong,
        })?
    } else if Path::new(given).exists() {
        read(Path::new(given))?
    } else {
        return hex(given.as_bytes())
            .filter(|bytes| bytes.len() <= LONGEST)
            .ok_or_else(|| InspectError::NeitherFileNorHex(given.to_owned()));
    };
    // A file may hold hexadecimal digits: no object begins with such a digit as its first byte.
    let bytes = hex(&content).unwrap_or(content);
    match bytes.len() {
        0 => Err(InspectError::Empty),
        1..=LONGEST => Ok(bytes),
        _ => Err(InspectError::TooLong),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, InspectError> {
    let failed = |error| InspectError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    read_from(file).map_err(|error| error.map_or(InspectError::TooLong, failed))
}

/// Reads everything; `None` if it is too long.
fn read_from(from: impl Read) -> Result<Vec<u8>, Option<io::Error>> {
    let mut bytes = Vec::new();
    from.take(LONGEST_FILE as u64 + 1).read_to_end(&mut bytes).map_err(Some)?;
    if bytes.len() > LONGEST_FILE { Err(None) } else { Ok(bytes) }
}

/// Pairs of hexadecimal digits, with blanks, line breaks or colons between them.
fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace() && *byte != b':');
    let digits: Vec<u8> = digits.collect();
    HEXLOWER_PERMISSIVE.decode(&digits).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests;
