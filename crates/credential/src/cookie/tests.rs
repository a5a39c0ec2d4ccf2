use super::*;
use alloc::string::String;
use data_encoding::HEXLOWER;

fn flow(client: &str, server: &str) -> Flow {
    Flow { client: client.parse().unwrap(), server: server.parse().unwrap() }
}

fn cookie(scheme: Scheme, key: CookieKey, client: &str, server: &str) -> String {
    HEXLOWER.encode(&scheme.load(key).make(&flow(client, server)))
}

//= rfc7413 4.1.2-a test
#[test]
fn linux_vectors() {
    let key: CookieKey = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4".parse().unwrap();
    let zero = CookieKey::from_bytes([0; 16]);
    let v4 = ("192.0.2.1", "192.168.0.1");
    let v6 = ("fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1");
    assert_eq!(cookie(Scheme::Linux, key.clone(), v4.0, v4.1), "3021b9d889017eeb");
    assert_eq!(cookie(Scheme::Linux, key, v6.0, v6.1), "c1d1e9742a47a9bc");
    assert_eq!(cookie(Scheme::Linux, zero.clone(), v4.0, v4.1), "b7c12350a90dc8f5");
    assert_eq!(cookie(Scheme::Linux, zero, v6.0, v6.1), "82af1a8f9a205c34");
}

/// FIPS 197 appendix C.1: an IPv6 address is a whole AES block.
#[test]
fn paper_is_aes_of_the_client_alone() {
    let key = CookieKey::from_bytes(core::array::from_fn(|i| i as u8));
    let client = "0011:2233:4455:6677:8899:aabb:ccdd:eeff";
    assert_eq!(cookie(Scheme::Paper, key.clone(), client, "::1"), "69c4e0d86a7b0430");
    assert_eq!(cookie(Scheme::Paper, key, client, "::2"), "69c4e0d86a7b0430");
}

#[test]
fn paper_pads_ipv4_with_zeros() {
    let key = CookieKey::from_bytes([7; 16]);
    let v4 = cookie(Scheme::Paper, key.clone(), "192.0.2.1", "192.168.0.1");
    assert_eq!(v4, cookie(Scheme::Paper, key.clone(), "c000:0201::", "::1"));
    assert_ne!(v4, cookie(Scheme::Paper, key, "192.0.2.2", "192.168.0.1"));
}
