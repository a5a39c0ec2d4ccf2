//! Selects the front that puts a set of fragments together, by rendezvous hashing (D. Thaler, C. Ravishankar,
//! "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998).

use crate::fragment::FragmentId;

/// The weight of front `front` for this id: the front with the highest weight owns it. No two fronts have the
/// same weight for one id, because the weight is a bijection of id and front together.
///
/// It is the first output of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014) for the seed id ‖ front. It needs no secret: an attacker who chooses ids so that one front
/// owns them all could also send all queries to that front.
pub(crate) const fn weight(id: FragmentId, front: u16) -> u64 {
    let FragmentId([a, b, c, d, e, f]) = id;
    let [g, h] = front.to_be_bytes();
    let seed = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
