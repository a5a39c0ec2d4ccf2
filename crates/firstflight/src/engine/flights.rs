//! First flights that an engine carries.

use crate::AttemptInfo;
use crate::credential::NetworkId;
use crate::first_flight::Flights;
use crate::stream::Way;
use firstflight_stack::ConnectConfig;
use std::borrow::Cow;
use std::io;

impl<'a> Flights<'a> {
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
        let way = if config.encapsulation.is_some() { Way::Udp } else { Way::Ip };
        self.data(|| AttemptInfo { attempt, network, way, block, mss })
    }

    /// The name that a credential block is signed for, if it is another one than the server's.
    pub(crate) fn block_name(&self) -> Option<&'a str> {
        match self {
            Self::Given(_) => None,
            Self::Made(made) => made.block_name(),
        }
    }
}
