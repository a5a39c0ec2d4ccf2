//! What `get --via-dns` does in the background, so that no fetch waits for it: it finds out whether strangers can answer
//! the socket, and gets a certificate for each server.

use super::certificates::{Certificates, Certifieds};
use super::target::{Host, Target};
use super::via_dns::ViaDns;
use crate::error::Error;
use crate::output;
use firstflight::Endpoint;
use firstflight::carriage::Proof;
use firstflight::link::UdpLink;
use firstflight::link::udp::Channel;
use firstflight_verifier::client::Datagrams;
use firstflight_verifier::{Patience, reach};
use firstflight_wire::asap::message::MESSAGE_MAGIC;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// The messages of verifiers through the socket of the engine.
pub struct Messages(Channel);

/// A link towards `verifier`, and the part of it that carries the messages of verifiers.
///
/// # Errors
/// Those of the system: there is no route to it.
pub fn open(verifier: SocketAddr) -> Result<(UdpLink, Messages), Error> {
    let mut link = UdpLink::towards(verifier).map_err(|error| Error::Udp(verifier, error))?;
    let messages = Messages(link.channel(MESSAGE_MAGIC.to_be_bytes()));
    Ok((link, messages))
}

impl Datagrams for Messages {
    async fn send_to(&mut self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(datagram, to).await
    }

    async fn recv_from(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (datagram, from) = self.0.recv_from().await?;
        let len = datagram.len().min(buffer.len());
        for (to, byte) in buffer.iter_mut().zip(&datagram) {
            *to = *byte;
        }
        Ok((len, from))
    }
}

/// What a verification needs.
pub struct Verification {
    pub via: Arc<ViaDns>,
    pub endpoint: Endpoint,
    pub messages: Messages,
    pub verifiers: [SocketAddr; 2],
    pub certificates: Certificates,
    pub certified: Arc<Certifieds>,
    pub targets: Vec<Target>,
}

impl Verification {
    /// Begins the verification in a task and returns it. With `first` the verification is over when this returns, and it is
    /// known what the servers publish.
    pub async fn begin(self, first: bool) -> Option<JoinHandle<()>> {
        if first {
            self.run_with_records().await;
            return None;
        }
        Some(tokio::spawn(self.run()))
    }

    /// Runs the verification. What fails is reported on stderr; fetches then go the ordinary way.
    async fn run(self) {
        let Self { via, endpoint, messages, verifiers, certificates, certified, targets } = self;
        let published = |target: &Target| match &target.host {
            Host::Name(name) => via.published(name, target.port),
            Host::Ip(_) => None,
        };
        let obtained = certificates.obtain(&endpoint, true, &targets, published, &certified);
        let ((), obtained) = tokio::join!(prove(&via, messages, verifiers), obtained);
        if let Err(error) = obtained {
            output::complain(&format_args!("{error}; fetching without"));
        }
    }

    /// Runs the verification, and asks what the servers publish.
    async fn run_with_records(self) {
        let via = Arc::clone(&self.via);
        let unknown = self.targets.iter().filter_map(|target| match &target.host {
            Host::Name(name) if via.published(name, target.port).is_none() => {
                Some(via.ask(name, target.port))
            }
            _ => None,
        });
        let records: Vec<_> = unknown.collect();
        self.run().await;
        for mut answered in records {
            // Its sender is gone when there is no answer.
            let _ = answered.wait_for(|answered| *answered).await;
        }
    }
}

/// Has the verifiers find out whether strangers can answer the socket, if that is not known.
async fn prove(via: &ViaDns, messages: Messages, verifiers: [SocketAddr; 2]) {
    if via.is_closed() {
        return;
    }
    match reach(messages, verifiers, &Patience::default()).await {
        Ok(found) if found.is_open() => {
            let [verifier, _] = verifiers;
            via.prove(Some(Proof { seen: found.seen, verifier, at: Instant::now() }));
        }
        Ok(_) => {
            output::complain(&"strangers cannot answer on this network: fetches go the ordinary way");
            via.prove(None);
        }
        Err((at, fault)) => {
            output::complain(&format_args!("verifier {at}: {fault}; fetches go the ordinary way"))
        }
    }
}
