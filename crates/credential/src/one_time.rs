//! One-time cookies (the Fast Open paper §7.1): each is good for one first flight.
//!
//! A cookie is granted in the SYN-ACK of a connection and becomes usable when the client's first valid ACK
//! arrives, or a RST that acknowledges as much. So there are never more usable cookies than SYN-ACKs that
//! arrived. Clients of RFC 7413 need no change: they accept a cookie from any SYN-ACK that carries one.

mod serials;

pub use serials::{Redeemed, SerialTable};

use crate::cookie::octets;
use crate::flight::{
    Decision, FirstFlight, FlightId, Flow, Grant, JobRequest, Presented, Verifier, VerifierVerdict,
};
use crate::outcome::Reason;
use crate::replay::GuardKey;
use crate::serial::Serial;
use aes::Aes128;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;
use core::net::IpAddr;
use firstflight_wire::Clock;
use firstflight_wire::tcp::{Cookie, FastOpen};
use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The keys of one-time cookies: one to seal, one to encrypt. All members of a farm have the same.
pub struct OneTimeKeys {
    seal: [u8; 16],
    cipher: Aes128,
}

impl OneTimeKeys {
    /// Keys of 32 unpredictable bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let (mut seal, mut cipher) = ([0; 16], Zeroizing::new([0; 16]));
        for (to, from) in seal.iter_mut().chain(cipher.iter_mut()).zip(bytes.iter()) {
            *to = *from;
        }
        Self { seal, cipher: Aes128::new((&*cipher).into()) }
    }

    /// The cookie of `serial` for `flow`: AES-128(serial ‖ SipHash-2-4(server ‖ client ‖ serial)),
    /// addresses in 16 bytes each. It is encrypted, so that nobody can read the number of granted cookies
    /// from it.
    #[must_use]
    pub fn make(&self, flow: &Flow, serial: Serial) -> Cookie {
        let mut block = [0; 16];
        let (front, back) = block.split_at_mut(8);
        front.copy_from_slice(&serial.get().to_be_bytes());
        back.copy_from_slice(&self.mac(flow, serial.get()));
        let mut block = Array::from(block);
        self.cipher.encrypt_block(&mut block);
        match Cookie::new(&block) {
            Some(cookie) => cookie,
            None => unreachable!("sixteen bytes are a legal cookie (RFC 7413 §4.1.1)"),
        }
    }

    /// The serial of a cookie that was made for `flow`.
    #[must_use]
    pub fn open(&self, flow: &Flow, cookie: &Cookie) -> Option<Serial> {
        let block: [u8; 16] = cookie.as_bytes().try_into().ok()?;
        let mut block = Array::from(block);
        self.cipher.decrypt_block(&mut block);
        let (front, back) = block.split_at(8);
        let serial = u64::from_be_bytes(front.try_into().ok()?);
        let right = bool::from(back.ct_eq(&self.mac(flow, serial)));
        if right { Serial::from_u64(serial) } else { None }
    }

    /// The id of the SYN `first`.
    fn flight(&self, first: &FirstFlight<'_>) -> FlightId {
        // A SYN with data is longer than what `mac` takes, so neither hash says anything about the other.
        FlightId::new(GuardKey::from_bytes(self.seal).id(first).id as u64)
    }

    fn mac(&self, flow: &Flow, serial: u64) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(&self.seal);
        hasher.write(&mapped(flow.server));
        hasher.write(&mapped(flow.client));
        hasher.write(&serial.to_be_bytes());
        hasher.finish().to_be_bytes()
    }
}

/// Maps an address to 16 bytes. IPv4 addresses and the IPv6 addresses of hosts never share a value.
fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(_) => octets(ip),
    }
}

impl Drop for OneTimeKeys {
    fn drop(&mut self) {
        self.seal.zeroize();
    }
}

impl fmt::Debug for OneTimeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeKeys(..)")
    }
}

/// How several servers behind one address share the knowledge of used cookies.
#[derive(Clone)]
#[non_exhaustive]
pub enum Farm {
    /// One server, or several if the balancer sends equal cookies to one server and every server grants only
    /// cookies that come back to itself ([`OneTimeCookies::placed`]). First flights with cookies of other
    /// issuers fall back.
    Alone,
    /// Each of n servers accepts each cookie of the others once, so a cookie may be used up to n times. The
    /// tables are for the other issuers.
    EachOnce(Arc<[SerialTable]>),
    /// All servers ask one store, so each use is known to all.
    Shared,
}

/// Predicts the server to which a balancer sends a cookie.
pub trait Placement: Send + Sync {
    /// Whether a SYN with this cookie comes to this server.
    fn is_here(&self, cookie: &Cookie) -> bool;
}

/// The most serials drawn to find one cookie that comes back to this server.
const DRAWS: usize = 256;

/// Grants and checks one-time cookies. Shared by the shards of a server.
pub struct OneTimeCookies {
    keys: Vec<OneTimeKeys>,
    serials: Arc<SerialTable>,
    farm: Farm,
    placement: Option<Arc<dyn Placement>>,
}

impl OneTimeCookies {
    /// Cookies of `keys`. Table `serials` issues and remembers their serials.
    #[must_use]
    pub fn new(keys: OneTimeKeys, serials: Arc<SerialTable>) -> Self {
        Self { keys: alloc::vec![keys], serials, farm: Farm::Alone, placement: None }
    }

    /// Accepts cookies of `keys` too: the keys before a roll-over, or the next ones.
    #[must_use]
    pub fn with_backup(mut self, keys: OneTimeKeys) -> Self {
        self.keys.push(keys);
        self
    }

    /// One of several servers behind one address.
    #[must_use]
    pub fn with_farm(mut self, farm: Farm) -> Self {
        self.farm = farm;
        self
    }

    /// Grants only cookies that `placement` sends back to this server. With n servers that takes about n
    /// serials for each cookie.
    #[must_use]
    pub fn placed(mut self, placement: Arc<dyn Placement>) -> Self {
        self.placement = Some(placement);
        self
    }

    /// The table that issues its serials.
    #[must_use]
    pub fn serials(&self) -> &Arc<SerialTable> {
        &self.serials
    }

    /// A fresh cookie. `None` if the counter's reserve is used up, or no drawn cookie comes back to this
    /// server.
    fn grant(&self, flow: &Flow) -> Option<Grant> {
        let keys = self.keys.first()?;
        for _ in 0..DRAWS {
            let serial = self.serials.issue()?;
            let cookie = keys.make(flow, serial);
            if self.placement.as_ref().is_none_or(|placement| placement.is_here(&cookie)) {
                return Some(Grant { cookie, serial: Some(serial) });
            }
        }
        None
    }

    /// The keys that made `cookie` for `flow`, and its serial.
    fn open(&self, flow: &Flow, cookie: &Cookie) -> Option<(&OneTimeKeys, Serial)> {
        self.keys.iter().find_map(|keys| Some((keys, keys.open(flow, cookie)?)))
    }

    /// The id of the SYN `first`. The keys of its cookie compute it, so members that are not yet at the same step of a
    /// roll-over compute the same one.
    fn flight(&self, first: &FirstFlight<'_>) -> Option<FlightId> {
        let Presented::FastOpen(FastOpen::Cookie(_, cookie)) = first.presented else { return None };
        self.open(&first.flow, cookie).map(|(keys, _)| keys.flight(first))
    }

    fn table(&self, serial: Serial) -> Option<&SerialTable> {
        if serial.issuer() == self.serials.issuer() {
            return Some(&self.serials);
        }
        match &self.farm {
            Farm::EachOnce(others) => others.iter().find(|table| table.issuer() == serial.issuer()),
            _ => None,
        }
    }
}

impl Verifier for OneTimeCookies {
    fn verify(&self, first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
        let Presented::FastOpen(option) = first.presented else {
            return VerifierVerdict::Invalid { reason: Reason::NoCredential, grant: None };
        };
        // Grant a fresh cookie for a request and for a shown cookie. It can be used when this handshake is
        // complete.
        let grant = self.grant(&first.flow);
        let FastOpen::Cookie(_, cookie) = option else {
            return VerifierVerdict::Invalid { reason: Reason::NoCredential, grant };
        };
        match self.open(&first.flow, cookie) {
            // Without data nothing is executed, so the cookie stays valid.
            Some(_) if first.payload.is_empty() => VerifierVerdict::Invalid { reason: Reason::NoData, grant },
            Some((_, serial)) => VerifierVerdict::Valid { grant, once: Some(serial) },
            None => VerifierVerdict::Invalid { reason: Reason::StaleOrWrongCredential, grant },
        }
    }

    fn redeem_claimed(&self, serial: Serial) -> Decision {
        match self.serials.is_active(serial) {
            true => Decision::Accept(()),
            false => Decision::Refuse(Reason::NotActive),
        }
    }

    fn redeem(&self, serial: Serial, first: &FirstFlight<'_>) -> Decision {
        if matches!(self.farm, Farm::Shared) {
            return Decision::Ask(JobRequest::Redeem { serial, flight: self.flight(first) });
        }
        match self.table(serial).map(|table| table.redeem(serial)) {
            Some(Redeemed::Now) => Decision::Accept(()),
            Some(Redeemed::Before) => Decision::Refuse(Reason::Replay),
            Some(Redeemed::NotActive) => Decision::Refuse(Reason::NotActive),
            Some(Redeemed::Forgotten) | None => Decision::Refuse(Reason::Expired),
        }
    }

    fn activate(&self, serial: Serial) -> Option<JobRequest> {
        if matches!(self.farm, Farm::Shared) {
            return Some(JobRequest::Activate { serial });
        }
        self.serials.activate(serial);
        None
    }

    fn is_once(&self) -> bool {
        // Each member of such a farm accepts a cookie once, so the farm accepts it several times.
        !matches!(self.farm, Farm::EachOnce(_))
    }

    fn needs_store(&self) -> bool {
        matches!(self.farm, Farm::Shared)
    }
}

impl fmt::Debug for OneTimeCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneTimeCookies").field("serials", &self.serials).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
