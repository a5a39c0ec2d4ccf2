//! The ways of loading a page.

/// What a client's first packets to a server hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOpening {
    /// A handshake; a request gets the connection that is ready first.
    Handshake,
    /// A handshake, with each request bound to the connection that was opened for it, as Fast Open binds it.
    Bound,
    /// The first bytes in the SYN, with a cookie.
    FastOpen,
    /// The same with a client that has no cookies yet.
    ColdFastOpen,
    /// The first bytes in the SYN, with a certificate.
    Asap,
    /// The first line of a host's first request inside the lookup of its address; further connections like `Asap`.
    AsapInside,
}

/// What is between TCP and HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Nothing.
    None,
    /// TLS 1.3 by certificates: a round trip.
    Full,
    /// TLS 1.3 with a ticket, and the request in early data.
    Ticket,
    /// A sealed first flight: the request is sealed to the server's key, and the server shows its certificate.
    Sealed,
}

/// A way of loading a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadWay {
    pub name: &'static str,
    pub opening: PacketOpening,
    pub security: Security,
    /// Connections serve several requests.
    pub reuse: bool,
    /// One connection for each host, with all requests at once (HTTP/2).
    pub multiplexed: bool,
    /// A first SYN is repeated after the time that the path was measured to need, this project's default. Otherwise after
    /// 1 s, as by Linux.
    pub measured: bool,
    /// Which connections are open before a request.
    pub guesses: Guesses,
    /// The resolver has no address, and has to ask the name server, which is a round trip away from it.
    pub uncached: bool,
}

/// What PRECONNECT guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesses {
    /// Nothing.
    None,
    /// The share of hits that is set.
    Some,
    /// All hosts of the page.
    All,
}

const fn way(name: &'static str, opening: PacketOpening, security: Security) -> LoadWay {
    let (guesses, uncached) = (Guesses::None, false);
    LoadWay { name, opening, security, reuse: true, multiplexed: false, measured: false, guesses, uncached }
}

/// The paper's two columns.
pub const HANDSHAKE: LoadWay = way("handshake", PacketOpening::Handshake, Security::None);
/// See [`HANDSHAKE`].
pub const FAST_OPEN: LoadWay = way("Fast Open", PacketOpening::FastOpen, Security::None);

/// The rows beyond the paper, each with the row that it is compared with.
pub const BEYOND: [(LoadWay, LoadWay); 20] = [
    (way("handshake, bound requests", PacketOpening::Bound, Security::None), HANDSHAKE),
    (FAST_OPEN_MEASURED, HANDSHAKE),
    (way("Fast Open, cold cookies", PacketOpening::ColdFastOpen, Security::None), HANDSHAKE),
    (ASAP, HANDSHAKE),
    (ASAP_INSIDE, HANDSHAKE),
    (PRECONNECT, HANDSHAKE),
    (
        LoadWay {
            guesses: Guesses::All,
            ..way("PRECONNECT, all hits", PacketOpening::Handshake, Security::None)
        },
        HANDSHAKE,
    ),
    (FAST_OPEN_ONCE, HANDSHAKE_ONCE),
    (uncached("Fast Open, names not cached", PacketOpening::FastOpen), UNCACHED),
    (uncached("ASAP, names not cached", PacketOpening::Asap), UNCACHED),
    (uncached("inside lookup, not cached", PacketOpening::AsapInside), UNCACHED),
    (way("TLS 1.3 + Fast Open", PacketOpening::FastOpen, Security::Full), TLS),
    (way("TLS 1.3, tickets", PacketOpening::Handshake, Security::Ticket), TLS),
    (way("TLS 1.3, tickets + Fast Open", PacketOpening::FastOpen, Security::Ticket), TLS),
    (way("sealed", PacketOpening::Handshake, Security::Sealed), TLS),
    (way("sealed + Fast Open", PacketOpening::FastOpen, Security::Sealed), TLS),
    (way("sealed + ASAP", PacketOpening::Asap, Security::Sealed), TLS),
    (multiplexed("h2, TLS 1.3 + Fast Open", PacketOpening::FastOpen, Security::Full), H2),
    (multiplexed("h2, tickets + Fast Open", PacketOpening::FastOpen, Security::Ticket), H2),
    (multiplexed("h2, sealed + ASAP", PacketOpening::Asap, Security::Sealed), H2),
];

/// What [`ASAP_INSIDE`] must not be slower than, on a fast line.
pub const ASAP: LoadWay = way("ASAP", PacketOpening::Asap, Security::None);
/// The row with a request in each lookup.
pub const ASAP_INSIDE: LoadWay = way("ASAP inside the lookup", PacketOpening::AsapInside, Security::None);
const FAST_OPEN_MEASURED: LoadWay = LoadWay {
    measured: true,
    ..way("Fast Open, short SYN timeout", PacketOpening::FastOpen, Security::None)
};
/// The row with guesses, of which some are right.
pub const PRECONNECT: LoadWay =
    LoadWay { guesses: Guesses::Some, ..way("PRECONNECT", PacketOpening::Handshake, Security::None) };
const UNCACHED: LoadWay = uncached("handshake, names not cached", PacketOpening::Handshake);
const HANDSHAKE_ONCE: LoadWay =
    LoadWay { reuse: false, ..way("handshake, no reuse", PacketOpening::Handshake, Security::None) };
const FAST_OPEN_ONCE: LoadWay =
    LoadWay { reuse: false, ..way("Fast Open, no reuse", PacketOpening::FastOpen, Security::None) };
const TLS: LoadWay = way("TLS 1.3", PacketOpening::Handshake, Security::Full);
const H2: LoadWay = multiplexed("h2, TLS 1.3", PacketOpening::Handshake, Security::Full);

/// Every row once, each after the row that it is compared with.
pub fn all() -> Vec<LoadWay> {
    let mut ways = vec![HANDSHAKE, FAST_OPEN];
    for way in BEYOND.iter().flat_map(|(way, over)| [*over, *way]) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// The row that a row is compared with. A row without one is compared with itself.
pub fn compared(way: LoadWay) -> LoadWay {
    if way == FAST_OPEN {
        return HANDSHAKE;
    }
    BEYOND.iter().find(|(row, _)| *row == way).map_or(way, |(_, over)| *over)
}

const fn uncached(name: &'static str, opening: PacketOpening) -> LoadWay {
    LoadWay { uncached: true, ..way(name, opening, Security::None) }
}

const fn multiplexed(name: &'static str, opening: PacketOpening, security: Security) -> LoadWay {
    LoadWay { multiplexed: true, ..way(name, opening, security) }
}

impl LoadWay {
    /// A request is bound to a connection before the connection is open.
    pub const fn binds_early(self) -> bool {
        !matches!(self.opening, PacketOpening::Handshake)
    }

    /// What the client sends before a request on a new connection: bytes of its ClientHello.
    pub const fn hello(self) -> Option<usize> {
        match self.security {
            Security::None => None,
            Security::Full => Some(sizes::HELLO),
            Security::Ticket => Some(sizes::HELLO + sizes::TICKET),
            Security::Sealed => Some(sizes::HELLO + sizes::SEAL),
        }
    }

    /// The server's answer to that, bytes.
    pub const fn flight(self) -> usize {
        match self.security {
            Security::None => 0,
            Security::Full | Security::Sealed => sizes::CERTIFICATES,
            Security::Ticket => sizes::RESUMPTION,
        }
    }

    /// A request must wait for the server's answer to the ClientHello.
    pub const fn waits_for_flight(self) -> bool {
        matches!(self.security, Security::Full)
    }
}

/// Sizes of messages, bytes.
pub mod sizes {
    /// A request of a browser without cookies.
    pub const REQUEST: usize = 450;
    /// A further request in HTTP/2, with most fields in the table of HPACK.
    pub const COMPRESSED: usize = 90;
    /// The part of a request that travels inside a lookup and that the server acts on: request line and host.
    pub const LINE: usize = 80;
    /// The fields of a response.
    pub const FIELDS: usize = 300;
    /// The fields of a response in HTTP/2.
    pub const COMPRESSED_FIELDS: usize = 100;
    /// A ClientHello with X25519 and without padding.
    pub const HELLO: usize = 320;
    /// What a ticket adds to it.
    pub const TICKET: usize = 250;
    /// What the seal of the first flight adds.
    pub const SEAL: usize = 150;
    /// ServerHello to Finished with a chain of two certificates.
    pub const CERTIFICATES: usize = 3_200;
    /// ServerHello to Finished after a ticket.
    pub const RESUMPTION: usize = 250;
    /// The client's Finished.
    pub const FINISHED: usize = 80;
    /// What a record adds to its content.
    pub const RECORD: usize = 22;
    /// A question for an address, and its answer, with IP and UDP.
    pub const LOOKUP: (usize, usize) = (75, 91);
    /// The headers of IP and UDP.
    pub const UDP: usize = 28;
}
