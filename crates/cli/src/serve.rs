//! `firstflight serve`: a directory over HTTP, whose first response needs one round trip. It is a gateway whose configuration the
//! options stand for.

use crate::error::{CommandError, Error};
use crate::self_signed::SelfSigned;
use crate::written::{Written, absolute, path};
use crate::{gateway, host_port, subnet};
use clap::ArgGroup;
use firstflight::Workers;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The port, if none is given: on the kernel's TCP, and of an engine on a device.
const PORTS: (u16, u16) = (8080, 80);

/// Serve a directory over HTTP/1.1 and HTTP/2, with TCP Fast Open and ASAP
///
/// Serves one port on the kernel's TCP and in UDP, and needs no privileges. Clients with Fast Open need bit 2 of
/// net.ipv4.tcp_fastopen; clients with certificates (--trust, --verifier) come in UDP. With --tun an engine serves alone, on a device
/// of its own (root or CAP_NET_ADMIN); with --xdp on a network card, at the host's own addresses.
///
/// These are the options of a trial. They stand for a configuration of `firstflight gateway`, which --print-config prints: everything
/// else is a key of that file (docs/gateway.md), and --config serves it.
/// Besides files, POST /echo gives its body back, and PUT /sink counts it. SIGTERM and SIGINT let requests end first.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("device").args(["tun", "xdp"]))]
#[command(group = ArgGroup::new("certified").args(["trust", "verifier"]).multiple(true))]
#[command(group = ArgGroup::new("encrypted").args(["tls_cert", "tls_self_signed"]))]
#[command(after_help = "\
Examples:
  firstflight serve ./site
  firstflight serve ./site --listen 0.0.0.0:443 --listen '[::]:443' --tls-cert chain.pem --tls-key key.pem
  firstflight serve ./site --listen 127.0.0.1:8443 --tls-self-signed
  firstflight serve ./site --tun ff0 --host-ip 10.9.0.1/24 --listen 10.9.0.2:80
  firstflight serve ./site --xdp eth0 --xdp-allow any
  firstflight serve ./site --listen 0.0.0.0:443 --verifier verifier.key --identity www.example.com
  firstflight serve ./site --listen 0.0.0.0:80 --print-config > gateway.toml

One key for a farm: (umask 077; sysctl -n net.ipv4.tcp_fastopen_key > key), then --key-file key on every member.
Key files have the mode 0600, or root owns them and they have 0640.")]
pub struct Args {
    /// Directory to serve: GET and HEAD, index.html for a directory, parts of files (Range), ETag and Last-Modified. There are no
    /// listings, and neither names that begin with a dot nor links that lead out of it
    #[arg(value_name = "DIR", required_unless_present = "config", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    root: Option<String>,
    /// Serve at this address and port; once more for further addresses. With --tun these are the engine's, in the networks of
    /// --host-ip [default: port 8080 at all addresses; with --xdp port 80 of the device]
    #[arg(long, value_name = "ADDR:PORT", value_parser = host_port::address)]
    listen: Vec<SocketAddr>,
    /// UDP port beside the kernel's TCP; 0 serves TCP only [default: the TCP port, if it is free]
    #[arg(long, value_name = "N", conflicts_with = "device")]
    udp_port: Option<u16>,
    /// Serve by an engine on a TUN device of this name, which is made
    #[arg(long, value_name = "NAME", requires_all = ["host_ip", "listen"])]
    tun: Option<String>,
    /// The kernel's address on the device with its prefix, as 10.9.0.1/24; once more for IPv6
    #[arg(long, value_name = "CIDR", requires = "tun", value_parser = subnet::subnet)]
    host_ip: Vec<IpNet>,
    /// Serve by an engine on this network card (AF_XDP, root, Linux 5.9). Its connections end when the process does
    #[arg(long, value_name = "DEVICE", requires = "xdp_allow")]
    xdp: Option<String>,
    /// With --xdp: take connections from this prefix, as 192.0.2.0/24; can be repeated; any takes everybody's. The packet filter of
    /// this host does not see them
    #[arg(long, value_name = "PREFIX", requires = "xdp")]
    xdp_allow: Vec<String>,
    /// File with the keys of cookies; read again while running [default: the kernel's on its TCP; an engine has new ones at
    /// each start]
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// File with the verifiers whose certificates are taken
    #[arg(long, value_name = "FILE")]
    trust: Option<String>,
    /// Be a verifier, with the key in this file, and take its certificates
    #[arg(long, value_name = "FILE")]
    verifier: Option<String>,
    /// Name of this server in certificates, as www.example.com; once more for further ones [default: its addresses]
    #[arg(long, value_name = "NAME", requires = "certified")]
    identity: Vec<String>,
    /// Serve https:// with the certificate in this PEM file: the server's, then those that lead to the authority; once more for
    /// further names
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<String>,
    /// PEM file with the private key of the certificate; once for each --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<String>,
    /// For a trial: serve https:// with a certificate that is made now and ends with the command, for localhost and the addresses, or
    /// also for NAME. Clients have to be told to accept it, and the start says how
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    tls_self_signed: Option<Vec<String>>,
    /// Take sealed first flights with the seal keys in this file; once more for further public names
    #[arg(long, value_name = "FILE", requires = "encrypted")]
    seal: Vec<String>,
    /// Threads. With --tun each has an engine of its own [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=Workers::MOST as i64))]
    threads: Option<u16>,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDR:PORT", value_parser = host_port::address)]
    metrics: Option<SocketAddr>,
    /// Log one JSON object a line
    #[arg(long)]
    json_log: bool,
    /// Serve what this configuration of the gateway says, in place of options
    #[arg(long, value_name = "FILE", exclusive = true)]
    config: Option<PathBuf>,
    /// Print the configuration that the options stand for, as a file to begin with, and end
    #[arg(long)]
    print_config: bool,
}

/// Why the options mean nothing.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address of the engine that the kernel does not lead to its device.
    #[error("--listen {0}: {1}")]
    Tun(SocketAddr, &'static str),
    /// The addresses have different ports.
    #[error("--listen: all addresses need the same port")]
    Ports,
    /// Certificates and keys are not as many.
    #[error("give one --tls-key for each --tls-cert")]
    TlsPairs,
}

impl CommandError for ServeError {}

/// What to do without an option that there is not.
pub fn no_option(option: impl std::fmt::Display) -> String {
    format!(
        "serve has no option {option}: it may be a key of the gateway's file (docs/gateway.md); --print-config prints one to \
         begin with, and --config serves it (see --help)"
    )
}

/// Runs the command until a signal arrives.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    if let Some(file) = &args.config {
        firstflight_gateway::run(file).await?;
        return Ok(ExitCode::SUCCESS);
    }
    args.check()?;
    let trial = match &args.tls_self_signed {
        Some(_) if args.print_config => return Err(Error::NothingToPrint),
        Some(names) => Some(SelfSigned::new(names, &args.addresses())?),
        None => None,
    };
    gateway::run_written(&args.written(trial.as_ref()), args.print_config, trial.as_ref()).await
}

/// The number of threads of the runtime.
pub fn threads(args: &Args) -> Option<NonZeroUsize> {
    match &args.config {
        Some(file) => gateway::threads_in(file),
        None => args.threads.and_then(|threads| NonZeroUsize::new(threads.into())),
    }
}

impl Args {
    fn check(&self) -> Result<(), ServeError> {
        if self.listen.iter().any(|at| Some(at.port()) != self.listen.first().map(SocketAddr::port)) {
            return Err(ServeError::Ports);
        }
        if self.tls_cert.len() != self.tls_key.len() {
            return Err(ServeError::TlsPairs);
        }
        let hosts = &self.host_ip;
        for at in self.listen.iter().filter(|_| self.tun.is_some()) {
            let ip = at.ip();
            let why = match hosts.iter().find(|host| host.contains(&ip)) {
                None => {
                    "is in no --host-ip network: give both in the same one, as in --host-ip 10.9.0.1/24 --listen 10.9.0.2:80"
                }
                Some(host) if host.addr() == ip => {
                    "is the kernel's address (--host-ip): choose another one of its network"
                }
                Some(host) if subnet::is_reserved(host, ip) => {
                    "is its network's own or broadcast address: choose another one of the network"
                }
                Some(_) => continue,
            };
            return Err(ServeError::Tun(*at, why));
        }
        Ok(())
    }

    /// Where it serves on the kernel's TCP, or by an engine on a TUN device.
    fn addresses(&self) -> Vec<SocketAddr> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        let v6 = Path::new("/proc/net/if_inet6").exists();
        let all = [Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), v6.then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))];
        all.into_iter().flatten().map(|ip| SocketAddr::new(ip, PORTS.0)).collect()
    }

    /// The configuration, with the certificate of a trial if there is one.
    fn written(&self, trial: Option<&SelfSigned>) -> String {
        let mut file = Written::default();
        file.table("[gateway]");
        if let Some(threads) = self.threads {
            file.value("threads", threads);
        }
        file.text_if("admin", self.metrics.map(|at| at.to_string()));
        file.text_if("log", self.json_log.then_some("json"));
        // Service managers kill after ten seconds.
        file.text("drain", "5s");
        file.gap();
        let addresses = self.addresses();
        file.table("[[listener]]");
        file.text("name", "web");
        if self.tun.is_none() && self.xdp.is_none() {
            file.texts("address", addresses.iter().map(SocketAddr::to_string));
        }
        file.text("mode", "http");
        file.text("service", "site");
        if let Some(port) = self.udp_port {
            file.value("udp_port", port);
        }
        file.file("key_file", self.key_file.as_ref());
        file.file("trust", self.trust.as_ref());
        file.texts("identity", &self.identity);
        if let Some(key) = &self.verifier {
            file.table("[listener.verifier]");
            file.file("key", Some(key));
        }
        let of_trial = trial.map(|made| (path(made.certificate()), path(made.key())));
        let named = self.tls_cert.iter().cloned().zip(self.tls_key.iter().cloned());
        file.certificates(named.chain(of_trial));
        if !self.seal.is_empty() {
            file.table("[listener.seal]");
            file.texts("keys", self.seal.iter().map(absolute));
        }
        if let Some(device) = &self.tun {
            file.table("[listener.tun]");
            file.text("device", device);
            file.texts("host", self.host_ip.iter().map(IpNet::to_string));
            file.texts("address", addresses.iter().map(|at| at.ip().to_string()));
            file.value("port", addresses.first().map_or(PORTS.1, SocketAddr::port));
        }
        if let Some(device) = &self.xdp {
            file.table("[listener.xdp]");
            file.text("device", device);
            file.value("port", self.listen.first().map_or(PORTS.1, SocketAddr::port));
            file.texts("allow", &self.xdp_allow);
            let named = self.listen.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
            file.texts("address", named.map(|ip| ip.to_string()));
        }
        file.gap();
        file.table("[[service]]");
        file.text("name", "site");
        file.file("root", self.root.as_ref());
        file.table("# POST /echo and PUT /sink answer anybody. Leave it out in service.");
        file.value("trial", true);
        file.into_text()
    }
}

#[cfg(test)]
mod tests;
