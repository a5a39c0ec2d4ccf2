//! The numbers of reasons. They stay as they are: a new one gets a number of its own.

use std::ffi::c_int;

/// No reason: what was accepted as usual has none.
pub const FF_REASON_NONE: c_int = 0;
/// `not-requested`: the application did not ask for it.
pub const FF_REASON_NOT_REQUESTED: c_int = 1;
/// `no-credential`: the client has no credential for this server yet, and asks for one.
pub const FF_REASON_NO_CREDENTIAL: c_int = 2;
/// `stale-or-wrong-credential`: the server did not recognise the credential: too old, or for another address or server.
pub const FF_REASON_STALE_OR_WRONG_CREDENTIAL: c_int = 3;
/// `data-not-acknowledged`: the SYN-ACK acknowledged the SYN, but none of its data.
pub const FF_REASON_DATA_NOT_ACKNOWLEDGED: c_int = 4;
/// `data-partly-acknowledged`: the SYN-ACK acknowledged only a part of the data in the SYN.
pub const FF_REASON_DATA_PARTLY_ACKNOWLEDGED: c_int = 5;
/// `option-stripped`: something on the path removed the option from the SYN.
pub const FF_REASON_OPTION_STRIPPED: c_int = 6;
/// `syn-timed-out`: the SYN with data got no answer, and a plain SYN was sent instead.
pub const FF_REASON_SYN_TIMED_OUT: c_int = 7;
/// `policy`: the listener or the connection is configured not to.
pub const FF_REASON_POLICY: c_int = 8;
/// `replay`: the credential or the first flight was seen before.
pub const FF_REASON_REPLAY: c_int = 9;
/// `untrusted-verifier`: the server does not trust the verifier that signed the certificate.
pub const FF_REASON_UNTRUSTED_VERIFIER: c_int = 10;
/// `expired`: the credential has expired.
pub const FF_REASON_EXPIRED: c_int = 11;
/// `clock-skew`: the clocks are too far apart, or too uncertain, to judge the credential's age.
pub const FF_REASON_CLOCK_SKEW: c_int = 12;
/// `overloaded`: the server had no time to verify the credential, or no room for the first flight.
pub const FF_REASON_OVERLOADED: c_int = 13;
/// `store-unavailable`: the farm's shared store gave no answer in time.
pub const FF_REASON_STORE_UNAVAILABLE: c_int = 14;
/// `pending-limit`: too many first flights of the listener still wait for their client's ACK.
pub const FF_REASON_PENDING_LIMIT: c_int = 15;
/// `client-limit`: too many first flights from this client's prefix still wait for their ACK.
pub const FF_REASON_CLIENT_LIMIT: c_int = 16;
/// `server-limit`: too many first flights of the whole server still wait for their client's ACK.
pub const FF_REASON_SERVER_LIMIT: c_int = 17;
/// `not-active`: the one-time cookie was granted in a handshake that is not complete.
pub const FF_REASON_NOT_ACTIVE: c_int = 18;
/// `syn-cookie`: the server answered with a SYN cookie: under SYN pressure, or to a forged credential.
pub const FF_REASON_SYN_COOKIE: c_int = 19;
/// `no-data`: the SYN carried a credential but no data.
pub const FF_REASON_NO_DATA: c_int = 20;
/// `deferred-too-long`: the verification was not finished before its deadline.
pub const FF_REASON_DEFERRED_TOO_LONG: c_int = 21;
/// `reply-stripped`: something on the path removed the option from the SYN-ACK.
pub const FF_REASON_REPLY_STRIPPED: c_int = 22;
/// `ack-inside`: the SYN-ACK acknowledged a number inside the credential.
pub const FF_REASON_ACK_INSIDE: c_int = 23;
/// `overlap-blackhole`: the path drops segments that repeat sequence numbers with other bytes.
pub const FF_REASON_OVERLAP_BLACKHOLE: c_int = 24;
/// `address-mismatch`: the credential was given to another address than the one it came from.
pub const FF_REASON_ADDRESS_MISMATCH: c_int = 25;
/// `wrong-identity`: the first flight was meant for a server of another identity.
pub const FF_REASON_WRONG_IDENTITY: c_int = 26;
/// `guard-floor`: the first flight is older than the replay guard's memory.
pub const FF_REASON_GUARD_FLOOR: c_int = 27;
/// `capability-unknown`: it is not known whether the server understands the credential.
pub const FF_REASON_CAPABILITY_UNKNOWN: c_int = 28;
/// `peer-without-fast-open`: the server was asked for a cookie and granted none.
pub const FF_REASON_PEER_WITHOUT_FAST_OPEN: c_int = 29;
/// `simultaneous-open`: both ends opened at the same time.
pub const FF_REASON_SIMULTANEOUS_OPEN: c_int = 30;
/// `failure-memory`: first flights to this server on this network failed lately.
pub const FF_REASON_FAILURE_MEMORY: c_int = 31;
/// `message-too-large`: none of the data fits into the SYN.
pub const FF_REASON_MESSAGE_TOO_LARGE: c_int = 32;
/// `bad-signature`: a signature of the credential is wrong.
pub const FF_REASON_BAD_SIGNATURE: c_int = 33;
/// `malformed`: the option or the credential is malformed.
pub const FF_REASON_MALFORMED: c_int = 34;
/// `peer-misbehaved`: the server's answer contradicts itself.
pub const FF_REASON_PEER_MISBEHAVED: c_int = 35;
/// `unknown`: no SYN-ACK said whether the server took the data: it may have, or not.
pub const FF_REASON_UNKNOWN: c_int = 36;
/// `not-replay-safe`: the data must not be executed twice, so it waited for the handshake.
pub const FF_REASON_NOT_REPLAY_SAFE: c_int = 37;
/// `not-first-address`: another of the server's addresses was tried first, and only that SYN may carry the data.
pub const FF_REASON_NOT_FIRST_ADDRESS: c_int = 38;
/// `old-connection`: the SYN met an earlier connection of the same ports at the server, and a plain SYN was sent instead.
pub const FF_REASON_OLD_CONNECTION: c_int = 39;
/// `syn-refused`: a RST or an ICMP error answered the SYN with the option or data, and a plain SYN was sent instead.
pub const FF_REASON_SYN_REFUSED: c_int = 40;
/// `path-too-small`: the SYN with data was larger than the path passes, and a smaller SYN was sent instead.
pub const FF_REASON_PATH_TOO_SMALL: c_int = 41;
/// `barred`: the client's key or address is barred for a while, after resets or wrong signatures.
pub const FF_REASON_BARRED: c_int = 42;
/// `network-limit`: the share of the client's network in the server's time for signatures is used up.
pub const FF_REASON_NETWORK_LIMIT: c_int = 43;
/// `system-disabled`: the system's settings switch Fast Open off, or the system does so for a while.
pub const FF_REASON_SYSTEM_DISABLED: c_int = 44;
/// `accepted-part`: the SYN had room for a part of the data, and the rest followed after the handshake.
pub const FF_REASON_ACCEPTED_PART: c_int = 45;
