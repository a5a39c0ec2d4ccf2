//! For `get --via-dns`: finds out in the background whether unknown servers can reach the socket, so that no fetch
//! waits for it.

use super::supply::{FAILURES, First};
use super::via_dns::ViaDns;
use crate::error::Error;
use crate::output;
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

/// Messages to and from verifiers through the engine's socket.
pub struct Messages(Channel);

/// A link for a client of `verifier` and of servers, and the channel in it that carries the messages of verifiers.
///
/// # Errors
/// Errors of the system.
pub fn open(verifier: SocketAddr) -> Result<(UdpLink, Messages), Error> {
    let mut link = UdpLink::client(&[verifier]).map_err(|error| Error::Udp(verifier, error))?;
    let messages = Messages(link.channel(MESSAGE_MAGIC.to_be_bytes()));
    Ok((link, messages))
}

impl Datagrams for &mut Messages {
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
    pub messages: Messages,
    pub verifiers: [SocketAddr; 2],
}

impl Verification {
    /// Lets the verifiers find out whether unknown servers can reach the socket, if that is not known. If the
    /// verifiers do not answer, asks them again after growing pauses and prints one line on stderr; fetches meanwhile
    /// go the ordinary way. `first` is dropped with the first result.
    pub async fn run(mut self, first: First) {
        let mut first = Some(first);
        let mut pauses = FAILURES;
        while !self.via.is_closed() {
            match reach(&mut self.messages, self.verifiers, &Patience::default()).await {
                Ok(found) if found.is_open() => {
                    let [verifier, _] = self.verifiers;
                    self.via.prove(Some(Proof { seen: found.seen, verifier, at: Instant::now() }));
                    return;
                }
                Ok(_) => {
                    output::complain(&"strangers cannot answer on this network: fetches go the ordinary way");
                    self.via.prove(None);
                    return;
                }
                Err((at, fault)) => {
                    if first.is_some() {
                        output::complain(&format_args!(
                            "verifier {at}: {fault}; fetches go the ordinary way"
                        ));
                    }
                }
            }
            drop(first.take());
            tokio::time::sleep(pauses.next()).await;
        }
    }
}
