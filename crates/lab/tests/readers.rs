//! What strangers' bytes can do to the readers of `dns`, `http`, `proxy` and of what a server publishes: every short input, and
//! every input at a distance of one from a valid one.
//!
//! The checks are those of the fuzz targets. `cargo test -p firstflight-lab --test lab readers:: -- --nocapture` prints the table of
//! [docs/proved.md](../../../docs/proved.md). `FIRSTFLIGHT_READERS=all` takes one byte more, and all of the corpus.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/client_hello.rs"]
mod client_hello;
#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/dns_parse.rs"]
mod dns_parse;
#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/proxy_header.rs"]
mod proxy_header;
#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

use firstflight::record::Published;
use firstflight_dns::{Position, position};
use firstflight_models::readers::Reader;
use firstflight_wire::asap::{VerifierId, Zone};

#[test]
fn objects_of_the_dns_path_by_dns() {
    Reader { name: "dns_parse", run: dns_parse::run, short: 1, samples: 3, longest: 240 }.check();
}

#[test]
fn proxy_headers() {
    Reader { name: "proxy_header", run: proxy_header::run, short: 2, samples: 16, longest: 120 }.check();
}

#[test]
fn messages_of_socks() {
    Reader { name: "socks", run: socks::run, short: 2, samples: 14, longest: 300 }.check();
}

#[test]
fn client_hellos() {
    Reader { name: "client_hello", run: client_hello::run, short: 1, samples: 2, longest: 200 }.check();
}

/// What a server publishes, as a client reads it.
#[test]
fn service_parameters() {
    fn read(bytes: &[u8]) -> bool {
        let published = Published::read(bytes, 5);
        if let Some(published) = &published {
            assert_eq!(published.bytes, bytes);
            assert!(!published.verifiers.is_empty() && (published.on_ip || published.udp_port.is_some()));
        }
        published.is_some()
    }
    let ids = [VerifierId([1, 2, 3, 4]), VerifierId([9; 4])];
    let samples = [Published::in_udp(443, 1200, &ids), Published::on_ip(1460, &ids[..1])].map(Option::unwrap);
    let (mut count, mut good) = (0_u64, 0_u64);
    let mut one = |bytes: &[u8]| {
        count += 1;
        good += u64::from(read(bytes));
    };
    for number in 0..=0xffff_u16 {
        one(&number.to_be_bytes());
        if number < 256 {
            one(&[number as u8]);
        }
    }
    for sample in samples {
        assert_eq!(
            Published::read(&sample.bytes, u32::MAX),
            Some(sample.clone()),
            "what was written is read"
        );
        let mut bytes = sample.bytes;
        for at in 0..bytes.len() {
            one(&bytes[..at]);
            for other in 1..=255 {
                bytes[at] ^= other;
                one(&bytes);
                bytes[at] ^= other;
            }
        }
    }
    println!("| what a server publishes | {count} | {good} of them have a meaning |");
    // Another MSS, port or verifier is as good.
    assert!(good > 1000 && good < count, "{good} of {count}");
}

/// Where a name is, read in the plainest way: all labels first.
fn place(name: &[u8], zone: &[u8]) -> Option<(usize, Vec<u8>)> {
    fn labels(mut name: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut labels = Vec::new();
        loop {
            match name {
                [0] => return Some(labels),
                [len @ 1..=63, rest @ ..] if rest.len() >= usize::from(*len) => {
                    labels.push(rest[..usize::from(*len)].to_vec());
                    name = &rest[usize::from(*len)..];
                }
                _ => return None,
            }
        }
    }
    let lower = |label: &Vec<u8>| label.to_ascii_lowercase();
    let (name, zone) = (labels(name)?, labels(zone)?);
    let above = name.len().checked_sub(zone.len())?;
    let ends = name[above..].iter().map(lower).eq(zone.iter().map(lower));
    ends.then(|| (above, name.first().cloned().unwrap_or_default()))
}

/// Every name of up to eight octets that mean something to the reader.
#[test]
fn names_below_a_zone() {
    const BYTES: [u8; 6] = [0, 1, 2, 64, b'f', b'F'];
    const ZONE: &[u8] = &[1, b'f', 0];
    let zone = Zone::new(ZONE).unwrap();
    let (mut count, mut inside) = (0_u64, 0_u64);
    for len in 0..=8 {
        for number in 0..6_u32.pow(len) {
            let name: Vec<u8> = (0..len).map(|at| BYTES[(number / 6_u32.pow(at) % 6) as usize]).collect();
            let expected = match place(&name, ZONE) {
                None => Position::Outside,
                Some((0, _)) => Position::Apex,
                Some((1, ref label)) => {
                    assert_eq!(position(&name, zone), Position::Child(label), "{name:?}");
                    inside += 1;
                    continue;
                }
                Some(_) => Position::Deeper,
            };
            assert_eq!(position(&name, zone), expected, "{name:?}");
            count += 1;
        }
    }
    count += inside;
    println!(
        "| names below a zone | all {count} of up to eight octets of {} kinds | {inside} fragments |",
        BYTES.len()
    );
    // A label of one octet or of two, below `f` or `F`.
    assert_eq!(inside, (6 + 6 * 6) * 2);
}
