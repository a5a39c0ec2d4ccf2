use super::*;

const HOME: NetworkId = NetworkId([1; 16]);

#[test]
fn a_server_that_was_asked_before_grants_none() {
    let (mut asked, server) = (CookieRequests::default(), IpAddr::from([192, 0, 2, 1]));
    let at = Instant::from_millis;
    assert!(!asked.again(HOME, server, at(0), at(100)), "the first one");
    assert!(!asked.again(HOME, server, at(50), at(150)), "it left before the first was complete");
    assert!(asked.again(HOME, server, at(100), at(200)));
    assert!(!asked.again(NetworkId([2; 16]), server, at(100), at(200)), "the path may be the cause");
    assert!(!asked.again(HOME, [192, 0, 2, 2].into(), at(100), at(200)), "another address");
    assert!(asked.contains(HOME, server));
    asked.granted(HOME, server);
    assert!(!asked.contains(HOME, server));
    assert!(!asked.again(HOME, server, at(300), at(400)), "the kernel has forgotten its cookie");
    asked.leave(HOME);
    assert!(!asked.again(HOME, server, at(500), at(600)));
}

#[test]
fn memory_is_bounded() {
    let mut asked = CookieRequests::default();
    for n in 0..1000_u32 {
        asked.again(HOME, n.to_be_bytes().into(), Instant::ZERO, Instant::ZERO);
    }
    assert_eq!(asked.0.len(), CAPACITY);
}
