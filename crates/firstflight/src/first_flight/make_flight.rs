//! First flights that are made for each attempt.

use super::FirstFlight;
use crate::credential::{AcceptedBlock, NetworkId};
use crate::stream::Way;
use std::borrow::Cow;
use std::io;

/// Makes a first flight of its own for each attempt of one connect ([`Connect::made_by`](crate::Connect::made_by)).
/// A protocol that encrypts needs that: two connections must not begin with the same hello, what fits differs by way, and
/// a sealed request is bound to the credential block that carries it.
pub trait MakeFlight: Send + Sync {
    /// Whether what [`MakeFlight::make`] makes may be executed twice, as with [`FirstFlight::safely_replayable`]: behind
    /// a credential block, if `certified`, or without one.
    fn is_replayable(&self, certified: bool) -> bool;

    /// The name that a credential block in front of what is made is signed for, if it is another one than the server's. A
    /// client that hides the name of a server names the public name of the server's seal key
    /// (`docs/spec/sealed.md` 7.5), which is one of the server's identities. The block's client key is used for this
    /// server under this name only.
    fn block_name(&self) -> Option<&str> {
        None
    }

    /// The first flight of an attempt. It is called once for each attempt that sends data, just before the data leaves:
    /// with the SYN, or after the handshake.
    ///
    /// # Errors
    /// They end the attempt.
    fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>>;
}

/// The attempt that carries a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// The number of the attempt, from 0.
    pub attempt: u32,
    /// The network that this host is on.
    pub network: NetworkId,
    /// The way that the attempt goes.
    pub way: Way,
    /// What the server will see of the credential block in front of the flight, if there is one and the server accepts
    /// it. A client with a cookie of the server for UDP shows that in place of the block.
    pub block: Option<AcceptedBlock>,
    /// The largest payload of a datagram that the server takes, as published, bytes. The block and the encapsulation's
    /// header are a part of it.
    pub mss: Option<u16>,
}

/// Where the data of a connect comes from.
#[derive(Clone, Copy)]
pub(crate) enum Flights<'a> {
    Given(FirstFlight<'a>),
    Made(&'a dyn MakeFlight),
}

impl<'a> Flights<'a> {
    /// There is no data.
    pub(crate) const fn are_empty(&self) -> bool {
        matches!(self, Self::Given(first) if first.data().is_empty())
    }

    pub(crate) fn are_replayable(&self, certified: bool) -> bool {
        match self {
            Self::Given(first) => first.is_replayable(),
            Self::Made(made) => made.is_replayable(certified),
        }
    }

    /// The data of an attempt on the kernel's TCP.
    pub(crate) fn by_kernel(&self, attempt: u32, network: NetworkId) -> io::Result<Cow<'a, [u8]>> {
        self.data(|| AttemptInfo { attempt, network, way: Way::Kernel, block: None, mss: None })
    }

    pub(crate) fn data(&self, info: impl FnOnce() -> AttemptInfo) -> io::Result<Cow<'a, [u8]>> {
        match self {
            Self::Given(first) => Ok(Cow::Borrowed(first.data())),
            Self::Made(made) => made.make(&info()).map(Cow::Owned),
        }
    }
}
