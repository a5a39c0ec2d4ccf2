//! `firstflight asap record`: what an operator publishes in the DNS.

use super::AsapError;
use crate::output;
use crate::seal;
use crate::utc::Time;
use crate::verifier::VerifierPlace;
use firstflight::credential::asap::PublicKey;
use firstflight_dns::{Name, wire_form};
use firstflight_files::from_hex;
use firstflight_verifier::site_verifiers::may_be_learnt;
use firstflight_wire::asap::{
    DnsPathParam, Name as WireName, ServiceParam, SitePoint, SitePoints, SiteVerifier, UdpService,
    VerifierIds, VerifiersParam, Zone,
};
use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::str::FromStr;

/// Print the HTTPS record parameters that say that a server accepts certificates, and sealed first flights
///
/// Put it after the priority and the target of the record, as in
/// `_8080._https.www.example.com. 300 IN HTTPS 1 www.example.com. key65300="…"`. A server at port 80 or 443 has the
/// record at its own name (RFC 9460 section 9.1).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight asap record --verifier-key KEY --udp-port 8080
  firstflight asap record --verifier-key KEY --udp-port 443 --seal-key seal.key
  firstflight asap record --verifier-key KEY --verifier example.com --verifier-below --udp-port 443
  firstflight asap record --seal-key seal.key                  the key alone")]
pub struct Args {
    /// Public key of a verifier that the server trusts; may be repeated
    #[arg(long, value_name = "KEY", required_unless_present = "seal_key")]
    verifier_key: Vec<PublicKey>,
    /// Name of the verifier with the --verifier-key in the same place, from which clients that know none get certificates for
    /// this server (the port is 4433 by default); may be repeated. The verifier's own record, as
    /// `_4433._https.example.com. 300 IN HTTPS 1 .`, needs the same key65302
    #[arg(long, value_name = "HOST[:PORT]", requires = "verifier_key")]
    verifier: Vec<VerifierPlace>,
    /// These verifiers are for all hosts below their names, too, which then see the same keys of clients: a certificate that was
    /// obtained for one host is shown to the others
    #[arg(long, requires = "verifier")]
    verifier_below: bool,
    /// A vantage point of the verifier: its number, and where it is; may be repeated
    #[arg(long, value_name = "N=HOST:PORT", requires = "verifier", value_parser = vantage)]
    vantage: Vec<(NonZeroU16, VerifierPlace)>,
    /// The server accepts TCP in UDP on this port
    #[arg(long, value_name = "N", requires = "verifier_key", value_parser = clap::value_parser!(u16).range(1..))]
    udp_port: Option<u16>,
    /// First flights may arrive by DNS, in names below this zone (firstflight dns)
    #[arg(long, value_name = "NAME", value_parser = dns_path_zone, requires_all = ["dns_path_key", "udp_port"])]
    dns_path_zone: Option<Name>,
    /// Key that they are sealed to, as `firstflight dns keygen` prints it
    #[arg(long, value_name = "N:KEY", requires = "dns_path_zone")]
    dns_path_key: Option<DnsPathKey>,
    /// The server accepts certificates in TCP on IP
    #[arg(long, requires = "verifier_key", required_unless_present_any = ["udp_port", "seal_key"])]
    ip: bool,
    /// Bytes that the server accepts in a SYN
    #[arg(
        long, value_name = "BYTES", default_value_t = 1220,
        value_parser = clap::value_parser!(u16).range(i64::from(ServiceParam::MIN_MSS)..)
    )]
    mss: u16,
    /// All servers of the name share one memory of requests with certificates: each of these is executed once
    #[arg(long)]
    shared_guard: bool,
    /// File of the key that clients seal first flights to, or of a farm's secret (seal keygen makes one)
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
}

/// Number and public half of a key, written in hexadecimal digits.
#[derive(Clone, Copy)]
struct DnsPathKey {
    key_id: NonZeroU8,
    key: [u8; 32],
}

impl FromStr for DnsPathKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (id, digits) = text.split_once(':')?;
            Some(Self { key_id: id.parse().ok()?, key: *from_hex(digits)? })
        };
        parse().ok_or("write its number, a colon and its 64 digits, as `firstflight dns keygen` prints them")
    }
}

fn dns_path_zone(text: &str) -> Result<Name, &'static str> {
    let name = crate::dns::name(text)?;
    let wire = wire_form(&name);
    Zone::new(&wire).map(|_| name).ok_or("the root, and names above 190 octets, are no DNS-path zones")
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), AsapError> {
    let mut parameters = Vec::new();
    if args.ip || args.udp_port.is_some() {
        parameters.push(certificates(args)?);
    } else if !args.verifier_key.is_empty() {
        return Err(AsapError::NoEncapsulation);
    }
    if !args.verifier.is_empty() {
        parameters.push(verifiers(args)?);
    }
    if let Some(path) = &args.seal_key {
        let record = seal::record(path, Time::now().0 / 1000)?;
        parameters.push(record.to_zone_text());
    }
    output::line(&parameters.join(" "));
    Ok(())
}

/// A vantage point as `1=ams.example.com:4433`.
fn vantage(text: &str) -> Result<(NonZeroU16, VerifierPlace), &'static str> {
    let parse = || {
        let (id, at) = text.split_once('=')?;
        Some((id.parse().ok()?, at.parse().ok()?))
    };
    parse().ok_or("write its number, an equals sign, its name and its port, as 1=ams.example.com:4433")
}

/// The wire form of the name of a host, and its port.
fn named(place: &VerifierPlace) -> Result<(Vec<u8>, NonZeroU16), AsapError> {
    let wrong = || AsapError::NotAsked(place.clone());
    let VerifierPlace::Named(name, port) = place else { return Err(wrong()) };
    let name = crate::dns::name(name).map_err(|_| wrong())?;
    Ok((wire_form(&name), NonZeroU16::new(*port).ok_or_else(wrong)?))
}

/// The parameter that names the verifiers of the site.
fn verifiers(args: &Args) -> Result<String, AsapError> {
    if args.verifier.len() > args.verifier_key.len() {
        return Err(AsapError::VerifierKeys);
    }
    let points = args.vantage.iter().map(|(id, at)| Ok((*id, named(at)?)));
    let mut points = points.collect::<Result<Vec<_>, AsapError>>()?;
    points.sort_by_key(|(id, _)| *id);
    let points: Option<Vec<_>> = (points.iter())
        .map(|(id, (name, port))| Some(SitePoint { id: *id, udp_port: *port, name: WireName::new(name)? }))
        .collect();
    let points = points.ok_or(AsapError::Names)?;
    let places = args.verifier.iter().map(named).collect::<Result<Vec<_>, AsapError>>()?;
    let mut all = Vec::new();
    for ((name, port), key) in places.iter().zip(&args.verifier_key) {
        let name = WireName::new(name).ok_or(AsapError::Names)?;
        let (key, below, points_of) = (*key.as_bytes(), args.verifier_below, SitePoints::default());
        all.push((
            SiteVerifier { key, udp_port: *port, tcp_port: None, name, below, points: points_of },
            &points[..],
        ));
    }
    let mut bytes = [0; VerifiersParam::MAX_LEN];
    let len = VerifiersParam::emit(all.into_iter(), &mut bytes).map_err(|_| AsapError::Names)?;
    let param = VerifiersParam::parse(bytes.get(..len).unwrap_or_default()).map_err(|_| AsapError::Names)?;
    let unasked = param.iter().zip(&args.verifier).find(|(one, _)| !may_be_learnt(one));
    match unasked {
        Some((_, place)) => Err(AsapError::NotAsked(place.clone())),
        None => Ok(param.zone_text().to_string()),
    }
}

/// The parameter about certificates.
fn certificates(args: &Args) -> Result<String, AsapError> {
    let ids: Vec<[u8; 4]> = args.verifier_key.iter().map(|key| key.id().0).collect();
    let ids = VerifierIds::new(&ids).ok_or(AsapError::TooManyVerifiers(VerifierIds::MAX))?;
    let zone = args.dns_path_zone.as_ref().map(wire_form);
    let zone = zone.as_deref().and_then(Zone::new);
    let dns_path = zone.zip(args.dns_path_key).map(|(zone, DnsPathKey { key_id, key })| DnsPathParam {
        key_id,
        key,
        zone,
    });
    let udp = args.udp_port.and_then(NonZeroU16::new).map(|port| UdpService { port, dns_path });
    let param = ServiceParam::new(args.ip, udp, args.mss, ids, args.shared_guard);
    Ok(param.ok_or(AsapError::NoEncapsulation)?.zone_text().to_string())
}

#[cfg(test)]
mod tests {
    use super::{DnsPathKey, dns_path_zone};

    #[test]
    fn dns_path_keys_are_a_number_and_64_digits() {
        let digits = "00fF".repeat(16);
        let key: DnsPathKey = format!("3:{digits}").parse().ok().unwrap();
        assert_eq!((key.key_id.get(), key.key[0], key.key[31]), (3, 0, 0xff));
        for bad in [
            format!("0:{digits}"),
            format!("256:{digits}"),
            digits.clone(),
            format!("3:{digits}0"),
            format!("3:{digits}00"),
            format!("3:{}zz", &digits[2..]),
            "3:".into(),
        ] {
            assert!(bad.parse::<DnsPathKey>().is_err(), "{bad}");
        }
        assert!(dns_path_zone("f.example.com").is_ok() && dns_path_zone(".").is_err());
    }
}
