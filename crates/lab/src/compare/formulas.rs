//! Rows that are computed. Each formula stands in the table.

use super::{Base, Compare, Numbers};
use std::time::Duration;

/// PRECONNECT: with share `hits` the connection is open already.
pub fn preconnect(options: &Compare) -> Numbers {
    Numbers {
        first: Some(2.0),
        later: Some(2.0 - options.hits),
        replayed: Some(0),
        moved: Some(2.0),
        ..plain()
    }
}

/// One connection for all requests: the handshake is paid once.
pub fn spdy(options: &Compare) -> Numbers {
    let later = 1.0 + 1.0 / f64::from(options.requests);
    Numbers { first: Some(2.0), later: Some(later), replayed: Some(0), moved: Some(2.0), ..plain() }
}

/// Rapid-Restart: a SYN with data and the last connection's cookie, if the server has kept its control block. From
/// another network, the address does not match that.
pub fn rapid_restart() -> Numbers {
    Numbers { first: Some(2.0), later: Some(1.0), moved: Some(2.0), ..plain() }
}

/// UDT: a cookie, a handshake, a request.
pub fn udt() -> Numbers {
    // The answer to the first message is as long as the message.
    Numbers {
        first: Some(3.0),
        later: Some(3.0),
        blind: Some(1.0),
        memory: Some(0.0),
        replayed: Some(0),
        moved: Some(3.0),
        ..Numbers::default()
    }
}

/// The thesis' server: 0.326 ms to verify a request's RSA-1024 and RSA-512 signatures (7.3), and its client: 1 to 2 ms
/// to sign.
const RSA_VERIFY: Duration = Duration::from_micros(326);
const RSA_SIGN: Duration = Duration::from_micros(1500);

/// ASAP with the thesis' certificates.
pub fn rsa(base: Base) -> Numbers {
    let trips = 1.0 + base.trips(RSA_SIGN + RSA_VERIFY);
    Numbers { first: Some(trips), later: Some(trips), replayed: Some(0), ..plain() }
}

/// Provenance by DNSSEC: the server looks up the key of the client's address before it answers; later it has it. A new
/// address has another key.
pub fn dnssec() -> Numbers {
    Numbers { first: Some(2.0), later: Some(1.0), moved: Some(2.0), ..plain() }
}

/// A sealed first flight: one round trip where the SYN carries it, and two behind a handshake, as from another network,
/// for which the client has neither cookie nor certificate. The server remembers which requests ran.
pub fn sealed() -> Numbers {
    Numbers { first: Some(1.0), later: Some(1.0), replayed: Some(0), moved: Some(2.0), ..plain() }
}

fn plain() -> Numbers {
    Numbers::default()
}
