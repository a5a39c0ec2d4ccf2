//! The thesis' own form (its section 5.1): connection information in plain text, in the labels of one name,
//! `a.CI.www.xyz.com`. It represents a SYN on IP, as in the thesis' kernel version (chapter 6). It is used only for
//! the experiments in this simulator: resolvers and name servers log names, and today's resolvers ask for them label
//! by label.

use super::names::{HOST, plain};
use firstflight_dns::{ConnectionInfo, Name};
use firstflight_wire::ip::{Ecn, Header, Protocol};
use firstflight_wire::tcp::fill_checksum;
use std::net::IpAddr;

/// Longest label, octets.
const LABEL: usize = 63;
/// The longest connection information that fits into a name between `a` and `www.xyz.com`.
pub const ROOM: usize = 255 - 2 - 4 - 13;

/// The name that carries `ci`; `None` if it is too long.
pub fn name(ci: &[u8]) -> Option<Name> {
    let host = plain();
    let labels = std::iter::once(&b"a"[..]).chain(ci.chunks(LABEL)).chain(host);
    if ci.len() > ROOM { None } else { Name::from_labels(labels).ok() }
}

/// The connection information in a name with this form.
pub fn read(name: &Name) -> Option<Vec<u8>> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let (first, rest) = labels.split_first()?;
    let carried = rest.len().checked_sub(HOST)?;
    (*first == b"a" && carried > 0).then(|| rest.get(..carried).unwrap_or_default().concat())
}

/// The SYN that `ci` represents, on IP, as if its client had sent it to `server`.
pub fn packet(ci: &ConnectionInfo<'_>, server: IpAddr) -> Option<Vec<u8>> {
    let segment = ci.segment();
    let header = Header {
        src: ci.address,
        dst: server,
        protocol: Protocol::Tcp,
        hop_limit: 64,
        ecn: Ecn::default(),
        dont_fragment: true,
        identification: 1,
    };
    let mut packet = vec![0; 40 + segment.len()];
    let at = header.emit(segment.len(), &mut packet).ok()?;
    packet.truncate(at + segment.len());
    packet.get_mut(at..)?.copy_from_slice(&segment);
    fill_checksum(packet.get_mut(at..)?, ci.address, server);
    Some(packet)
}
