//! How a card chooses the queue of a packet (receive side scaling): by a hash of addresses and ports, and a table of queues.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::sys;
use crate::link::ComesHere;

/// `ETHTOOL_GRSSH` and `ETHTOOL_GRXFH`.
const GET_HASH: u32 = 0x46;
const GET_FIELDS: u32 = 0x29;
/// `ETH_RSS_HASH_TOP`: Toeplitz.
const TOEPLITZ: u8 = 1;
/// `TCP_V4_FLOW` and `TCP_V6_FLOW`.
const FLOWS: [u32; 2] = [1, 5];
/// `RXH_IP_SRC | RXH_IP_DST | RXH_L4_B_0_1 | RXH_L4_B_2_3`: both addresses and both ports.
const FIELDS: u64 = 0xf0;
/// The most entries of a table, and words of a key behind it.
const MOST_ENTRIES: usize = 4096;
const MOST_KEY: usize = 32;
/// Bytes of the key that the longest input needs: two addresses and two ports, and four more.
const KEY: usize = 40;

/// `struct ethtool_rxfh`: the table, and behind it the key.
#[repr(C)]
#[derive(Clone, Copy)]
struct Hash {
    command: u32,
    context: u32,
    entries: u32,
    key_len: u32,
    function: u8,
    transformation: u8,
    reserved: [u8; 6],
    content: [u32; MOST_ENTRIES + MOST_KEY],
}

/// `struct ethtool_rxnfc`, of which this command uses the first fields.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fields {
    command: u32,
    flow: u32,
    fields: u64,
    rest: [u64; 24],
}

/// How a card chooses the queue of a packet of TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steering {
    key: [u8; KEY],
    /// Queues, by the hash.
    table: Vec<u32>,
}

impl Steering {
    /// Asks the driver. `None` if it does not say, or does it in another way.
    pub(super) fn of(device: &str) -> Option<Self> {
        for flow in FLOWS {
            let mut asked = Fields { command: GET_FIELDS, flow, fields: 0, rest: [0; 24] };
            sys::ethtool(device, &mut asked).ok()?;
            if asked.fields != FIELDS {
                return None;
            }
        }
        let content = [0; MOST_ENTRIES + MOST_KEY];
        let mut asked = Box::new(Hash {
            command: GET_HASH,
            context: 0,
            entries: 0,
            key_len: 0,
            function: 0,
            transformation: 0,
            reserved: [0; 6],
            content,
        });
        // First the lengths.
        sys::ethtool(device, &mut *asked).ok()?;
        let (entries, key_len) = (asked.entries as usize, asked.key_len as usize);
        if entries > MOST_ENTRIES || key_len > MOST_KEY * 4 {
            return None;
        }
        sys::ethtool(device, &mut *asked).ok()?;
        if asked.function & TOEPLITZ == 0 || asked.transformation != 0 {
            return None;
        }
        let key: Vec<u8> =
            asked.content.iter().skip(entries).flat_map(|word| word.to_ne_bytes()).take(key_len).collect();
        Self::new(&key, asked.content.get(..entries)?)
    }

    /// `None` if the key is too short, or the table is empty.
    fn new(key: &[u8], table: &[u32]) -> Option<Self> {
        let key = *key.first_chunk()?;
        (!table.is_empty()).then(|| Self { key, table: table.to_vec() })
    }

    /// The queue of a segment.
    fn queue(&self, from: SocketAddr, to: SocketAddr) -> Option<u32> {
        let place = self.hash(from, to) as usize % self.table.len();
        self.table.get(place).copied()
    }

    /// The Toeplitz hash of addresses and ports, as Microsoft has defined it for receive side scaling: for each bit of the input that is
    /// set, the 32 bits of the key that begin there.
    fn hash(&self, from: SocketAddr, to: SocketAddr) -> u32 {
        let (mut input, mut len) = ([0; KEY - 4], 0);
        let mut put = |bytes: &[u8]| {
            for byte in bytes {
                if let Some(place) = input.get_mut(len) {
                    *place = *byte;
                }
                len += 1;
            }
        };
        for at in [from, to] {
            match at.ip() {
                IpAddr::V4(ip) => put(&ip.octets()),
                IpAddr::V6(ip) => put(&ip.octets()),
            }
        }
        put(&from.port().to_be_bytes());
        put(&to.port().to_be_bytes());
        let mut hash = 0;
        for (byte, key) in input.iter().take(len).zip(self.key.windows(5)) {
            let bits = key.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
            for bit in (0..8).filter(|bit| byte & 0x80 >> bit != 0) {
                hash ^= (bits >> (8 - bit)) as u32;
            }
        }
        hash
    }

    /// What says whether packets come by this queue. `None` if none do.
    pub(super) fn to(&self, queue: u32) -> Option<ComesHere> {
        let steering = self.clone();
        let used = self.table.contains(&queue);
        used.then(|| Arc::new(move |from, to| steering.queue(from, to) == Some(queue)) as ComesHere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of Microsoft's examples ("Verifying the RSS hash calculation").
    const MICROSOFT: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn the_hash_is_that_of_the_published_examples() {
        let steering = Steering::new(&MICROSOFT, &[0]).unwrap();
        for (from, to, hash) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
            ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a),
            ("38.27.205.30:48228", "209.142.163.6:2217", 0xafc7_327f),
            ("153.39.163.191:44251", "202.188.127.2:1303", 0x10e8_28a2),
            ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x4020_7d3d),
            ("[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0xdde5_1bbf),
            ("[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x02d1_feef),
        ] {
            assert_eq!(steering.hash(from.parse().unwrap(), to.parse().unwrap()), hash, "{from} {to}");
        }
    }

    #[test]
    fn each_port_comes_to_one_queue_of_the_table() {
        // Queue 2 is left out, as with weights.
        let table: Vec<u32> = (0..128).map(|place| [0, 1, 3][place % 3]).collect();
        let steering = Steering::new(&MICROSOFT, &table).unwrap();
        let queues: Vec<_> = (0..4).map(|queue| steering.to(queue)).collect();
        assert!(queues[2].is_none());
        let (from, mut counts) = ("192.0.2.7:443".parse().unwrap(), [0; 4]);
        for port in 32_768..33_792 {
            let to = SocketAddr::new("198.51.100.1".parse().unwrap(), port);
            let comes: Vec<usize> = (0..4)
                .filter(|n| queues[*n].as_ref().is_some_and(|comes_here| comes_here(from, to)))
                .collect();
            assert_eq!(comes.len(), 1, "{to}");
            counts[comes[0]] += 1;
        }
        assert!([0, 1, 3].into_iter().all(|n| counts[n] > 200), "{counts:?}");
    }

    #[test]
    fn a_short_key_or_an_empty_table_is_refused() {
        assert_eq!(Steering::new(&MICROSOFT[..39], &[0]), None);
        assert_eq!(Steering::new(&MICROSOFT, &[]), None);
    }
}
