//! First flights inside lookups (docs/spec/dns-path.md). The name server of each host is beside it, and so is the
//! resolver, which has every address: the line is all the distance there is.

use super::way::sizes;
use super::world::{CLIENT, CLIENT_UDP, SERVER_UDP, UNIX_S};
use crate::lookup::names::{Handed, NameServer, carrying};
use crate::pair::{End, Pair};
use firstflight_dns::{DnsPathKey, OpenBuffer, RelayKey, RelayReceiver};
use firstflight_stack::{ConnId, ConnectConfig, FirstData, RelayedFlight};
use firstflight_wire::Clock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Marks a question behind the number of its host, in front of its length.
const CARRIES: u8 = 1;
const HEAD: usize = 7;

/// The client's part: it seals first flights, and asks for their names.
pub struct Sealer {
    /// What the zones of all hosts publish, as an earlier visit found.
    published: [u8; 32],
    random: ChaCha20Rng,
}

impl Sealer {
    /// Begins a connection to a host whose address is looked up, with `data` inside the lookup. Sends the names.
    pub fn send(
        &mut self,
        net: &mut Pair,
        (host, port): (usize, u16),
        data: &[u8],
        config: &ConnectConfig,
    ) -> Option<ConnId> {
        let config = config.clone().encapsulation(Some(SERVER_UDP));
        let in_lookup = net.client.connect_in_lookup(port, FirstData::whole(data), &config, net.now).ok()?;
        let seen = SocketAddr::new(CLIENT, CLIENT_UDP);
        let questions = carrying(&mut net.client, &in_lookup, seen, self.published, &mut self.random)?;
        for question in &questions {
            net.tell(End::Client, &message(host, question), question.len() + sizes::UDP);
        }
        Some(in_lookup.id)
    }
}

/// The message that brings a question to the name server of `host`.
fn message(host: usize, question: &[u8]) -> Vec<u8> {
    let mut out = (host as u32).to_be_bytes().to_vec();
    out.push(CARRIES);
    out.extend((question.len() as u16).to_be_bytes());
    out.extend_from_slice(question);
    out
}

/// The question in such a message; `None` for the question for an address.
fn question(message: &[u8]) -> Option<&[u8]> {
    let len = u16::from_be_bytes(message.get(5..HEAD)?.try_into().ok()?);
    (*message.get(4)? == CARRIES).then_some(message.get(HEAD..HEAD + usize::from(len))?)
}

struct LookupSite {
    address: IpAddr,
    names: NameServer,
    relays: RelayReceiver,
}

/// The name servers.
pub struct Fronts {
    sites: Vec<LookupSite>,
    /// First flights that they handed to the servers.
    pub handed: usize,
}

impl Fronts {
    /// A name server for each of `addresses`, and the client's part.
    pub fn new(addresses: &[SocketAddr]) -> Option<(Self, Sealer)> {
        let mut random = ChaCha20Rng::from_seed([21; 32]);
        let secret = [23; 32];
        let sites = addresses.iter().map(|address| {
            let IpAddr::V4(ip) = address.ip() else { return None };
            let relay = RelayKey::generate(&mut random);
            let mut relays = RelayReceiver::new();
            relays.set_key(1, &relay);
            let key = DnsPathKey::generate(&mut ChaCha20Rng::from_seed(secret));
            Some(LookupSite {
                address: ip.into(),
                names: NameServer::new(ip, &relay, key, UNIX_S as u32)?,
                relays,
            })
        });
        let sites = sites.collect::<Option<_>>()?;
        let published = DnsPathKey::generate(&mut ChaCha20Rng::from_seed(secret)).public();
        Some((Self { sites, handed: 0 }, Sealer { published, random: ChaCha20Rng::from_seed([31; 32]) }))
    }

    /// Takes a message of the client. Returns the length of the answer, with IP and UDP; `None` if it asks for an
    /// address. The server gets the first flight whose last name this is.
    pub fn handle(&mut self, host: usize, message: &[u8], net: &mut Pair) -> Option<usize> {
        let question = question(message)?;
        let site = self.sites.get_mut(host)?;
        let unix_ms = UNIX_S * 1000 + net.now.as_millis();
        let clock = Clock { mono: net.now, unix_ms, uncertainty: Duration::ZERO };
        let (answer, handed) = site.names.handle(net.now, &clock, question);
        for handed in handed {
            let Handed::Relay(datagram) = handed else { continue };
            let mut buffer = OpenBuffer::new();
            let Ok(relayed) = site.relays.handle_datagram(&datagram, unix_ms, &mut buffer) else { continue };
            let flight = RelayedFlight {
                client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
                server: site.address,
                segment: &relayed.ci.segment(),
                key: relayed.reply,
                seen_as: None,
            };
            net.server.handle_relayed(net.now, flight);
            self.handed += 1;
        }
        Some(answer.map_or(0, |answer| answer.len() + sizes::UDP))
    }
}

/// Whether `message` is the answer to a question for an address.
pub fn has_address(message: &[u8]) -> bool {
    message.get(4) != Some(&CARRIES)
}

/// What the client is sent for a name of `host`: nothing that it needs.
pub fn name_answer(host: usize) -> Vec<u8> {
    message(host, &[])
}
