//! Reflection: a stolen cookie makes a server send its response to the cookie's owner (the Fast Open paper
//! §3.4.2).

use super::world::{REQUEST, Victim, World, address, spoof};
use super::{Cookies, keys, policy};
use crate::table::Table;
use firstflight_credential::{Flow, PendingLimit};
use firstflight_stack::ResponsePolicy;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, OptionsBuf};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the response: more than an initial window.
const RESPONSE: usize = 100_000;

/// One spoofed SYN.
#[derive(Debug, Clone, Copy)]
pub struct Reflection {
    /// The SYN carries a stolen, valid cookie.
    pub cookie: bool,
    /// The limit for what the server sends before the client's ACK.
    pub response: ResponsePolicy,
    /// The victim answers with RST.
    pub resets: bool,
}

impl Reflection {
    /// Returns the IP bytes of the attacker, and those to the victim until the server has given up.
    pub fn run(self) -> (u64, u64) {
        let mut world = World::new();
        let (server, victim) = (address(1), address(2));
        let policy = policy(Cookies::Plain, &Arc::new(PendingLimit::new(256)));
        world.serve(server, RESPONSE, |config| {
            config.fast_open = Some(policy);
            config.response = self.response;
        });
        world.victims.insert(victim, Victim { resets: self.resets, bytes: 0 });
        let mut options = OptionsBuf::new();
        let mut fits = options.mss(1460);
        if self.cookie {
            let cookie = keys().grant(&Flow { client: victim, server });
            fits &= options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
        }
        debug_assert!(fits);
        let syn = spoof(SocketAddr::new(victim, 4000), server, 1, &mut options, &[b'x'; REQUEST]);
        let sent = syn.len() as u64;
        world.inject(syn);
        world.run(world.now + Duration::from_secs(300));
        (sent, world.victims.get(&victim).map_or(0, |v| v.bytes))
    }

    fn factor(self) -> f64 {
        let (sent, got) = self.run();
        got as f64 / sent as f64
    }
}

const ROWS: [(&str, bool, ResponsePolicy); 4] = [
    ("no cookie: an ordinary SYN-ACK", false, ResponsePolicy::Immediately),
    ("cookie, response immediately", true, ResponsePolicy::Immediately),
    ("cookie, response at most 3 x received", true, ResponsePolicy::Times(3)),
    ("cookie, response after the handshake", true, ResponsePolicy::AfterHandshake),
];

/// The rows of `attack reflection`.
pub fn table() -> Table {
    let title = format!("bytes at the victim for each byte of a spoofed SYN; response of {RESPONSE} B");
    let mut table = Table::new(title, &["policy", "victim silent", "victim resets"]);
    for (name, cookie, response) in ROWS {
        let factor = |resets| Reflection { cookie, response, resets }.factor();
        table.row([name.into(), factor(false).into(), factor(true).into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_bound_what_reaches_a_victim() {
        let [plain, immediately, times, after] =
            ROWS.map(|(_, cookie, response)| Reflection { cookie, response, resets: true }.factor());
        println!("victim resets: {plain} {immediately} {times} {after}");
        assert!(plain < 1.0 && after < 1.0, "one SYN-ACK");
        // An initial window of ten segments of 1,460 bytes (RFC 6928), and no more.
        assert!((80.0..=110.0).contains(&immediately), "{immediately}");
        assert!(times <= 3.0, "{times}");
        let [plain, immediately, times, after] =
            ROWS.map(|(_, cookie, response)| Reflection { cookie, response, resets: false }.factor());
        println!("victim silent: {plain} {immediately} {times} {after}");
        // Repeated SYN-ACKs, as for any SYN. The data is not repeated before the client's ACK.
        assert!(after <= 6.0 && plain <= 6.0);
        assert!(times <= 3.0 + 6.0, "{times}");
        assert!(immediately <= 110.0 + 6.0, "{immediately}");
    }
}
