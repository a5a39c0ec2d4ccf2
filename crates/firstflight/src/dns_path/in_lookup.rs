//! A connection whose first flight travels in a lookup.

use super::HeldBack;
use crate::endpoint::Endpoint;
use crate::stream::{EngineStream, at_present};
use firstflight_dns::{Attempt, ConnectionInfo, FragmentQuery, Fragments, seal};
use firstflight_stack::{ConnId, ConnectConfig, FirstData};
use firstflight_wire::asap::DnsPathParam;
use std::net::{Ipv4Addr, SocketAddr};

/// A connection whose server address is not known yet.
pub(super) struct InLookupConnect {
    pub(super) stream: EngineStream,
    pub(super) id: ConnId,
    segment: Vec<u8>,
    /// Bytes of the data that the connection took.
    pub(super) taken: usize,
}

impl InLookupConnect {
    /// The server's address is not known yet, so the source address is that of the route to the `verifier`.
    pub(super) fn new(
        endpoint: &Endpoint,
        verifier: SocketAddr,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
    ) -> Result<Self, HeldBack> {
        let shared = &endpoint.shared;
        let mut inner = shared.lock();
        let config = at_present(config, &inner.time).map_err(HeldBack::Io)?;
        inner.check().map_err(HeldBack::Io)?;
        inner.find_source(verifier).map_err(HeldBack::Io)?;
        let now = inner.now();
        let in_lookup = inner.stack.connect_in_lookup(port, data, &config, now).map_err(HeldBack::Local)?;
        drop(inner);
        // Dropping the stream gives the connection up.
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        Ok(Self {
            stream: EngineStream::opened(shared, in_lookup.id, nowhere, None),
            id: in_lookup.id,
            segment: in_lookup.segment,
            taken: in_lookup.taken,
        })
    }

    /// Sets the peer's address, which is known now.
    pub(super) fn bound(mut self) -> EngineStream {
        if let Some(info) = self.stream.info() {
            self.stream.set_peer(info.remote);
        }
        self.stream
    }

    /// Seals the first flight and returns its questions. From now on, an answer is accepted from any address that
    /// proves that it received the flight.
    pub(super) fn seal(
        &self,
        seen: SocketAddr,
        to: &DnsPathParam<'_>,
        parity: bool,
    ) -> Result<Vec<FragmentQuery>, HeldBack> {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        crate::random_bytes(&mut *seed).map_err(HeldBack::Io)?;
        let mut rng = <rand_chacha::ChaCha20Rng as rand_chacha::rand_core::SeedableRng>::from_seed(*seed);
        let info = ConnectionInfo::from_segment(seen, &self.segment).map_err(HeldBack::Segment)?;
        let (sealed, key) = seal(&info, to, &mut rng).map_err(HeldBack::Seal)?;
        self.stream.expect_answer(self.id, key);
        let fragments = Fragments::split(&sealed, Attempt::default(), parity);
        FragmentQuery::all(&fragments, to.zone, &mut rng).map_err(HeldBack::Message)
    }
}
