//! Which destinations the kernel's routes and rules tell apart. All others of a prefix have one next hop, so the kernel is asked once for
//! each prefix, however many hosts an attacker pretends to be.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crate::netlink::{
    LIST, Netlink, address_of, append, append_address, attributes, family, message, word_at,
};

/// `RTM_GETROUTE` and `RTM_GETRULE`.
const GET_ROUTE: u16 = 26;
const GET_RULE: u16 = 34;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 0x001;
/// Length of `struct rtmsg`, and of `struct fib_rule_hdr`, which also has the length of the destination as its second byte.
const BYTES: usize = 12;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [nix::libc::AF_INET as u8, nix::libc::AF_INET6 as u8];
/// `RTN_UNICAST`.
const UNICAST: u8 = 1;
/// `RTA_DST` (and `FRA_DST`), `RTA_SRC`, `RTA_OIF`, `RTA_GATEWAY`, `RTA_VIA`.
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const OUTPUT: u16 = 4;
const GATEWAY: u16 = 5;
const VIA: u16 = 18;
/// `RTM_F_FIB_MATCH`: the route itself is wanted, not what is known of one destination, as after a redirect.
const MATCH: u32 = 0x2000;

/// The most prefixes that are kept. With more, as with all routes of the Internet, the kernel is asked for each destination.
const MOST_PREFIXES: usize = 1 << 14;
/// Destinations that are remembered for themselves. When there are more, all are asked for again.
const MOST_HOSTS: usize = 1 << 14;
/// Places for the destinations of the last packets.
const RECENT: usize = 1 << 10;

/// The first bits of addresses, and their number. IPv4 addresses are the upper bits.
type Prefix = (u128, u8);

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteWay {
    /// The destination is on the link.
    OnLink,
    /// This neighbour is a router.
    Via(IpAddr),
    /// There is none by the device.
    None,
    /// It depends on the destination.
    Several,
}

impl RouteWay {
    fn to(self, dst: IpAddr) -> Option<IpAddr> {
        match self {
            Self::OnLink => Some(dst),
            Self::Via(router) => Some(router),
            Self::None | Self::Several => None,
        }
    }
}

/// Prefixes of one family.
#[derive(Default)]
struct Prefixes {
    /// Their lengths, the longest first.
    lens: Vec<u8>,
    all: HashSet<Prefix>,
}

impl Prefixes {
    fn of(all: HashSet<Prefix>) -> Self {
        let mut lens: Vec<u8> = all.iter().map(|(_, len)| *len).collect();
        lens.sort_unstable_by(|a, b| b.cmp(a));
        lens.dedup();
        Self { lens, all }
    }

    /// The longest one of an address.
    fn longest(&self, bits: u128) -> Prefix {
        let of = |len: &u8| (masked(bits, *len), *len);
        self.lens.iter().map(of).find(|prefix| self.all.contains(prefix)).unwrap_or_default()
    }
}

const fn masked(bits: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { bits & (u128::MAX << (128 - len as u32)) }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The next hops of destinations.
pub(super) struct Routes {
    device: u32,
    /// IPv4 and IPv6; `None` until the kernel was asked. A family with too many prefixes has none.
    prefixes: Option<[Option<Prefixes>; 2]>,
    ways: HashMap<(IpAddr, Prefix), RouteWay>,
    hosts: HashMap<(IpAddr, IpAddr), Option<IpAddr>>,
    recent: Vec<Option<(IpAddr, IpAddr, Option<IpAddr>)>>,
}

impl Routes {
    pub(super) fn new(device: u32) -> Self {
        let recent = vec![None; RECENT];
        Self { device, prefixes: None, ways: HashMap::new(), hosts: HashMap::new(), recent }
    }

    /// The routes have changed.
    pub(super) fn forget(&mut self) {
        self.prefixes = None;
        self.ways.clear();
        self.hosts.clear();
        self.recent.fill(None);
    }

    /// The neighbour on the way from `src` to `dst`; `None` if there is no way by the device.
    pub(super) fn next(&mut self, netlink: &Netlink, src: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        let place = place(dst);
        if let Some(Some((from, to, next))) = self.recent.get(place)
            && (*from, *to) == (src, dst)
        {
            return *next;
        }
        let next = self.look_up(netlink, src, dst);
        if let Some(place) = self.recent.get_mut(place) {
            *place = Some((src, dst, next));
        }
        next
    }

    fn look_up(&mut self, netlink: &Netlink, src: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        let prefixes = self.prefixes.get_or_insert_with(|| FAMILIES.map(|family| list(netlink, family)));
        let [v4, v6] = prefixes;
        if let Some(prefixes) = if dst.is_ipv4() { v4 } else { v6 } {
            let key = (src, prefixes.longest(bits_of(dst)));
            let device = self.device;
            let way = *self.ways.entry(key).or_insert_with(|| ask(netlink, device, (src, dst), MATCH));
            if way != RouteWay::Several {
                return way.to(dst);
            }
        }
        if let Some(next) = self.hosts.get(&(src, dst)) {
            return *next;
        }
        if self.hosts.len() >= MOST_HOSTS {
            self.hosts.clear();
        }
        let next = ask(netlink, self.device, (src, dst), 0).to(dst);
        self.hosts.insert((src, dst), next);
        next
    }
}

/// Where a destination of the last packets is remembered.
fn place(address: IpAddr) -> usize {
    let bits = bits_of(address);
    let mixed = ((bits >> 64) as u64 ^ bits as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize % RECENT
}

/// All prefixes of a family in routes and rules. `None` if there are too many, or the kernel does not say.
fn list(netlink: &Netlink, family: u8) -> Option<Prefixes> {
    let mut all = HashSet::new();
    let mut body = vec![0; BYTES];
    body.splice(..1, [family]);
    for kind in [GET_ROUTE, GET_RULE] {
        let each = |_, body: &[u8]| {
            if body.first() == Some(&family) && all.len() <= MOST_PREFIXES {
                all.extend(prefix_in(body));
            }
        };
        netlink.request(&message(kind, LIST, &body), each).ok()?;
    }
    (all.len() <= MOST_PREFIXES).then(|| Prefixes::of(all))
}

/// The destination of a route or rule.
fn prefix_in(body: &[u8]) -> Option<Prefix> {
    let len = *body.get(1)?;
    let (_, value) =
        attributes(body.get(BYTES..)?).find(|(kind, _)| *kind == DESTINATION).unwrap_or_default();
    let bits = address_of(value).map_or(0, bits_of);
    Some((masked(bits, len), len))
}

/// Asks for the way.
fn ask(netlink: &Netlink, device: u32, (src, dst): (IpAddr, IpAddr), flags: u32) -> RouteWay {
    let bits = if dst.is_ipv4() { 32 } else { 128 };
    let mut body = vec![0; BYTES];
    body.splice(..3, [family(dst), bits, bits]);
    body.splice(8.., flags.to_ne_bytes());
    append_address(&mut body, DESTINATION, dst);
    append_address(&mut body, SOURCE, src);
    append(&mut body, OUTPUT, &device.to_ne_bytes());
    let mut way = RouteWay::None;
    let asked = netlink.request(&message(GET_ROUTE, REQUEST, &body), |_, body| {
        way = way_in(body, device).unwrap_or(RouteWay::None);
    });
    asked.map_or(RouteWay::None, |()| way)
}

/// The way in the answer to a question for a route.
fn way_in(body: &[u8], device: u32) -> Option<RouteWay> {
    if *body.get(7)? != UNICAST {
        return None;
    }
    let (mut output, mut gateway) = (None, None);
    for (kind, value) in attributes(body.get(BYTES..)?) {
        match kind {
            OUTPUT => output = word_at(value, 0),
            GATEWAY => gateway = address_of(value),
            // struct rtvia: the family, and the address of another one than the destination's.
            VIA => gateway = address_of(value.get(2..)?),
            _ => {}
        }
    }
    match output {
        // A route with several next hops names none.
        None => Some(RouteWay::Several),
        Some(output) => (output == device).then_some(gateway.map_or(RouteWay::OnLink, RouteWay::Via)),
    }
}

#[cfg(test)]
mod tests;
