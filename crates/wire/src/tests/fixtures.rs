//! Packets that Linux 6.18 sent over its loopback interface. There Linux leaves the sum of the pseudo-header in
//! the TCP checksum field, so the TCP checksums are wrong. The IP and ICMP checksums are correct.

use alloc::vec::Vec;
use data_encoding::HEXLOWER;

/// Bytes from hexadecimal digits; spaces are only for readability.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.replace(' ', "").as_bytes()).unwrap()
}

/// SYN with a Fast Open request.
pub(crate) const SYN: &str = "45000040bd27400040067f8e7f0000017f000001 \
    8a669b31fbb2318a00000000b002ffd7fe340000 \
    0204ffd70402080a02bbee45000000000103030a22020101";
/// Data, with timestamps.
pub(crate) const DATA: &str = "45000039bd28400040067f947f0000017f000001 \
    8a669b31fbb2318b8ff3409580180040fe2d0000 \
    0101080a02bbee45539b828c 68656c6c6f";
/// SYN-ACK over IPv6.
pub(crate) const SYN_ACK_V6: &str = "600f1228002806400000000000000000000000000000000100000000000000000000000000000001 \
    d8d1c37870484502f982c54fa012ffb800300000 0204ffc40402080a04b530930613e8f70103030a";
/// Port unreachable, about a UDP datagram to port 9.
pub(crate) const UNREACHABLE: &str = "45c0003c54ad0000400127527f0000017f000001 0303680e00000000 \
    450000209e94400040119e367f0000017f000001 a5c80009000cfe1f78787878";
/// Port unreachable over IPv6.
pub(crate) const UNREACHABLE_V6: &str = "60000faa003c3a400000000000000000000000000000000100000000000000000000000000000001 \
    010401f600000000 \
    600dfb86000c11400000000000000000000000000000000100000000000000000000000000000001 \
    9e860009000c001f78787878";
