//! The first data of a stream, and whether it may be executed twice.

#[cfg(feature = "kernel")]
use crate::{
    credential::{NetworkId, asap::AcceptedBlock},
    stream::Way,
};
#[cfg(feature = "kernel")]
use firstflight_stack::ConnectConfig;
#[cfg(feature = "kernel")]
use std::borrow::Cow;
use std::fmt;
#[cfg(feature = "kernel")]
use std::io;

/// The first data of a stream, and whether the server may execute it twice.
///
/// A Fast Open cookie proves the client's address. It does not prove that a SYN is new. If the network duplicates a
/// SYN with data, the server may execute that data a second time (RFC 7413 §6.1, the Fast Open paper's §3.5). So the
/// caller declares what its data is. Without a certificate, a SYN carries only data that may be executed twice.
///
/// ```
/// use firstflight::FirstFlight;
///
/// // A safe request: executing it twice changes nothing.
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
/// // An order: it waits for the handshake.
/// let order = FirstFlight::at_most_once(b"POST /orders HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
/// assert!(request.is_replayable() && !order.is_replayable());
/// ```
#[derive(Clone, Copy, Default)]
pub struct FirstFlight<'a> {
    data: &'a [u8],
    replayable: bool,
}

impl<'a> FirstFlight<'a> {
    /// Data that the server may execute twice without harm, such as a GET: with Fast Open and a known cookie
    /// it rides in the SYN.
    #[must_use]
    pub const fn safely_replayable(data: &'a [u8]) -> Self {
        Self { data, replayable: true }
    }

    /// Data that must not be executed twice. It is sent once, after the handshake is complete, because a plain cookie
    /// does not detect a copied SYN. It rides in the SYN only with a certificate, and only if the caller says that
    /// the server remembers requests ([`Certified::once`](crate::Certified::once)).
    #[must_use]
    pub const fn at_most_once(data: &'a [u8]) -> Self {
        Self { data, replayable: false }
    }

    /// No data, because the server speaks first or the data is not known yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self::at_most_once(&[])
    }

    /// The data.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Whether it may be executed twice.
    #[must_use]
    pub const fn is_replayable(&self) -> bool {
        self.replayable
    }
}

/// Leaves out the data, which may be a secret.
impl fmt::Debug for FirstFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstFlight")
            .field("bytes", &self.data.len())
            .field("replayable", &self.replayable)
            .finish()
    }
}

/// Makes a first flight of its own for each attempt of one connect ([`Client::connect_made`](crate::Client::connect_made)).
/// A protocol that encrypts needs that: two connections must not begin with the same hello, what fits differs by way, and
/// a sealed request is bound to the credential block that carries it.
#[cfg(feature = "kernel")]
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
    fn make(&self, carriage: &Carriage) -> io::Result<Vec<u8>>;
}

/// What carries a first flight.
#[cfg(feature = "kernel")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Carriage {
    /// The number of the attempt, from 0.
    pub attempt: u32,
    /// The network that this host is on.
    pub network: NetworkId,
    /// The way that the attempt goes.
    pub way: Way,
    /// What the server will see of the credential block in front of the flight, if there is one and the server accepts
    /// it. A client with a cookie of the server for UDP shows that in place of the block.
    pub block: Option<AcceptedBlock>,
    /// The largest payload of a datagram that the server takes, as published, bytes. The block and the carrier's header
    /// are a part of it.
    pub mss: Option<u16>,
}

/// Where the data of a connect comes from.
#[cfg(feature = "kernel")]
#[derive(Clone, Copy)]
pub(crate) enum Flights<'a> {
    Given(FirstFlight<'a>),
    Made(&'a dyn MakeFlight),
}

#[cfg(feature = "kernel")]
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

    /// The data of an attempt by an engine with these settings. They get the request's id of their certificate, which a
    /// flight that is made is bound to.
    pub(crate) fn by_engine(
        &self,
        attempt: u32,
        network: NetworkId,
        config: &mut ConnectConfig,
    ) -> io::Result<Cow<'a, [u8]>> {
        let (mut block, mut mss) = (None, None);
        if let (Some(certified), Self::Made(_)) = (&mut config.asap, self) {
            let mut id = [0; 8];
            crate::random_bytes(&mut id)?;
            certified.request_id = Some(id);
            (block, mss) = (Some(certified.certificate.block(&certified.identity, id)), certified.mss);
        }
        let way = if config.carrier.is_some() { Way::Udp } else { Way::Ip };
        self.data(|| Carriage { attempt, network, way, block, mss })
    }

    /// The name that a credential block is signed for, if it is another one than the server's.
    pub(crate) fn block_name(&self) -> Option<&'a str> {
        match self {
            Self::Given(_) => None,
            Self::Made(made) => made.block_name(),
        }
    }

    /// The data of an attempt on the kernel's TCP.
    pub(crate) fn by_kernel(&self, attempt: u32, network: NetworkId) -> io::Result<Cow<'a, [u8]>> {
        self.data(|| Carriage { attempt, network, way: Way::Kernel, block: None, mss: None })
    }

    fn data(&self, carriage: impl FnOnce() -> Carriage) -> io::Result<Cow<'a, [u8]>> {
        match self {
            Self::Given(first) => Ok(Cow::Borrowed(first.data())),
            Self::Made(made) => made.make(&carriage()).map(Cow::Owned),
        }
    }
}
