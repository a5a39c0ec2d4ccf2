//! The parameter of an SVCB or HTTPS record (RFC 9460) that says that a server supports ASAP
//! (`docs/spec/asap.md`, section 9).

use super::writer::Writer;
use super::{Name, VerifierId, VerifiersParam};
use crate::{EmitError, ParseError};
use core::fmt;
use core::num::{NonZeroU8, NonZeroU16};

const VERSION: u8 = 1;
const HEAD: usize = 8;
const IP: u8 = 1;
const UDP: u8 = 1 << 1;
const DNS_PATH: u8 = 1 << 2;
const SHARED_GUARD: u8 = 1 << 3;

/// The parameter that a server publishes about itself. It guides the client and never authorises anything: a
/// forged one costs a client a round trip, or shows one of its certificates to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceParam<'a> {
    ip: bool,
    udp: Option<UdpService<'a>>,
    /// All addresses of the name share one replay guard.
    pub shared_guard: bool,
    mss: u16,
    /// Verifiers that the server trusts.
    pub verifiers: VerifierIds<'a>,
}

/// The server accepts TCP in UDP datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpService<'a> {
    /// The UDP port.
    pub port: NonZeroU16,
    /// If present, first flights may travel by DNS, and the server answers them over UDP.
    pub dns_path: Option<DnsPathParam<'a>>,
}

/// The destination of first flights that travel by DNS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DnsPathParam<'a> {
    /// Number of the key.
    pub key_id: NonZeroU8,
    /// X25519 key that they are sealed to.
    pub key: [u8; 32],
    /// The zone below which they are sent as queries.
    pub zone: Zone<'a>,
}

impl fmt::Debug for DnsPathParam<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key_id, key: _, zone } = self;
        f.debug_struct("DnsPathParam").field("key_id", key_id).field("zone", zone).finish_non_exhaustive()
    }
}

/// Ids of verifiers, at most [`VerifierIds::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifierIds<'a>(&'a [[u8; 4]]);

impl<'a> VerifierIds<'a> {
    /// Largest number of ids in one parameter. A parameter of that size fits several times into a DNS answer of
    /// 1232 bytes.
    pub const MAX: usize = 32;

    /// The given ids; `None` if there are too many.
    #[must_use]
    pub const fn new(ids: &'a [[u8; 4]]) -> Option<Self> {
        if ids.len() > Self::MAX { None } else { Some(Self(ids)) }
    }

    /// The ids in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = VerifierId> + use<'a> {
        self.0.iter().map(|id| VerifierId(*id))
    }
}

impl fmt::Debug for VerifierIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A [`Name`] that is short enough that a label of 63 octets fits in front.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Zone<'a>(Name<'a>);

impl<'a> Zone<'a> {
    /// Longest wire form, bytes: [`Name::MAX`] minus a label of 63 octets and its length byte.
    pub const MAX: usize = Name::MAX - 64;

    /// The zone whose wire form is exactly `bytes`; `None` if they are not such a name.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        Name::new(bytes).filter(|name| name.as_bytes().len() <= Self::MAX).map(Self)
    }

    /// The wire form.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }

    /// The labels, without the empty label of the root.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.0.labels()
    }
}

impl fmt::Display for Zone<'_> {
    /// As [`Name`]'s.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Zone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'a> ServiceParam<'a> {
    /// Its number among the parameters of an SVCB record, from the range for private use (RFC 9460 §14.3.1).
    pub const KEY: u16 = 65300;
    /// The smallest MSS that can be published, which every IPv4 host accepts (RFC 9293 §3.7.1).
    pub const MIN_MSS: u16 = 536;
    /// The longest parameter, bytes.
    pub const MAX_LEN: usize = HEAD + 4 * VerifierIds::MAX + 32 + Zone::MAX;

    /// A server that accepts ASAP in TCP on IP (`ip`), in UDP datagrams (`udp`) or both, and up to `mss` bytes
    /// in a SYN. `None` if it accepts neither, or if `mss` is below [`ServiceParam::MIN_MSS`].
    #[must_use]
    pub const fn new(
        ip: bool,
        udp: Option<UdpService<'a>>,
        mss: u16,
        verifiers: VerifierIds<'a>,
        shared_guard: bool,
    ) -> Option<Self> {
        if (!ip && udp.is_none()) || mss < Self::MIN_MSS {
            return None;
        }
        Some(Self { ip, udp, shared_guard, mss, verifiers })
    }

    /// Whether the server accepts ASAP in TCP on IP.
    #[must_use]
    pub const fn takes_ip(&self) -> bool {
        self.ip
    }

    /// The server's UDP service, if it accepts ASAP in UDP datagrams.
    #[must_use]
    pub const fn udp(&self) -> Option<&UdpService<'a>> {
        self.udp.as_ref()
    }

    /// The MSS that the server accepts in a SYN, bytes.
    #[must_use]
    pub const fn mss(&self) -> u16 {
        self.mss
    }

    /// Reads the parameter in `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Malformed`] for anything that this version does not define:
    /// reserved bits, parts that contradict each other, too many verifiers, an invalid zone, bytes left over.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[version, flags, p, q, m, n, count, key_id], rest) =
            bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if version != VERSION {
            return Err(ParseError::Malformed("version of a service parameter"));
        }
        if flags & !(IP | UDP | DNS_PATH | SHARED_GUARD) != 0 {
            return Err(ParseError::Malformed("flags of a service parameter"));
        }
        let count = usize::from(count);
        if count > VerifierIds::MAX {
            return Err(ParseError::Malformed("number of verifiers of a service parameter"));
        }
        let (ids, rest) = rest.split_at_checked(4 * count).ok_or(ParseError::Truncated)?;
        let (ids, _) = ids.as_chunks();
        let dns_path = match (flags & DNS_PATH != 0, NonZeroU8::new(key_id)) {
            (true, Some(key_id)) => {
                let (key, zone) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
                let zone = Zone::new(zone).ok_or(ParseError::Malformed("DNS-path zone"))?;
                Some(DnsPathParam { key_id, key: *key, zone })
            }
            (false, None) if rest.is_empty() => None,
            (false, None) => return Err(ParseError::Malformed("end of a service parameter")),
            _ => return Err(ParseError::Malformed("DNS path of a service parameter")),
        };
        let udp = match (flags & UDP != 0, NonZeroU16::new(u16::from_be_bytes([p, q]))) {
            (true, Some(port)) => Some(UdpService { port, dns_path }),
            (false, None) if dns_path.is_none() => None,
            _ => return Err(ParseError::Malformed("UDP port of a service parameter")),
        };
        Self::new(
            flags & IP != 0,
            udp,
            u16::from_be_bytes([m, n]),
            VerifierIds(ids),
            flags & SHARED_GUARD != 0,
        )
        .ok_or(ParseError::Malformed("encapsulations or MSS of a service parameter"))
    }

    /// Writes the parameter at the front of `out` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`]; [`ServiceParam::MAX_LEN`] bytes are always enough.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let Self { ip, udp, shared_guard, mss, verifiers: VerifierIds(ids) } = *self;
        let dns_path = udp.and_then(|udp| udp.dns_path);
        let bits =
            [(ip, IP), (udp.is_some(), UDP), (dns_path.is_some(), DNS_PATH), (shared_guard, SHARED_GUARD)];
        let flags = bits.iter().filter(|(is, _)| *is).fold(0, |flags, (_, bit)| flags | bit);
        let [p, q] = udp.map_or(0, |udp| udp.port.get()).to_be_bytes();
        let [m, n] = mss.to_be_bytes();
        let key_id = dns_path.map_or(0, |dns_path| dns_path.key_id.get());
        let mut writer = Writer { out, at: 0 };
        writer.put(&[VERSION, flags, p, q, m, n, ids.len() as u8, key_id])?;
        writer.put(ids.as_flattened())?;
        if let Some(DnsPathParam { key, zone: Zone(zone), .. }) = dns_path {
            writer.put(&key)?;
            writer.put(zone.as_bytes())?;
        }
        Ok(writer.at)
    }

    /// The parameter as a record in a zone file has it: `key65300="\001\001…"`.
    #[must_use]
    pub const fn zone_text(&self) -> ZoneText<'a> {
        ZoneText(Param::Service(*self))
    }
}

impl<'a> VerifiersParam<'a> {
    /// The parameter as a record in a zone file has it: `key65302="\001\001…"`.
    #[must_use]
    pub const fn zone_text(&self) -> ZoneText<'a> {
        ZoneText(Param::Verifiers(*self))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Param<'a> {
    Service(ServiceParam<'a>),
    Verifiers(VerifiersParam<'a>),
}

/// A [`ServiceParam`] or [`VerifiersParam`] in the presentation format of zone files, every octet as a number (RFC 9460 §2.1, RFC 1035 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneText<'a>(Param<'a>);

impl fmt::Display for ZoneText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Param::Service(param) => {
                let mut bytes = [0; ServiceParam::MAX_LEN];
                let len = param.emit(&mut bytes).map_err(|_| fmt::Error)?;
                write(f, ServiceParam::KEY, bytes.iter().take(len))
            }
            Param::Verifiers(param) => write(f, VerifiersParam::KEY, param.bytes().iter()),
        }
    }
}

fn write<'a>(f: &mut fmt::Formatter<'_>, key: u16, value: impl Iterator<Item = &'a u8>) -> fmt::Result {
    write!(f, "key{key}=\"")?;
    for byte in value {
        write!(f, "\\{byte:03}")?;
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests;
