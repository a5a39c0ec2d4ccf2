//! Names of the DNS-path zone, in the uncompressed wire form of RFC 1035 §3.1.

use firstflight_wire::asap::Zone;
use hickory_proto::rr::Name;

/// The longest name, octets (RFC 1035 §2.3.4).
pub(crate) const MAX_NAME: usize = 255;
/// Octets of a DNS message's header.
pub(crate) const HEADER: usize = 12;
/// Octets of the type and class after a question's name.
pub(crate) const TYPE_AND_CLASS: usize = 4;

/// The position of a name in relation to a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position<'a> {
    /// It is not in the zone.
    Outside,
    /// It is the zone's own name.
    Apex,
    /// It is one label below the zone's name, and this is the label. Only such a name can be a fragment.
    Child(&'a [u8]),
    /// It is more than one label below.
    Deeper,
}

/// The uncompressed wire form of a name, in lower case, as a [`Zone`] needs it.
#[must_use]
pub fn wire_form(name: &Name) -> Vec<u8> {
    let mut wire = Vec::with_capacity(MAX_NAME);
    for label in name {
        // A label has at most 63 octets.
        wire.push(label.len() as u8);
        wire.extend(label.iter().map(u8::to_ascii_lowercase));
    }
    wire.push(0);
    wire
}

/// The position of `name`, in wire form, in relation to `zone`. Letters match in either case (RFC 4343).
#[must_use]
pub fn position<'a>(name: &'a [u8], zone: Zone<'_>) -> Position<'a> {
    let zone = zone.as_bytes();
    let mut rest = name;
    let mut labels = 0;
    loop {
        if rest.eq_ignore_ascii_case(zone) {
            return match (labels, name.split_first()) {
                (0, _) => Position::Apex,
                (1, Some((&len, rest))) => {
                    rest.get(..usize::from(len)).map_or(Position::Outside, Position::Child)
                }
                _ => Position::Deeper,
            };
        }
        let Some((&len @ 1..=63, behind)) = rest.split_first() else { return Position::Outside };
        let Some(behind) = behind.get(usize::from(len)..) else { return Position::Outside };
        rest = behind;
        labels += 1;
    }
}

/// The only question of `message`, as its octets: name, type and class. `None` if its name is compressed, too
/// long or incomplete.
pub(crate) fn question(message: &[u8]) -> Option<&[u8]> {
    let rest = message.get(HEADER..)?;
    let mut at = 0;
    loop {
        match usize::from(*rest.get(at)?) {
            0 => break,
            len @ 1..=63 => at += 1 + len,
            _ => return None,
        }
    }
    let name = at + 1;
    if name > MAX_NAME { None } else { rest.get(..name + TYPE_AND_CLASS) }
}

pub(crate) fn name(question: &[u8]) -> &[u8] {
    question.split_last_chunk::<TYPE_AND_CLASS>().map_or(&[], |(name, _)| name)
}

#[cfg(test)]
mod tests;
