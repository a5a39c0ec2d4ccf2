//! A listener with Fast Open, and a peer that has visited it: the peer has a cookie of the listener's key.

use super::{Peer, Seg, key, policy, seg};
use firstflight_stack::{Config, ListenConfig, ListenerId};
use firstflight_wire::tcp::Cookie;

pub(crate) const DATA: &[u8] = b"GET / HTTP/1.0";
/// The number after [`DATA`].
pub(crate) const AFTER: u32 = 1 + DATA.len() as u32;

/// A listener with key 1 and room for ten first flights, and the cookie of the peer's address.
pub(crate) fn server_with(
    stack: impl FnOnce(&mut Config),
    tune: impl FnOnce(&mut ListenConfig),
) -> (Peer, ListenerId, Cookie) {
    let mut p = Peer::with(stack);
    let listener = p.listen_with(|c| {
        c.fast_open = Some(policy(key(1), 10));
        tune(c);
    });
    let cookie = p.cookie_of(key(1));
    (p, listener, cookie)
}

pub(crate) fn server() -> (Peer, ListenerId, Cookie) {
    server_with(|_| {}, |_| {})
}

pub(crate) fn syn() -> Seg {
    seg().syn().mss(1000)
}

/// A SYN with this cookie and [`DATA`].
pub(crate) fn first_flight(cookie: &Cookie) -> Seg {
    syn().cookie(cookie.as_bytes()).data(DATA)
}
