//! Requests inside the lookup of the server's address: `get --via-dns`.

use super::GetError;
use crate::error::Error;
use firstflight::carriage::{DnsPath, LookupMemory, Proof, Report, Server};
use firstflight::credential::NetworkId;
use firstflight::link::source_for;
use firstflight::record::{Names, Published};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream};
use firstflight_wire::asap::{Carriage, ServiceParam};
use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The options for requests inside lookups.
#[derive(clap::Args)]
pub struct Options {
    /// Also send requests inside the lookup of the server's address, if the server accepts that (its HTTPS record)
    /// and unknown servers can reach this client. Every fetch looks the name up again, as if its address had expired.
    /// Nothing waits for the verifiers: the first fetches go the ordinary way (but see --verify-first)
    #[arg(long, requires_all = ["udp", "verifier", "second_verifier"])]
    via_dns: bool,
    /// Another verifier, which reports how it sees this client, as for `firstflight reach`
    #[arg(long, value_name = "ADDR:PORT", requires = "via_dns")]
    second_verifier: Option<SocketAddr>,
    /// It is gone.
    #[arg(long = "dns-memory", hide = true, value_parser = gone)]
    _dns_memory: Option<PathBuf>,
    /// Ask for one name more, so that any one of them may be lost
    #[arg(long, requires = "via_dns")]
    parity: bool,
}

fn gone(_: &str) -> Result<PathBuf, &'static str> {
    Err("there is one file now: name it with --cache")
}

impl Options {
    /// Whether the options ask for it.
    pub const fn wanted(&self) -> bool {
        self.via_dns
    }

    /// The two verifiers that find out whether unknown servers can reach this client. `verifier` is the first one.
    ///
    /// # Errors
    /// When both have the same address, or addresses of different families.
    pub fn verifiers(&self, verifier: SocketAddr) -> Result<[SocketAddr; 2], GetError> {
        let second = self.second_verifier.ok_or(GetError::ReachPair)?;
        if verifier.ip() == second.ip() || verifier.is_ipv4() != second.is_ipv4() {
            return Err(GetError::ReachPair);
        }
        Ok([verifier, second])
    }
}

/// A server to connect to.
pub struct Named {
    pub name: String,
    pub port: u16,
    /// Its UDP port, if the user gave it.
    pub udp_port: Option<u16>,
}

/// The state of a run with `--via-dns`.
pub struct ViaDns {
    path: DnsPath,
    names: Names,
    memory: Memory,
    /// The address family of the verifiers, and therefore of certificates and of requests inside lookups.
    v4: bool,
    /// Whether this host also has routes of the other family.
    both: bool,
    /// Whether unknown servers can reach this client.
    proved: AtomicBool,
    /// Records that were queried in this run. There are at most as many as servers.
    asked: Mutex<HashMap<(String, u16), Asked>>,
}

/// A record that was queried in this run.
struct Asked {
    at: tokio::time::Instant,
    /// Whether the answer has arrived. If there is no answer, the sender is dropped.
    answered: watch::Receiver<bool>,
}

/// Addresses that stand for any remote address (RFC 5737, RFC 3849).
const ELSEWHERE_V4: [u8; 4] = [192, 0, 2, 1];
const ELSEWHERE_V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
/// How long a missing record is not queried again.
const UNKNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// What is remembered.
pub struct Memory(Mutex<LookupMemory>);

impl Memory {
    /// Reads the file, if one is named.
    pub fn open(file: Option<&Path>, network: NetworkId) -> Result<Self, Error> {
        let memory = match file {
            Some(file) => LookupMemory::open(file, network).map_err(Error::Cache)?,
            None => LookupMemory::new(network),
        };
        Ok(Self(Mutex::new(memory)))
    }

    fn lock(&self) -> MutexGuard<'_, LookupMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a server published at an earlier visit.
    pub fn published(&self, name: &str, port: u16) -> Option<Published> {
        Published::read(&self.lock().parameter(name, port)?, 0)
    }

    /// Stores what a server publishes.
    fn learn(&self, name: &str, port: u16, published: &Published) {
        self.lock().learn(name, port, &published.bytes, published.ttl);
    }

    /// Stores the result of a repeated query. Does nothing if there was no answer.
    fn learn_again(&self, name: &str, port: u16, found: io::Result<Option<Published>>) {
        let mut memory = self.lock();
        match found {
            Ok(found) => {
                let found = found.as_ref().map(|published| (&*published.bytes, published.ttl));
                memory.learn_again(name, port, found);
            }
            Err(_) => memory.set_asked(name, port),
        }
    }
}

impl ViaDns {
    /// The path of `endpoint` through the resolver at `resolver`. `v4` is the family of its verifiers. First flights
    /// go the ordinary way until there is a proof ([`ViaDns::prove`]).
    pub fn new(
        options: &Options,
        endpoint: &Endpoint,
        v4: bool,
        resolver: SocketAddr,
        network: NetworkId,
        memory: Memory,
    ) -> Result<Self, Error> {
        let now = firstflight::certificate_clock().map_err(Error::Random)?;
        let manners = memory.lock().manners(now);
        let path = DnsPath::new(endpoint.clone(), resolver, network, None, manners, options.parity);
        for (parameter, lost) in memory.lock().losses() {
            if let Some(carriage) = carriage(parameter) {
                path.recall_lost(&carriage, lost);
            }
        }
        let names = Names::at(resolver).map_err(|error| GetError::Resolver(resolver, error))?;
        // Documentation addresses. Nothing is sent to them.
        let other = if v4 { IpAddr::from(ELSEWHERE_V6) } else { IpAddr::from(ELSEWHERE_V4) };
        let both = source_for(SocketAddr::new(other, 80)).is_ok();
        let proved = AtomicBool::new(false);
        Ok(Self { path, names, memory, v4, both, proved, asked: Mutex::default() })
    }

    /// Whether unknown servers could not reach this client on this network at the last verification, less than an
    /// hour ago.
    pub fn is_closed(&self) -> bool {
        self.memory.lock().is_unreachable()
    }

    /// Stores the result of the verification. With a proof, unknown servers can reach this client; without one they
    /// cannot.
    pub fn prove(&self, proof: Option<Proof>) {
        self.memory.lock().set_unreachable(proof.is_none());
        if let Some(proof) = proof {
            self.path.prove(proof);
            self.proved.store(true, Ordering::Relaxed);
        }
    }

    /// What the server of `name` at `port` publishes, if known.
    pub fn published(&self, name: &str, port: u16) -> Option<Published> {
        self.memory.published(name, port)
    }

    /// Connects to a server; see [`DnsPath::connect`]. If the server's record is unknown, or first flights with it
    /// were lost, queries it in parallel. Nothing waits for that.
    pub async fn connect(
        self: &Arc<Self>,
        to: &Named,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)> {
        let Some(parameter) = self.memory.lock().parameter(&to.name, to.port) else {
            return self.visit_first(to, first, config).await;
        };
        self.ask_again_if_lost(to);
        let service = ServiceParam::parse(&parameter).ok().and_then(|param| param.udp().copied());
        let server = Server { port: to.port, service };
        let (stream, report) = self.path.connect(server, || self.addresses(to), first, config).await?;
        if report.names > 0 {
            let (via, to) = (Arc::clone(self), Named { name: to.name.clone(), ..*to });
            tokio::spawn(async move {
                via.path.settled().await;
                via.ask_again_if_lost(&to);
            });
        }
        Ok((stream, report))
    }

    /// Connects to a server about which nothing is known. Its record may name a UDP port other than the one that is
    /// tried in the meantime.
    async fn visit_first(
        self: &Arc<Self>,
        to: &Named,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)> {
        let asked = self.ask(&to.name, to.port);
        let addresses = self.addresses(to).await?;
        let at = |carrier| {
            let (server, addresses) = (Server { port: to.port, service: None }, addresses.clone());
            let config = config.clone().carrier(carrier);
            async move { self.path.connect(server, || ready(Ok(addresses.clone())), first, &config).await }
        };
        // The record may have arrived with the address.
        let carrier = self.other_port(to, config.carrier).or(config.carrier);
        let elsewhere = async |mut asked: watch::Receiver<bool>| {
            let _ = asked.wait_for(|answered| *answered).await;
            self.other_port(to, carrier)
        };
        tokio::select! {
            biased;
            result = at(carrier) => match result {
                // Nothing was sent, so any request may go to another port.
                Err(error) if first.is_replayable() || error.kind() == io::ErrorKind::ConnectionRefused => {
                    match elsewhere(asked).await {
                        Some(port) => at(Some(port)).await,
                        None => Err(error),
                    }
                }
                result => result,
            },
            Some(port) = elsewhere(asked.clone()), if first.is_replayable() => at(Some(port)).await,
        }
    }

    /// The UDP port that the server publishes, if it differs and the user gave none.
    fn other_port(&self, to: &Named, than: Option<u16>) -> Option<u16> {
        let published = self.published(&to.name, to.port)?.udp_port;
        published.filter(|_| to.udp_port.is_none()).filter(|port| Some(*port) != than)
    }

    /// The addresses of a server. If requests travel inside lookups, only addresses of the verifiers' family are
    /// queried, so that a resolver with a rate limit gets no further question.
    async fn addresses(&self, to: &Named) -> io::Result<Vec<IpAddr>> {
        let found = match self.both && !self.proved.load(Ordering::Relaxed) {
            true => self.names.all_addresses(&to.name, self.v4).await,
            false => self.names.addresses_or(&to.name, self.v4).await,
        };
        found.map_err(|error| io::Error::new(error.kind(), format!("cannot look up {}: {error}", to.name)))
    }

    /// Queries and stores what the server of `name` at `port` publishes, if that is unknown and was not queried for
    /// ten minutes. The receiver reports when the answer has arrived.
    pub fn ask(self: &Arc<Self>, name: &str, port: u16) -> watch::Receiver<bool> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_ascii_lowercase(), port);
        if let Some(before) = asked.get(&key).filter(|before| before.at.elapsed() < UNKNOWN_FOR) {
            return before.answered.clone();
        }
        let (via, name) = (Arc::clone(self), name.to_owned());
        let found = Asked::begin(async move {
            if let Ok(Some(published)) = via.names.record(&name, port).await {
                via.memory.learn(&name, port, &published);
            }
        });
        let answered = found.answered.clone();
        asked.insert(key, found);
        answered
    }

    /// Queries the server's record again if first flights that were sealed to the known parameter were lost in a row.
    fn ask_again_if_lost(self: &Arc<Self>, to: &Named) {
        let port = to.port;
        let memory = self.memory.lock();
        let parameter = memory.parameter(&to.name, port).unwrap_or_default();
        let Some(carriage) = carriage(&parameter) else { return };
        let may_ask = memory.may_ask_again(&to.name, port);
        drop(memory);
        if !may_ask || self.path.lost_in_a_row(&carriage) < DnsPath::ASK_AGAIN_AFTER {
            return;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (to.name.to_ascii_lowercase(), port);
        if asked.get(&key).is_some_and(Asked::is_under_way) {
            return;
        }
        let (via, name) = (Arc::clone(self), to.name.clone());
        tracing::info!(name, port, "first flights are lost: asking again what the server publishes");
        let again = Asked::begin(async move {
            let found = via.names.record(&name, port).await;
            via.memory.learn_again(&name, port, found);
        });
        asked.insert(key, again);
    }

    /// Waits a short time for answers to the first flights that were sent.
    pub async fn settled(&self) {
        // Later answers are not counted.
        let _ = tokio::time::timeout(LAST_ANSWERS, self.path.settled()).await;
    }

    /// Saves what was learnt.
    pub fn save(&self) -> Result<(), Error> {
        let now = firstflight::certificate_clock().map_err(Error::Random)?;
        self.path.conclude();
        let mut memory = self.memory.lock();
        memory.set_stops(&self.path.stops(), now);
        memory.set_losses(|parameter| {
            carriage(parameter).map_or(0, |carriage| self.path.lost_in_a_row(&carriage))
        });
        memory.save().map_err(Error::Cache)
    }
}

impl Asked {
    /// Starts `asking`, which ends when the answer has arrived.
    fn begin(asking: impl Future<Output = ()> + Send + 'static) -> Self {
        let (tell, answered) = watch::channel(false);
        tokio::spawn(async move {
            asking.await;
            let _ = tell.send(true);
        });
        Self { at: tokio::time::Instant::now(), answered }
    }

    fn is_under_way(&self) -> bool {
        !*self.answered.borrow() && self.answered.has_changed().is_ok()
    }
}

/// The carriage in a parameter.
fn carriage(parameter: &[u8]) -> Option<Carriage<'_>> {
    ServiceParam::parse(parameter).ok()?.udp()?.carriage
}

/// The resolver that may get such names: the one that the user named, or the system's resolver if it is at a loopback
/// address. Another resolver is not asked directly, because the system may ask it over TLS.
pub fn resolver(named: Option<SocketAddr>) -> Result<SocketAddr, GetError> {
    if let Some(named) = named {
        return Ok(named);
    }
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    loopback_stub(&text).map(|ip| SocketAddr::new(ip, 53)).ok_or(GetError::NoStub)
}

/// The first name server of a `resolv.conf`, if it is at a loopback address.
fn loopback_stub(text: &str) -> Option<IpAddr> {
    let first = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    })?;
    first.parse().ok().filter(IpAddr::is_loopback)
}

/// How long to wait at the end for the last answers about names, whose result is remembered.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight::carriage::Manners;

    #[test]
    fn only_a_stub_of_this_host_is_asked_unnamed() {
        let stub = |text| loopback_stub(text);
        assert_eq!(stub("# a\nsearch x\nnameserver 127.0.0.53\noptions edns0\n"), "127.0.0.53".parse().ok());
        assert_eq!(stub("nameserver ::1\nnameserver 192.0.2.1\n"), "::1".parse().ok());
        assert_eq!(stub("nameserver 192.0.2.1\nnameserver 127.0.0.1\n"), None);
        assert_eq!(stub(""), None);
        let named = "192.0.2.1:53".parse().unwrap();
        assert_eq!(resolver(Some(named)).unwrap(), named);
    }

    /// hickory first opens a socket and then asks in its own task. A resolver with a rate limit answers the first
    /// questions.
    #[tokio::test]
    async fn the_question_for_the_address_leaves_before_the_names() {
        use firstflight::Certified;
        use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
        use firstflight::link::UdpLink;
        use firstflight_wire::Instant as Moment;
        use firstflight_wire::asap::{Carriage, CertificateFlags, UdpService, Zone};

        let local = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let asked = tokio::net::UdpSocket::bind((local, 0)).await.unwrap();
        let resolver = asked.local_addr().unwrap();
        let socket = std::net::UdpSocket::bind((local, 0)).unwrap();
        let seen = socket.local_addr().unwrap();
        let link = UdpLink::adopt(socket).unwrap().heed_icmp().unwrap();
        let endpoint = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
        let proof = Some(Proof { seen, verifier: resolver, at: std::time::Instant::now() });
        let path = DnsPath::new(endpoint, resolver, NetworkId::UNKNOWN, proof, Manners::new(), false);
        let names = Names::at(resolver).unwrap();

        let (verifier, key) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
        let flags = CertificateFlags::new(1, true, false).unwrap();
        let issued = (firstflight::unix_ms() / 1000) as u32;
        let body = certify(&verifier, &key.public(), local, issued, 1800, flags).unwrap();
        let clock = firstflight::certificate_clock().unwrap();
        let certified = Certified {
            certificate: ClientCertificate::new(body, verifier.public(), local, key, clock).unwrap().into(),
            now: Moment::ZERO,
            identity: Identity::name("www.xyz.com", 80),
            known: true,
            once: false,
            mss: None,
            request_id: None,
        };
        let config = ConnectConfig::default().asap(Some(certified));
        let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
        let carriage = Some(Carriage { key_id: std::num::NonZeroU8::MIN, key: [9; 32], zone });
        let service = Some(UdpService { port: 9.try_into().unwrap(), carriage });

        let first = FirstFlight::safely_replayable(b"GET / HTTP/1.1");
        let lookup = || names.addresses("www.xyz.com", true);
        let connecting = path.connect(Server { port: 80, service }, lookup, first, &config);
        let heard = async {
            let mut questions = Vec::new();
            while questions.len() < 7 {
                let mut question = [0; 512];
                let (len, _) = asked.recv_from(&mut question).await.unwrap();
                // Keep-alives also arrive here. They are not questions.
                if len > 12 {
                    questions.push(question[13..].starts_with(b"www"));
                }
            }
            questions
        };
        let questions = tokio::select! {
            questions = heard => questions,
            _ = connecting => panic!("nobody answers"),
        };
        assert_eq!(questions, [true, false, false, false, false, false, false]);
    }
}
