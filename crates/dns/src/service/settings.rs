//! What a front serves, from settings and the files that they name.

use super::keys::{Forward, ForwardKeys, KeyFiles, RelayTo, Relays, Starts};
use super::running::OpenFront;
use super::zones::{ZoneFile, ZoneFiles};
use super::{ServiceError, SetUpError, Sockets, secure_rng};
use crate::forward::{ForwardConfig, Forwarder};
use crate::front::{Destination, DnsPathConfig, Front, FrontError, Policy, RateLimit};
use crate::reassembly::ReassemblyLimits;
use core::num::{NonZeroU8, NonZeroU32};
use firstflight_files::to_hex;
use hickory_proto::rr::Name;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// What a front serves, and the files that it reads.
///
/// ```no_run
/// # async fn run() -> Result<(), firstflight_dns::service::SetUpError> {
/// use firstflight_dns::service::{DnsPathSettings, FrontSettings, complete_name};
/// let dns_path = DnsPathSettings {
///     zone: complete_name("f.example.com").expect("a name"),
///     key: "dns-path.key".into(),
///     addresses: vec![[192, 0, 2, 80].into()],
///     opens_per_second: firstflight_dns::DnsPathConfig::OPENS_PER_SECOND,
///     // The server that this front is a part of.
///     servers: None,
///     others: None,
///     front_id: 0,
///     state: None,
/// };
/// let settings = FrontSettings {
///     listen: vec![([192, 0, 2, 80], 53).into()],
///     zones: Vec::new(),
///     answers_per_second: firstflight_dns::front::RateLimit::default().per_second,
///     dns_path: Some(dns_path),
/// };
/// let ports = settings.ports();
/// let front = settings.open()?;
/// // `firstflight::RelayTarget::take` gives them to a `firstflight::Server`.
/// let front = front.serve_here(ports.bind().await?, |relayed| println!("from {}", relayed.ci.address))?;
/// front.run(|line| println!("{line}"), std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct FrontSettings {
    /// Where it answers, over UDP and TCP. Name addresses one by one: see [`Sockets::bind`].
    pub listen: Vec<SocketAddr>,
    /// The zone files of ordinary names.
    pub zones: Vec<ZoneFile>,
    /// The most answers of one kind in a second to one network (/24, /56) over UDP.
    pub answers_per_second: NonZeroU32,
    /// The DNS-path zone. Without it the front takes no first flights.
    pub dns_path: Option<DnsPathSettings>,
}

/// A zone below which first flights are accepted.
pub struct DnsPathSettings {
    /// The name at which it begins.
    pub zone: Name,
    /// The file of the keys that first flights are sealed to.
    pub key: PathBuf,
    /// The addresses in the answers to fragments, 1 to [`Question::MAX_ADDRESSES`](crate::Question::MAX_ADDRESSES).
    pub addresses: Vec<Ipv4Addr>,
    /// The most first flights that are opened in a second.
    pub opens_per_second: NonZeroU32,
    /// The servers that get first flights. `None`: the server that this front is a part of.
    pub servers: Option<Servers>,
    /// The other fronts of the zone, if there are any.
    pub others: Option<OtherFronts>,
    /// The number of this front among those of the zone, and among those that have the same relay key. Each of `servers` takes
    /// one, counting up from it.
    pub front_id: u16,
    /// The file that records when this front was last started, created if it does not exist. Only a front that sends needs one: to
    /// `servers` or `others`.
    pub state: Option<PathBuf>,
}

/// The servers that first flights are relayed to.
pub struct Servers {
    /// The servers, at least one.
    pub servers: Vec<RelayTo>,
    /// Chooses one of them for each first flight.
    pub policy: Box<dyn Policy>,
}

/// The other fronts of a DNS-path zone.
#[derive(Debug, Clone)]
pub struct OtherFronts {
    /// This front's address and UDP port for them. Clients must not reach it.
    pub listen: SocketAddr,
    /// Their addresses and ports of this kind.
    pub others: Vec<SocketAddr>,
    /// The file of the key that all fronts of the zone share.
    pub key: PathBuf,
    /// The most fragments forwarded in a second, and the most accepted from others.
    pub per_second: NonZeroU32,
}

/// A complete domain name in lower case, with or without its final dot in `text`. `None` if it is none, or not ASCII.
#[must_use]
pub fn complete_name(text: &str) -> Option<Name> {
    let mut name = Name::from_ascii(text).ok()?.to_lowercase();
    name.set_fqdn(true);
    Some(name)
}

/// A public DNS-path key with its number, in the form that `firstflight asap record` takes.
#[must_use]
pub fn published_key(id: NonZeroU8, key: &[u8; 32]) -> String {
    format!("{id}:{}", *to_hex(key))
}

impl OtherFronts {
    /// Finds mistakes in the addresses.
    ///
    /// # Errors
    /// [`SetUpError::ForwardTo`]: the caller is at fault.
    pub fn check(&self) -> Result<(), SetUpError> {
        let listen = self.listen;
        let wrong = |to: &&SocketAddr| {
            to.port() == 0 || to.ip().is_unspecified() || to.is_ipv4() != listen.is_ipv4() || **to == listen
        };
        match self.others.iter().find(wrong) {
            Some(to) => Err(SetUpError::ForwardTo { to: *to, listen }),
            None => Ok(()),
        }
    }

    fn forwarder(&self, keys: ForwardKeys) -> Result<Option<Forwarder>, SetUpError> {
        let ForwardKeys { sender: Some(sender), keys } = keys else { return Ok(None) };
        let (others, per_second) = (self.others.clone(), self.per_second);
        let made = Forwarder::new(ForwardConfig { others, sender, keys, per_second });
        made.map(Some).map_err(SetUpError::Forward)
    }
}

/// The ports of a front: for resolvers, and for the other fronts of the zone.
#[derive(Debug, Clone)]
pub struct Ports {
    listen: Vec<SocketAddr>,
    others: Option<OtherFronts>,
}

impl Ports {
    /// Binds them.
    ///
    /// # Errors
    /// [`SetUpError::ForwardTo`], and [`SetUpError::Service`] for an address that cannot be used.
    pub async fn bind(&self) -> Result<Sockets, SetUpError> {
        self.others.as_ref().map_or(Ok(()), OtherFronts::check)?;
        let mut sockets = Sockets::bind(&self.listen).await?;
        if let Some(others) = &self.others {
            sockets.bind_for_fronts(others.listen).await?;
        }
        Ok(sockets)
    }
}

impl FrontSettings {
    fn others(&self) -> Option<&OtherFronts> {
        self.dns_path.as_ref()?.others.as_ref()
    }

    /// The ports that the front needs, to be bound before or after [`FrontSettings::open`].
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports { listen: self.listen.clone(), others: self.others().cloned() }
    }

    /// Reads the files. The file of starts is locked, and written if the front sends anything.
    ///
    /// # Errors
    /// The first file that cannot be read or has a mistake, or settings that do not fit together.
    pub fn open(self) -> Result<OpenFront, SetUpError> {
        self.open_with(Starts::open)
    }

    /// Reads the files as [`FrontSettings::open`] does, but neither creates nor locks the file of starts, which another process
    /// may use.
    ///
    /// # Errors
    /// As [`FrontSettings::open`].
    pub fn check(self) -> Result<(), SetUpError> {
        self.others().map_or(Ok(()), OtherFronts::check)?;
        self.open_with(Starts::look).map(drop)
    }

    fn open_with(
        self,
        starts: impl FnOnce(PathBuf) -> Result<Starts, SetUpError>,
    ) -> Result<OpenFront, SetUpError> {
        let mut zones = ZoneFiles::new(self.zones);
        let rate = RateLimit { per_second: self.answers_per_second, ..RateLimit::default() };
        let mut front = Front::new(zones.read()?, rate).map_err(of_front)?;
        let (mut keys, mut says) = (None, None);
        if let Some(dns_path) = self.dns_path {
            let (files, said) = dns_path.carry(&mut front, starts)?;
            (keys, says) = (Some(files), Some(said));
        }
        Ok(OpenFront { front, zones, keys, says })
    }
}

fn of_front(error: FrontError) -> SetUpError {
    SetUpError::Front(Box::new(error))
}

impl DnsPathSettings {
    /// Lets `front` accept first flights. Returns the key files, and the line that says which zone and which key.
    fn carry(
        self,
        front: &mut Front,
        starts: impl FnOnce(PathBuf) -> Result<Starts, SetUpError>,
    ) -> Result<(KeyFiles, String), SetUpError> {
        let Self { zone, key, addresses, opens_per_second, servers, others, front_id, state } = self;
        let sends = servers.is_some() || others.is_some();
        let starts = match state.filter(|_| sends) {
            Some(path) => Some(starts(path)?),
            None if sends => return Err(SetUpError::NoState),
            None => None,
        };
        let (relays, policy) = match servers {
            Some(Servers { servers, policy }) => {
                // Numbers above the maximum would wrap to 0, which another front may have. Then nonces would be used twice.
                if usize::from(front_id) + servers.len() > 1 << 16 {
                    return Err(SetUpError::FrontId { first: front_id, servers: servers.len() });
                }
                (Some(Relays::new(servers, front_id)), Some(policy))
            }
            None => (None, None),
        };
        let forward = others.as_ref().map(|others| Forward::new(others.key.clone(), front_id));
        let mut files = KeyFiles::new(key, starts, relays, forward);
        let keys = files.dns_path()?;
        let (id, public) = keys.current();
        let said = format!("DNS-path zone {zone}, dns-path-key {}", published_key(id, &public));
        let to = match policy {
            Some(policy) => Destination::Relay { servers: files.servers()?.unwrap_or_default(), policy },
            None => Destination::Here,
        };
        let limits = ReassemblyLimits::default();
        let config = DnsPathConfig { zone, addresses, keys, to, limits, opens_per_second };
        let mut rng = secure_rng().map_err(ServiceError::System)?;
        front.carry(config, &mut rng).map_err(of_front)?;
        if let (Some(others), Some(keys)) = (&others, files.forward()?)
            && let Some(forwarder) = others.forwarder(keys)?
        {
            front.forward(forwarder);
        }
        Ok((files, said))
    }
}
