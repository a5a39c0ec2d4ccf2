//! One connect: the opening bytes of its attempts, and what became of them.

use super::Connector;
use crate::error::ConnectError;
use crate::hello::Hello;
use crate::sealed::{Ended, Ordinary, SealReport, SealedHello, SealedRequest};
use firstflight::credential::NetworkId;
use firstflight::{
    AttemptInfo, Authority, Client, ClientError, FirstFlight, MakeFlight, ServerPlace, Stream,
};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The hellos of one connect: each attempt has its own.
pub(super) struct Hellos<'a> {
    connector: &'a Connector,
    server: &'a Authority,
    data: FirstFlight<'a>,
    sealed: Option<&'a SealedRequest<'a>>,
    /// What became of the seal of a hello in clear, if it is known already.
    report: Option<SealReport>,
    made: Mutex<MadeAttempt>,
}

/// The beginning of an attempt.
enum AttemptOpening {
    Clear(Box<Hello>),
    Sealed(Box<SealedHello>),
}

impl AttemptOpening {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Clear(hello) => hello.bytes().to_vec(),
            Self::Sealed(hello) => hello.bytes().to_vec(),
        }
    }

    const fn is_once(&self) -> bool {
        matches!(self, Self::Sealed(hello) if hello.is_once())
    }

    const fn sealed(&self) -> Option<&SealedHello> {
        match self {
            Self::Sealed(hello) => Some(hello),
            Self::Clear(_) => None,
        }
    }
}

#[derive(Default)]
struct MadeAttempt {
    hellos: Vec<(u32, AttemptOpening)>,
    /// The network of the first attempt.
    network: Option<NetworkId>,
    /// Why one could not be made.
    failed: Option<ConnectError>,
}

impl Hellos<'_> {
    fn opening(&self, info: &AttemptInfo) -> Result<AttemptOpening, ConnectError> {
        let sealed = match self.sealed {
            Some(request) => request.seal_for(self.connector, info)?,
            None => None,
        };
        match sealed {
            Some(sealed) => Ok(AttemptOpening::Sealed(Box::new(sealed))),
            None => Ok(AttemptOpening::Clear(Box::new(self.connector.hello(
                self.server,
                info.into(),
                self.data,
            )?))),
        }
    }

    fn made(&self) -> MutexGuard<'_, MadeAttempt> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MakeFlight for Hellos<'_> {
    /// A ClientHello runs nothing, and early data is only what may be executed twice.
    fn is_replayable(&self, certified: bool) -> bool {
        self.sealed.is_none_or(|request| request.is_replayable(certified))
    }

    fn block_name(&self) -> Option<&str> {
        self.sealed?.block_name()
    }

    fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>> {
        self.connector.shared.tickets.on(info.network);
        match self.opening(info) {
            Ok(hello) => {
                let bytes = hello.bytes();
                let mut made = self.made();
                made.network.get_or_insert(info.network);
                made.hellos.push((info.attempt, hello));
                Ok(bytes)
            }
            Err(error) => {
                let told = io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
                self.made().failed = Some(error);
                Err(told)
            }
        }
    }
}

impl Connector {
    /// One connect.
    pub(super) async fn attempt(
        &self,
        (client, at): (&Client, Option<&ServerPlace>),
        server: &Authority,
        data: FirstFlight<'_>,
        sealed: Option<&SealedRequest<'_>>,
        report: Option<SealReport>,
    ) -> Ended<Stream> {
        let hellos = Hellos { connector: self, server, data, sealed, report, made: Mutex::default() };
        let connect = client.connect(server, FirstFlight::empty());
        let connect = match at {
            Some(place) => connect.at(place.clone()),
            None => connect,
        };
        let connected = connect.made_by(&hellos).await;
        let Hellos { made, report, .. } = hellos;
        let MadeAttempt { hellos, failed, network } =
            made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ordinary = |was| network.into_iter().for_each(|network| self.ordinary(network, server, was));
        // Whether a flight has left by a way that did not win.
        let (winner, left) = match &connected {
            Ok((stream, number)) => (Some(*number), stream.race().is_some_and(|race| race.data_left_twice())),
            Err(error) => (None, error.maybe_delivered()),
        };
        let mut flights = hellos.iter().filter_map(|(number, opening)| Some((*number, opening.sealed()?)));
        let is_sealed = flights.clone().next().is_some();
        if left
            && flights.clone().all(|(number, _)| Some(number) != winner)
            && let Some((_, flight)) = flights.next()
        {
            // All of them are copies of one request.
            flight.unanswered();
        }
        let (stream, number) = match (connected, failed) {
            (Ok(connected), _) => connected,
            (Err(error), failed) => {
                // Was it because of the flight? A reset may be an answer to it. Otherwise SYNs without it were lost as well.
                let refused = is_sealed && is_refused(&error);
                if !refused {
                    ordinary(Ordinary::Failed);
                }
                // A flight that could run, and must not run twice, may be at the server.
                return if hellos.iter().any(|(_, opening)| opening.is_once()) {
                    Ended::Over(ConnectError::MaybeDelivered(error.into()))
                } else if let Some(failed) = failed {
                    Ended::Over(failed)
                } else if refused {
                    Ended::Failed(error.into())
                } else {
                    Ended::Over(error.into())
                };
            }
        };
        // It fails only when the connection is over, which the handshake will say.
        let _ = stream.set_nodelay(true);
        // A second race, for the other family's addresses, counts from the beginning.
        match hellos.into_iter().rfind(|(attempt, _)| *attempt == number) {
            Some((_, AttemptOpening::Clear(hello))) => match hello.finish(stream).await {
                Ok(stream) => {
                    ordinary(Ordinary::Worked);
                    let declined = sealed.map(|request| request.declined().into());
                    Ended::Taken(Box::new(stream.considered(report.or(declined))))
                }
                Err(error) => {
                    ordinary(Ordinary::Failed);
                    Ended::Over(error)
                }
            },
            Some((_, AttemptOpening::Sealed(hello))) => {
                let first = stream.outcome().is_accepted();
                hello.finish(stream, first).await
            }
            // Its bytes are on the stream.
            None => Ended::Over(ConnectError::Closed),
        }
    }
}

/// Whether a SYN was answered by a RST, which may be because of the data in it. Otherwise nothing has answered, also no SYN
/// without data.
fn is_refused(error: &ClientError) -> bool {
    let refused = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
    };
    match error {
        ClientError::Connect { error, .. } => error.attempts.iter().any(|attempt| refused(&attempt.error)),
        _ => false,
    }
}
