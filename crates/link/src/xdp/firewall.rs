//! What would see the packets that the program takes: rules of the packet filter, and hooks of tc.

use std::io;

use nix::sys::socket::SockProtocol;

use super::{device, sys};
use crate::netlink::{LIST, Netlink, attributes, message};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN`.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// Length of `struct nfgenmsg`.
const BODY: usize = 4;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`, `NFTA_CHAIN_HOOK`, `NFTA_CHAIN_POLICY`, `NFTA_CHAIN_USE`; `NFTA_HOOK_HOOKNUM`.
const TABLE: u16 = 1;
const NAME: u16 = 3;
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const USE: u16 = 6;
const HOOK_NUMBER: u16 = 1;
/// `NF_INET_PRE_ROUTING` and `NF_INET_LOCAL_IN`; `NF_NETDEV_INGRESS`.
const PREROUTING: u32 = 0;
const INPUT: u32 = 1;
const INGRESS: u32 = 0;
/// `NFPROTO_INET`, `NFPROTO_IPV4`, `NFPROTO_NETDEV`, `NFPROTO_IPV6`.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const IPV6: u8 = 10;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;

/// The first thing that would see or drop packets to this host, in words. `None` if there is nothing.
pub(super) fn in_the_way(index: u32) -> io::Result<Option<String>> {
    if let Some(chain) = chain()? {
        return Ok(Some(format!("the chain {chain} of nftables has rules or drops packets")));
    }
    for (family, names) in [("iptables", "ip_tables_names"), ("ip6tables", "ip6_tables_names")] {
        match std::fs::read_to_string(format!("/proc/self/net/{names}")) {
            Ok(tables) => {
                if let Some(table) = tables.split_whitespace().next() {
                    return Ok(Some(format!("{family} (legacy) has the table {table}")));
                }
            }
            // A kernel without it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => {
                return Ok(Some(format!("{family} (legacy) may have tables, which only root can read")));
            }
        }
    }
    if device::has_ingress_hook(index)? {
        return Ok(Some("tc has a hook (clsact or ingress) on the device".to_owned()));
    }
    if sys::ingress_programs(index) > 0 {
        return Ok(Some("a program of tcx is on the device".to_owned()));
    }
    Ok(None)
}

/// A base chain that packets to this host pass, with rules or with a policy that drops.
fn chain() -> io::Result<Option<String>> {
    let netlink = match Netlink::open(SockProtocol::NetlinkNetFilter) {
        Ok(netlink) => netlink,
        // A kernel without netfilter.
        Err(error) if error.raw_os_error() == Some(nix::libc::EPROTONOSUPPORT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut found = None;
    let result = netlink.request(&message(GET_CHAIN, LIST, &[0; BODY]), |_, body| {
        if found.is_none() {
            found = relevant(body);
        }
    });
    match result {
        Ok(()) => Ok(found),
        // A kernel without nftables.
        Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn relevant(body: &[u8]) -> Option<String> {
    let family = *body.first()?;
    let (mut table, mut name, mut hook, mut policy, mut used) = (None, None, None, ACCEPT, 0);
    for (kind, value) in attributes(body.get(BODY..)?) {
        match kind {
            TABLE => table = Some(value),
            NAME => name = Some(value),
            HOOK => {
                let number = attributes(value).find(|(kind, _)| *kind == HOOK_NUMBER);
                hook = number.and_then(|(_, value)| big_endian(value));
            }
            POLICY => policy = big_endian(value)?,
            USE => used = big_endian(value)?,
            _ => {}
        }
    }
    let sees = matches!((family, hook?), (INET | IPV4 | IPV6, PREROUTING | INPUT) | (NETDEV, INGRESS));
    let words = |value: Option<&[u8]>| {
        String::from_utf8_lossy(value.unwrap_or_default()).trim_end_matches('\0').to_owned()
    };
    (sees && (used > 0 || policy != ACCEPT)).then(|| format!("{} {}", words(table), words(name)))
}

fn big_endian(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*value.first_chunk()?))
}
