//! Connection information (CI): a whole first flight without headers, as it is sent by DNS
//! (`docs/spec/dns-path.md`, section 3).

use crate::sizes::{MAX_SEALED, SEAL_OVERHEAD};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU16;
use firstflight_credential::asap::address_tag;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, BLOCK_MAGIC, Block};
use firstflight_wire::tcp::{Flags, Header, OptionBytes, OptionsBuf, Segment};
use firstflight_wire::{EmitError, ParseError, SeqNum};

/// Version 1 (high nibble), type 1.
const VERSION_TYPE: u8 = 0x11;
const IPV6: u8 = 1;
const UDP: u8 = 1 << 1;
const SACK: u8 = 1 << 2;
/// "The SYN has no window scale option".
const NO_SCALE: u8 = 0xff;
/// Length up to the address.
const HEAD: usize = 18;
/// The parts of a credential block that are sent. Its magic and its address tag follow from the rest.
const BLOCK_PARTS: [core::ops::Range<usize>; 2] = [2..112, 114..BLOCK_LEN];
const BLOCK_SENT: usize = 192;

/// The shift of a window scale option: at most 14 (RFC 7323 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowScale(u8);

impl WindowScale {
    /// This shift. `None` above 14.
    #[must_use]
    pub const fn new(shift: u8) -> Option<Self> {
        if shift > 14 { None } else { Some(Self(shift)) }
    }

    /// The shift, bits.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The SYN of a first flight over UDP, its credential and its data.
///
/// `Debug` leaves out the data, which is the client's request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionInfo<'a> {
    /// The client's address as the network sees it. The certificate is for this address. It is never an
    /// IPv4-mapped IPv6 address.
    pub address: IpAddr,
    /// The client's UDP port as the network sees it.
    pub outer_port: NonZeroU16,
    /// The TCP source port inside the datagrams.
    pub source_port: NonZeroU16,
    /// The TCP destination port inside the datagrams, which selects the listener.
    pub destination_port: NonZeroU16,
    /// The client's initial sequence number.
    pub isn: SeqNum,
    /// The SYN's window, not scaled.
    pub window: u16,
    /// The SYN's maximum segment size.
    pub mss: u16,
    /// The SYN's window scale option.
    pub window_scale: Option<WindowScale>,
    /// The SYN has the option "SACK permitted".
    pub sack_permitted: bool,
    /// The credential, without padding. Its address tag is that of `address`, whatever it says.
    pub block: Block,
    /// The request.
    pub data: &'a [u8],
}

impl<'a> ConnectionInfo<'a> {
    /// The longest connection information that fits into eight fragments when it is sealed, bytes.
    pub const MAX_LEN: usize = MAX_SEALED - SEAL_OVERHEAD;
    /// The shortest connection information, bytes: IPv4 without data.
    pub const MIN_LEN: usize = HEAD + 4 + BLOCK_SENT;

    /// The longest request that a client at `address` can send: 135 bytes over IPv4, 123 over IPv6.
    #[must_use]
    pub const fn max_data(address: IpAddr) -> usize {
        Self::MAX_LEN - BLOCK_SENT - HEAD - if address.is_ipv4() { 4 } else { 16 }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        HEAD + if self.address.is_ipv4() { 4 } else { 16 } + BLOCK_SENT + self.data.len()
    }

    /// The TCP segment that it represents, as a datagram of the encapsulation contains it: with block, data and
    /// options, and a checksum of zero (`docs/spec/asap.md` §8).
    #[must_use]
    pub fn segment(&self) -> Vec<u8> {
        let mut options = OptionsBuf::new();
        // The options fit: 4 + 2 + 3 + 8 bytes.
        options.mss(self.mss);
        if self.sack_permitted {
            options.sack_permitted();
        }
        if let Some(scale) = self.window_scale {
            options.window_scale(scale.get());
        }
        options
            .raw(OptionBytes::from(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 }).as_slice());
        let header = Header {
            src_port: self.source_port.get(),
            dst_port: self.destination_port.get(),
            seq: self.isn,
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: self.window,
            urgent: 0,
        };
        let mut segment = vec![0; 60];
        let at = header.emit(options.finish(), &mut segment).unwrap_or_default();
        segment.truncate(at);
        segment.extend_from_slice(&self.block.to_bytes());
        segment.extend_from_slice(self.data);
        segment
    }

    /// The inverse of [`ConnectionInfo::segment`], for a client that the network sees at `client`. The
    /// segment must be a SYN with a block and data, and only with options that this version has.
    ///
    /// # Errors
    /// [`ParseError`] for any other segment. The caller is at fault.
    pub fn from_segment(client: SocketAddr, segment: &'a [u8]) -> Result<Self, ParseError> {
        let wrong = || ParseError::Malformed("SYN of a first flight");
        let segment = Segment::parse(segment)?;
        let port = |port| NonZeroU16::new(port).ok_or(ParseError::Malformed("port of a first flight"));
        let options = &segment.options;
        let option = options.asap().and_then(AsapOption::parse);
        let (block, data) = segment.payload.split_first_chunk::<BLOCK_LEN>().ok_or(ParseError::Truncated)?;
        let wanted = Some(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 });
        let plain = options.timestamps.is_none() && options.fast_open().is_none();
        if segment.flags != Flags::SYN || option != wanted || !plain {
            return Err(wrong());
        }
        let window_scale = match options.window_scale {
            None => None,
            Some(shift) => Some(WindowScale::new(shift).ok_or_else(wrong)?),
        };
        Ok(Self {
            address: client.ip().to_canonical(),
            outer_port: port(client.port())?,
            source_port: port(segment.src_port)?,
            destination_port: port(segment.dst_port)?,
            isn: segment.seq,
            window: segment.window,
            mss: options.mss.ok_or_else(wrong)?,
            window_scale,
            sack_permitted: options.sack_permitted,
            block: Block::parse(block)?,
            data,
        })
    }

    /// Parses connection information, which must fill `bytes` completely.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Malformed`] for features that this version does not have:
    /// reserved bits, another encapsulation than UDP, port 0, a window scale above 14, an IPv4-mapped address, more
    /// data than eight fragments carry. The sender is at fault.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[version, flags, o, p, s, t, d, e, i, j, k, l, w, x, m, n, scale, zero], rest) =
            bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if version != VERSION_TYPE {
            return Err(ParseError::Malformed("version or type of connection information"));
        }
        if flags & !(IPV6 | UDP | SACK) != 0 || flags & UDP == 0 || zero != 0 {
            return Err(ParseError::Malformed("flags of connection information"));
        }
        if bytes.len() > Self::MAX_LEN {
            return Err(ParseError::Malformed("length of connection information"));
        }
        let window_scale = match scale {
            NO_SCALE => None,
            shift => {
                Some(WindowScale::new(shift).ok_or(ParseError::Malformed("window scale of a first flight"))?)
            }
        };
        let (address, rest) = if flags & IPV6 == 0 {
            let (address, rest) = rest.split_first_chunk::<4>().ok_or(ParseError::Truncated)?;
            (Ipv4Addr::from(*address).into(), rest)
        } else {
            let (address, rest) = rest.split_first_chunk::<16>().ok_or(ParseError::Truncated)?;
            (Ipv6Addr::from(*address).into(), rest)
        };
        if is_mapped(address) {
            return Err(ParseError::Malformed("address of a first flight"));
        }
        let (sent, data) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        let port = |bytes| {
            NonZeroU16::new(u16::from_be_bytes(bytes)).ok_or(ParseError::Malformed("port of a first flight"))
        };
        Ok(Self {
            address,
            outer_port: port([o, p])?,
            source_port: port([s, t])?,
            destination_port: port([d, e])?,
            isn: SeqNum::new(u32::from_be_bytes([i, j, k, l])),
            window: u16::from_be_bytes([w, x]),
            mss: u16::from_be_bytes([m, n]),
            window_scale,
            sack_permitted: flags & SACK != 0,
            block: block_from(sent, address)?,
            data,
        })
    }

    /// Writes it to the beginning of `out` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooSmall`]; [`EmitError::TooLong`] for more data than [`ConnectionInfo::max_data`];
    /// [`EmitError::MixedFamilies`] for an IPv4-mapped address. The caller is at fault.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let len = self.wire_len();
        if len > Self::MAX_LEN {
            return Err(EmitError::TooLong);
        }
        let Self { address, outer_port, source_port, destination_port, isn, window, mss, .. } = *self;
        if is_mapped(address) {
            return Err(EmitError::MixedFamilies);
        }
        let out = out.get_mut(..len).ok_or(EmitError::BufferTooSmall)?;
        let family = if address.is_ipv4() { 0 } else { IPV6 };
        let sack = if self.sack_permitted { SACK } else { 0 };
        let scale = self.window_scale.map_or(NO_SCALE, WindowScale::get);
        let block = self.block.to_bytes();
        let [certificate, request] = BLOCK_PARTS.map(|part| block.get(part).unwrap_or_default());
        let (v4, v6);
        let address: &[u8] = match address {
            IpAddr::V4(address) => {
                v4 = address.octets();
                &v4
            }
            IpAddr::V6(address) => {
                v6 = address.octets();
                &v6
            }
        };
        let parts: [&[u8]; 12] = [
            &[VERSION_TYPE, family | UDP | sack],
            &outer_port.get().to_be_bytes(),
            &source_port.get().to_be_bytes(),
            &destination_port.get().to_be_bytes(),
            &isn.get().to_be_bytes(),
            &window.to_be_bytes(),
            &mss.to_be_bytes(),
            &[scale, 0],
            address,
            certificate,
            request,
            self.data,
        ];
        for (place, byte) in out.iter_mut().zip(parts.into_iter().flatten()) {
            *place = *byte;
        }
        Ok(len)
    }
}

/// Whether an address is an IPv4-mapped IPv6 address, which would have two encodings.
fn is_mapped(address: IpAddr) -> bool {
    address.to_canonical() != address
}

/// The block whose part `sent` was sent by a client at `address`.
fn block_from(sent: &[u8; BLOCK_SENT], address: IpAddr) -> Result<Block, ParseError> {
    let mut bytes = [0; BLOCK_LEN];
    bytes[..2].copy_from_slice(&BLOCK_MAGIC.to_be_bytes());
    bytes[2..112].copy_from_slice(&sent[..110]);
    bytes[112..114].copy_from_slice(&address_tag(address));
    bytes[114..].copy_from_slice(&sent[110..]);
    Block::parse(&bytes)
}

impl fmt::Debug for ConnectionInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionInfo")
            .field("address", &self.address)
            .field("outer_port", &self.outer_port)
            .field("source_port", &self.source_port)
            .field("destination_port", &self.destination_port)
            .field("isn", &self.isn)
            .field("data_len", &self.data.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
