//! Messages of rtnetlink (Linux `rtnetlink(7)`): how they are written, and how the kernel is asked.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// `NLMSG_ERROR`, also the type of an acknowledgement, with error 0.
const ACKNOWLEDGEMENT: u16 = 2;

/// The length of a `struct nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;
const SEQUENCE: u32 = 1;

/// Sends a message that the kernel acknowledges.
pub(crate) fn command(message: &[u8]) -> io::Result<()> {
    match error_in(&ask(message)?) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw(error.saturating_neg()).into()),
        None => Err(Errno::EPROTO.into()),
    }
}

/// Sends a message to the kernel and returns its answer. The kernel answers such requests at once.
pub(crate) fn ask(message: &[u8]) -> io::Result<Vec<u8>> {
    let route =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(route.as_raw_fd(), message, MsgFlags::empty())?;
    let mut answer = vec![0; 4096];
    let length = recv(route.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(length);
    Ok(answer)
}

pub(crate) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet as u8,
        IpAddr::V6(_) => AddressFamily::Inet6 as u8,
    }
}

/// Appends a `struct rtattr` with an address.
pub(crate) fn append_address(body: &mut Vec<u8>, attribute: u16, address: IpAddr) {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    append(body, attribute, &octets);
}

/// Appends a `struct rtattr`, padded to a multiple of four bytes.
pub(crate) fn append(body: &mut Vec<u8>, attribute: u16, value: &[u8]) {
    body.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
    body.extend_from_slice(&attribute.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Puts a `struct nlmsghdr` in front. Numbers are in the machine's byte order.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&SEQUENCE.to_ne_bytes());
    // Port 0: the kernel fills in the sender.
    message.extend_from_slice(&0u32.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

/// The type of an answer to the request.
pub(crate) fn kind_of(answer: &[u8]) -> Option<u16> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(answer.get(8..12)?.try_into().ok()?);
    (sequence == SEQUENCE).then_some(kind)
}

/// The error number (negative, or 0 for success) in an acknowledgement of the request.
fn error_in(answer: &[u8]) -> Option<i32> {
    let error = answer.get(HEADER_BYTES..HEADER_BYTES + 4)?.try_into().ok()?;
    (kind_of(answer)? == ACKNOWLEDGEMENT).then(|| i32::from_ne_bytes(error))
}

/// Room for one answer of the kernel: it fills at most 32 KiB of a list at once.
const ANSWER_BYTES: usize = 1 << 16;

/// `NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH`: all objects.
pub(crate) const LIST: u16 = 0x001 | 0x300;
/// `NLMSG_DONE`: the end of a list.
const DONE: u16 = 3;

/// A socket of a protocol of netlink, with several requests one after another.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// A socket to ask with.
    pub(crate) fn open(protocol: SockProtocol) -> io::Result<Self> {
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?))
    }

    /// Sends a request, and gives `each` the type and body of every message of the answer.
    /// Errors: the kernel's answer, and the system's.
    pub(crate) fn request(&self, message: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, MsgFlags::empty())?;
        let listed = message.get(6..8).is_some_and(|flags| flags == LIST.to_ne_bytes());
        let mut room = vec![0; ANSWER_BYTES];
        loop {
            let len = recv(self.0.as_raw_fd(), &mut room, MsgFlags::empty())?;
            for (kind, body) in messages(room.get(..len).unwrap_or_default()) {
                match kind {
                    DONE => return Ok(()),
                    ACKNOWLEDGEMENT => {
                        let error = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                        return match error {
                            0 => Ok(()),
                            error => Err(Errno::from_raw(error.saturating_neg()).into()),
                        };
                    }
                    _ => each(kind, body),
                }
            }
            if !listed {
                return Ok(());
            }
        }
    }
}

/// The messages of an answer: type and body.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The attributes behind the fixed part of a body: type without its flags, and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & 0x3fff, value))
    })
}

pub(crate) fn address_of(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

/// A number of 32 bits at `offset`, in the machine's byte order.
pub(crate) fn word_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}
