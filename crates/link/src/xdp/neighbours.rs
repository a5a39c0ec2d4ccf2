//! Where a packet goes next: the kernel's routes and its table of neighbours.
//!
//! The kernel stays the owner of both. It resolves addresses, notices when a router gets another one, and this process
//! follows. The link-layer address that a frame came from is used only for a client on the link that the kernel does not
//! know yet: a frame says what its sender likes, and an answer may have to go another way than the question came.
//!
//! Asking the kernel to resolve an address needs `CAP_NET_ADMIN`. A process without it sends there: the kernel resolves the address for that.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::SockProtocol;
use socket2::{Domain, Socket, Type};

use super::error::errno;
use super::routes::Routes;
use super::sys;
use crate::netlink::{Netlink, address_of, append_address, attributes, family, message, word_at};

/// `RTM_GETNEIGH` and `RTM_NEWNEIGH`.
const GET_NEIGHBOUR: u16 = 30;
const NEW_NEIGHBOUR: u16 = 28;
/// `NLM_F_REQUEST`; `NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE`.
const REQUEST: u16 = 0x001;
const CREATE: u16 = 0x001 | 0x004 | 0x400;
/// Length of `struct ndmsg`.
const NEIGHBOUR_BYTES: usize = 12;
/// `NDA_DST`, `NDA_LLADDR`.
const NEIGHBOUR: u16 = 1;
const LINK_ADDRESS: u16 = 2;
/// `NUD_INCOMPLETE | NUD_FAILED`.
const UNRESOLVED: u16 = 0x01 | 0x20;
/// `NUD_INCOMPLETE | NUD_REACHABLE | NUD_DELAY | NUD_PROBE | NUD_NOARP | NUD_PERMANENT`: the kernel knows the address, or is asking for it.
const IN_HAND: u16 = 0x01 | 0x02 | 0x08 | 0x10 | 0x40 | 0x80;
/// The port of a service that throws away what it gets (RFC 863).
const DISCARD: u16 = 9;
/// `NTF_USE`: as if a packet were sent there, so that the kernel resolves or confirms the address.
const USE: u8 = 0x01;

/// Neighbours that are remembered. When there are more, all are asked for again.
const MOST_NEIGHBOURS: usize = 1 << 14;
/// Places for senders that the kernel may not know.
const HEARD: usize = 256;
/// How often the kernel is asked to confirm an address that is in use.
const CONFIRM: Duration = Duration::from_secs(5);
/// The pause between two requests to resolve an address that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// A link-layer address of Ethernet.
pub(super) type Mac = [u8; 6];

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextHop {
    /// To this link-layer address.
    Known(Mac),
    /// To this neighbour, which the kernel is resolving.
    Resolving(IpAddr),
    /// Nowhere: the kernel has no route by this device to that host.
    None,
}

#[derive(Debug)]
struct Neighbour {
    mac: Option<Mac>,
    /// When the kernel was last asked to resolve or confirm it.
    asked: Instant,
}

/// The next hops of one queue.
pub(super) struct Hops {
    device: u32,
    netlink: Netlink,
    routes: Routes,
    neighbours: HashMap<IpAddr, Neighbour>,
    heard: Vec<Option<(IpAddr, Mac)>>,
}

impl Hops {
    pub(super) fn new(device: u32) -> io::Result<Self> {
        let netlink = Netlink::open(SockProtocol::NetlinkRoute)?;
        let heard = vec![None; HEARD];
        Ok(Self { device, netlink, routes: Routes::new(device), neighbours: HashMap::new(), heard })
    }

    /// A frame came from this host, or from its router.
    pub(super) fn hear(&mut self, from: IpAddr, mac: Mac) {
        let heard = Some((from, mac));
        if let Some(place) = self.heard.get_mut(place(from))
            && *place != heard
        {
            *place = heard;
        }
    }

    /// The next hop of a packet from one of our addresses.
    pub(super) fn find(&mut self, src: IpAddr, dst: IpAddr, now: Instant) -> NextHop {
        let Some(next) = self.routes.next(&self.netlink, src, dst) else { return NextHop::None };
        if let Some(neighbour) = self.neighbours.get_mut(&next) {
            let due = if neighbour.mac.is_some() { CONFIRM } else { AGAIN };
            let (mac, ask) = (neighbour.mac, now.saturating_duration_since(neighbour.asked) >= due);
            if ask {
                neighbour.asked = now;
                self.resolve(next);
            }
            return mac.map_or(NextHop::Resolving(next), NextHop::Known);
        }
        if self.neighbours.len() >= MOST_NEIGHBOURS {
            self.neighbours.clear();
        }
        // The kernel's entry counts. Without one, the client's own frame does, if it is on the link.
        let known = self.neighbour(next);
        let mac = known.or_else(|| if next == dst { self.heard_from(dst) } else { None });
        self.resolve(next);
        self.neighbours.insert(next, Neighbour { mac, asked: now });
        mac.map_or(NextHop::Resolving(next), NextHop::Known)
    }

    fn heard_from(&self, host: IpAddr) -> Option<Mac> {
        let (heard, mac) = (*self.heard.get(place(host))?)?;
        (heard == host).then_some(mac)
    }

    /// Everything is asked for again.
    pub(super) fn forget(&mut self) {
        self.routes.forget();
        self.neighbours.clear();
    }

    /// The routes have changed.
    pub(super) fn forget_routes(&mut self) {
        self.routes.forget();
    }

    /// The kernel says something about a neighbour: `RTM_NEWNEIGH`, or `RTM_DELNEIGH` if it is `gone`. Returns the neighbour
    /// if its address is known now.
    pub(super) fn take(&mut self, body: &[u8], gone: bool) -> Option<(IpAddr, Mac)> {
        let Entry { device, address, mac, .. } = read(body)?;
        let neighbour = self.neighbours.get_mut(&address).filter(|_| device == self.device)?;
        if gone {
            // The kernel forgets what nobody uses. It is asked again with the next packet.
            self.neighbours.remove(&address);
            return None;
        }
        neighbour.mac = mac;
        Some((address, mac?))
    }

    /// The kernel's entry of a neighbour.
    fn neighbour(&self, address: IpAddr) -> Option<Mac> {
        self.entry(address)?.mac
    }

    fn entry(&self, address: IpAddr) -> Option<Entry> {
        let mut found = None;
        let request = message(GET_NEIGHBOUR, REQUEST, &self.body_of(address, 0));
        self.netlink.request(&request, |_, body: &[u8]| found = read(body)).ok()?;
        found
    }

    /// Lets the kernel resolve or confirm the address.
    fn resolve(&self, address: IpAddr) {
        let request = message(NEW_NEIGHBOUR, CREATE, &self.body_of(address, USE));
        if let Err(error) = self.netlink.request(&request, |_, _| {})
            && errno(&error) == Some(Errno::EPERM)
            && self.entry(address).is_none_or(|entry| entry.state & IN_HAND == 0)
        {
            // If it fails, too, another program may send there.
            let _ = self.send_there(address);
        }
    }

    /// Sends an empty datagram to the neighbour. It does not leave the link.
    fn send_there(&self, address: IpAddr) -> io::Result<()> {
        let to: SocketAddr = match address {
            IpAddr::V4(address) => (address, DISCARD).into(),
            IpAddr::V6(address) => SocketAddrV6::new(address, DISCARD, 0, self.device).into(),
        };
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &self.device)?;
        socket.send_to_with_flags(&[], &to.into(), libc::MSG_DONTROUTE).map(drop)
    }

    fn body_of(&self, address: IpAddr, flags: u8) -> Vec<u8> {
        // struct ndmsg: family, padding, device, state, flags, type.
        let mut body = vec![0; NEIGHBOUR_BYTES];
        body.splice(..1, [family(address)]);
        body.splice(4..8, self.device.to_ne_bytes());
        body.splice(10..11, [flags]);
        append_address(&mut body, NEIGHBOUR, address);
        body
    }
}

/// Where a sender is remembered.
fn place(address: IpAddr) -> usize {
    let last = match address {
        IpAddr::V4(address) => address.octets().iter().fold(0_u8, |sum, octet| sum.wrapping_mul(31) ^ octet),
        IpAddr::V6(address) => address.octets().iter().fold(0_u8, |sum, octet| sum.wrapping_mul(31) ^ octet),
    };
    usize::from(last) % HEARD
}

/// An entry of the kernel's table.
struct Entry {
    device: u32,
    address: IpAddr,
    /// The link-layer address, if it is resolved.
    mac: Option<Mac>,
    state: u16,
}

fn read(body: &[u8]) -> Option<Entry> {
    let device = word_at(body, 4)?;
    let state = u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?);
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(body.get(NEIGHBOUR_BYTES..)?) {
        match kind {
            NEIGHBOUR => address = address_of(value),
            LINK_ADDRESS => mac = Mac::try_from(value).ok(),
            _ => {}
        }
    }
    Some(Entry { device, address: address?, mac: mac.filter(|_| state & UNRESOLVED == 0), state })
}
