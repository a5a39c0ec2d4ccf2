//! A flight in the making (3, 4): first the ALPN names for the ClientHello, then the seal.

use super::size::Plan;
use crate::bind::Bind;
use crate::commitment::{Commitment, names};
use crate::flight::Flight;
use crate::hello::{Hello, HelloFault};
use crate::name::HostName;
use crate::plain::{Flags, Inner, Rid};
use crate::seal::{SealError, Target, seal};
use rand_core::CryptoRng;

/// A request that is about to be sealed, once. A copy for another connection or encapsulation is another draft with the
/// same rid and t, and a fresh ClientHello (7.1).
#[derive(Debug)]
pub struct Draft<'a> {
    to: Target<'a>,
    rid: Rid,
    bind: Bind,
    t_ms: u64,
    flags: Flags,
    request: &'a [u8],
    protocol: &'a [u8],
    names: [Vec<u8>; 2],
}

/// Why a draft is not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// The ClientHello breaks a rule of 4.1: the TLS configuration is at fault.
    #[error("the ClientHello: {0}")]
    Hello(#[from] HelloFault),
    /// The ClientHello is for another server, or does not offer the names of this draft. The caller is at fault.
    #[error("the ClientHello is not the one of this request")]
    OtherHello,
    /// The seal fails.
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl<'a> Draft<'a> {
    /// A draft. `t_ms` is the client's Unix time when it first sealed this request. `None` if the protocol has not 1 to
    /// 252 bytes, or the request is too long.
    #[must_use]
    pub fn new(
        to: Target<'a>,
        rid: Rid,
        bind: Bind,
        t_ms: u64,
        flags: Flags,
        request: &'a [u8],
        protocol: &'a [u8],
    ) -> Option<Self> {
        u16::try_from(request.len()).ok()?;
        let inner = Inner { rid, bind, t_ms, flags, hello: &[], request };
        let names = names(protocol, &Commitment::new(&to.info_hash(), &inner))?;
        Some(Self { to, rid, bind, t_ms, flags, request, protocol, names })
    }

    /// The ALPN names for the ClientHello, in their order.
    #[must_use]
    pub const fn alpn(&self) -> &[Vec<u8>; 2] {
        &self.names
    }

    /// The protocol that the server selects if it takes the flight.
    #[must_use]
    pub const fn protocol(&self) -> &'a [u8] {
        self.protocol
    }

    /// Seals the ClientHello record for `server`, and the request.
    ///
    /// # Errors
    /// [`DraftError`].
    pub fn seal(
        self,
        hello: &[u8],
        server: &HostName,
        plan: &Plan,
        rng: &mut impl CryptoRng,
    ) -> Result<Flight, DraftError> {
        let read = Hello::parse(hello)?;
        let [ours, digest] = &self.names;
        let same = read.server_name == *server
            && ours.ends_with(read.protocol)
            && ours.len() == read.protocol.len() + 3
            && digest.ends_with(read.digest);
        if !same {
            return Err(DraftError::OtherHello);
        }
        let Self { to, rid, bind, t_ms, flags, request, protocol: _, names: _ } = self;
        Ok(seal(&Inner { rid, bind, t_ms, flags, hello, request }, &to, plan.total, rng)?)
    }
}
