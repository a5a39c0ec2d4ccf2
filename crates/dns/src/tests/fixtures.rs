//! First flights for tests.

use crate::ci::{ConnectionInfo, WindowScale};
use crate::seal::{DnsPathKey, Sealed, seal};
use core::net::IpAddr;
use core::num::NonZeroU8;
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{
    Block, CertificateBody, CertificateFlags, DnsPathParam, RequestCertificate, VerifierId, Zone,
};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

pub(crate) const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";

pub(crate) fn zone() -> Zone<'static> {
    Zone::new(ZONE).unwrap()
}

pub(crate) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(crate) fn key() -> DnsPathKey {
    DnsPathKey::from_bytes(&[5; 32]).unwrap()
}

/// The parameter that the server with [`key`] as its key number 3 publishes.
pub(crate) fn dns_path() -> DnsPathParam<'static> {
    DnsPathParam { key_id: NonZeroU8::new(3).unwrap(), key: key().public(), zone: zone() }
}

pub(crate) const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
pub(crate) const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// A first flight from `address`, with random signatures.
pub(crate) fn ci<'a>(address: IpAddr, data: &'a [u8], rng: &mut impl Rng) -> ConnectionInfo<'a> {
    let mut bytes = [[0; 64]; 3];
    bytes.iter_mut().for_each(|part| rng.fill_bytes(part));
    let [a, b, c] = bytes;
    let verifier = VerifierId([a[32], a[33], a[34], a[35]]);
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let key = *a.first_chunk().unwrap();
    let certificate = CertificateBody::new(verifier, key, 1_767_225_600, 1800, flags, b).unwrap();
    let request = RequestCertificate {
        address_tag: firstflight_credential::asap::address_tag(address),
        identity_tag: [a[36], a[37], a[38], a[39]],
        requested_ms: 1_767_225_660_000,
        request_id: *a.last_chunk().unwrap(),
        signature: c,
    };
    ConnectionInfo {
        address,
        outer_port: 50_000.try_into().unwrap(),
        source_port: 49_152.try_into().unwrap(),
        destination_port: 443.try_into().unwrap(),
        isn: SeqNum::new(0x0102_0304),
        window: 0xffff,
        mss: 1176,
        window_scale: WindowScale::new(7),
        sack_permitted: true,
        block: Block { certificate, request },
        data,
    }
}

/// A sealed first flight with `len` bytes of data.
pub(crate) fn sealed(len: usize, seed: u64) -> Sealed {
    let mut rng = rng(seed);
    let data = vec![b'x'; len];
    seal(&ci(V4, &data, &mut rng), &dns_path(), &mut rng).unwrap().0
}
