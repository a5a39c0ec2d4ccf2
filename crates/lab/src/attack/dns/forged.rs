//! What an attacker makes: labels with arbitrary content, and messages of every kind.

use super::site::{ZONE, zone};
use firstflight_dns::{FragmentQuery, LABEL};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

/// Bytes of a label's number, and its digits.
const BYTES: usize = 58;
const DIGITS: usize = 60;

/// The label of these 58 bytes (dns-path.md, 6.1 and 6.2): long division, digit by digit.
pub fn label(bytes: &[u8; BYTES]) -> [u8; LABEL] {
    let mut number = *bytes;
    let mut label = *b"ff0............................................................";
    for place in label.iter_mut().rev().take(DIGITS) {
        let mut rest = 0;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            *byte = (value / 230) as u8;
            rest = value % 230;
        }
        let digit = rest as u8;
        *place = if digit < b'A' { digit } else { digit + 26 };
    }
    label
}

/// The 58 bytes in a label of a fragment.
pub fn bytes(label: &[u8; LABEL]) -> [u8; BYTES] {
    let mut number = [0; BYTES];
    for octet in &label[LABEL - DIGITS..] {
        let octet = octet.to_ascii_lowercase();
        let mut carry = u32::from(if octet < b'A' { octet } else { octet - 26 });
        for byte in number.iter_mut().rev() {
            let value = u32::from(*byte) * 230 + carry;
            *byte = value as u8;
            carry = value >> 8;
        }
    }
    number
}

/// The id in such bytes.
pub fn id_of(bytes: &[u8; BYTES]) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = *bytes;
    [a, b, c, d, e, f]
}

/// A fragment with this id and index, one of 7, with random content.
pub fn fragment(id: [u8; 6], index: u8, random: &mut ChaCha20Rng) -> [u8; LABEL] {
    let mut bytes = [0; BYTES];
    random.fill_bytes(&mut bytes);
    bytes[..6].copy_from_slice(&id);
    bytes[6] = index << 4 | 6;
    bytes[7] = 1;
    label(&bytes)
}

/// A random id of six bytes that belongs to no first flight.
pub fn id(random: &mut ChaCha20Rng) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = random.next_u64().to_be_bytes();
    [a, b, c, d, e, f]
}

/// The query for a label below the DNS-path zone.
pub fn ask(label: &[u8; LABEL], number: u16) -> Vec<u8> {
    let query = zone().and_then(|zone| FragmentQuery::new(number, label, zone).ok());
    query.map(|query| query.as_bytes().to_vec()).unwrap_or_default()
}

/// A query for `labels` below the DNS-path zone's parent, of type `kind`; with EDNS, so that an answer may have 4,096
/// octets.
pub fn query(labels: &[&str], kind: u16, edns: bool) -> Vec<u8> {
    let parent = ZONE.get(2..).unwrap_or_default();
    whole_query(labels, parent, kind, edns)
}

/// A query for `labels` followed by the name `rest`.
pub fn whole_query(labels: &[&str], rest: &[u8], kind: u16, edns: bool) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)];
    for label in labels {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(rest);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    if edns {
        message.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_dns::{Fragment, FragmentPart};
    use rand_chacha::rand_core::SeedableRng;

    /// The label is encoded here, and parsed by the front's parser.
    #[test]
    fn what_is_forged_is_a_fragment() {
        let mut random = ChaCha20Rng::seed_from_u64(1);
        for index in 0..7 {
            let id = id(&mut random);
            let made = fragment(id, index, &mut random);
            assert_eq!((id_of(&bytes(&made)), label(&bytes(&made))), (id, made));
            let fragment = Fragment::parse(&made).unwrap();
            assert_eq!((fragment.part(), fragment.count()), (FragmentPart::Data(index), 7));
            assert!(format!("{:?}", fragment.id()).ends_with(&format!("{:02x}", id[5])));
        }
    }
}
