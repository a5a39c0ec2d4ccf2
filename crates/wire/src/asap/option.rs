//! The TCP option, kind 253.

use super::EXID;
use super::numbered::numbered;
use crate::tcp::OptionBytes;
use core::net::Ipv4Addr;

const KIND: u8 = 253;
const VERSION: u8 = 1;
const PROBE: u8 = 0;
const BLOCK: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;
const PROOF: u8 = 4;
const LONG_REPLY_WELCOME: u8 = 1;

/// The option of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AsapOption {
    /// Asks whether the server understands ASAP; it contains no credential.
    Probe {
        /// The answer may take 16 bytes instead of 8.
        long_reply: bool,
    },
    /// The payload begins with a credential block.
    Block {
        /// The answer may take 16 bytes instead of 8.
        long_reply: bool,
        /// Length of the block, including padding, bytes.
        len: u16,
    },
}

impl AsapOption {
    /// Reads what follows the experiment identifier; `None` if it is of another version or malformed. Even
    /// then, a payload behind such an option must not be delivered, because it may contain a credential.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let &[form, flags, high, low] = data else { return None };
        if form >> 4 != VERSION || flags & !LONG_REPLY_WELCOME != 0 {
            return None;
        }
        let long_reply = flags & LONG_REPLY_WELCOME != 0;
        let len = u16::from_be_bytes([high, low]);
        match form & 0xf {
            PROBE if len == 0 => Some(Self::Probe { long_reply }),
            BLOCK if usize::from(len) >= super::BLOCK_LEN => Some(Self::Block { long_reply, len }),
            _ => None,
        }
    }

    /// Whether the answer may take 16 bytes.
    #[must_use]
    pub const fn long_reply(self) -> bool {
        match self {
            Self::Probe { long_reply } | Self::Block { long_reply, .. } => long_reply,
        }
    }
}

impl From<AsapOption> for OptionBytes {
    /// The whole option, 8 bytes.
    fn from(option: AsapOption) -> Self {
        let (form, len) = match option {
            AsapOption::Probe { .. } => (PROBE, 0),
            AsapOption::Block { len, .. } => (BLOCK, len),
        };
        let flags = if option.long_reply() { LONG_REPLY_WELCOME } else { 0 };
        let ([x, y], [high, low]) = (EXID.to_be_bytes(), len.to_be_bytes());
        Self::new(&[KIND, 8, x, y, (VERSION << 4) | form, flags, high, low]).unwrap_or_default()
    }
}

numbered! {
    /// A server's answer to an [`AsapOption`]. A hint may guide the client; it never authorises anything.
    #[non_exhaustive]
    pub enum Status {
        Capable = 0 "capable" "the server understands ASAP"
        Accepted = 1 "accepted" "the first flight was delivered"
        Disabled = 2 "disabled" "the listener takes no certificates"
        Overloaded = 3 "overloaded" "the server has no time to verify signatures, or no room"
        UnknownVerifier = 4 "unknown-verifier" "the server does not trust the verifier that signed"
        Expired = 5 "expired" "the certificate has expired, or is older than the server takes"
        NotYetValid = 6 "not-yet-valid" "the certificate is not valid yet"
        AddressMismatch = 7 "address-mismatch" "the certificate is for another address than the packet's"
        BadSignature = 8 "bad-signature" "a signature is wrong"
        OutsideWindow = 9 "outside-window" "the request is too old, or from the future"
        Replayed = 10 "replayed" "the request was seen before"
        WrongIdentity = 11 "wrong-identity" "the request is for a server of another identity"
        Policy = 12 "policy" "the server's policy does not allow it"
        Malformed = 13 "malformed" "the option or the block is malformed"
        GuardFloor = 14 "guard-floor" "the request is older than the memory of the server's replay guard"
        Barred = 15 "barred" "the client's key or address is barred for a while"
    }
}

/// The additional content of a 16-byte [`Reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hint {
    /// No hint: the reply takes 8 bytes.
    #[default]
    None,
    /// The server's time, Unix seconds. For display, and to decide whether a new certificate is due; never use
    /// it as the time of a request.
    Time(u32),
    /// With [`Status::UnknownVerifier`]: the time as in [`Hint::Time`], and a verifier that the server trusts.
    Trusts(u32, super::VerifierId),
    /// With [`Status::AddressMismatch`]: the time as in [`Hint::Time`], and the IPv4 address that the server
    /// sees.
    Sees(u32, Ipv4Addr),
    /// The proof of a server to which the client sent nothing directly (the request travelled by DNS).
    Proof([u8; 8]),
}

/// The option of a SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The result for the option.
    pub status: Status,
    /// First two bytes of the request's id; zero for a probe.
    pub tag: [u8; 2],
    /// More content, if the client accepts a long reply.
    pub hint: Hint,
}

impl Reply {
    /// Reads what follows the experiment identifier; `None` if it is of another version or malformed.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (&[form, status, a, b], more) = data.split_first_chunk::<4>()?;
        if form >> 4 != VERSION {
            return None;
        }
        let status = Status::from_u8(status)?;
        let hint = match (form & 0xf, more) {
            (SHORT, []) => Hint::None,
            (LONG, &[t, u, v, w, e, f, g, h]) => {
                let time = u32::from_be_bytes([t, u, v, w]);
                match status {
                    Status::UnknownVerifier if [e, f, g, h] != [0; 4] => {
                        Hint::Trusts(time, super::VerifierId([e, f, g, h]))
                    }
                    Status::AddressMismatch if [e, f, g, h] != [0; 4] => {
                        Hint::Sees(time, Ipv4Addr::new(e, f, g, h))
                    }
                    _ if [e, f, g, h] == [0; 4] => Hint::Time(time),
                    _ => return None,
                }
            }
            (PROOF, proof) => Hint::Proof(proof.try_into().ok()?),
            _ => return None,
        };
        Some(Self { status, tag: [a, b], hint })
    }
}

impl From<Reply> for OptionBytes {
    /// The whole option, 8 or 16 bytes.
    fn from(reply: Reply) -> Self {
        let Reply { status, tag: [a, b], hint } = reply;
        let [x, y] = EXID.to_be_bytes();
        let head = |len, form| [KIND, len, x, y, (VERSION << 4) | form, status as u8, a, b];
        let mut bytes = [0; 16];
        let (time, more) = match hint {
            Hint::None => return Self::new(&head(8, SHORT)).unwrap_or_default(),
            Hint::Time(time) => (time, [0; 4]),
            Hint::Trusts(time, id) => (time, id.0),
            Hint::Sees(time, address) => (time, address.octets()),
            Hint::Proof(proof) => {
                bytes[..8].copy_from_slice(&head(16, PROOF));
                bytes[8..].copy_from_slice(&proof);
                return Self::new(&bytes).unwrap_or_default();
            }
        };
        bytes[..8].copy_from_slice(&head(16, LONG));
        bytes[8..12].copy_from_slice(&time.to_be_bytes());
        bytes[12..].copy_from_slice(&more);
        Self::new(&bytes).unwrap_or_default()
    }
}
