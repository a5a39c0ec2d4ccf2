//! Connects in an event loop of Python.

use crate::descriptor::{OutcomeTuple, told};
use crate::system;
use firstflight::credential::{NetworkId, Outcome, Reason};
use firstflight::kernel;
use firstflight::{ConnectAnyError, FirstFlight};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};

/// An id that no network has.
const NOWHERE: NetworkId = NetworkId([0xff; 16]);

/// What is known of servers.
#[pyclass(frozen, module = "firstflight._native")]
pub(crate) struct Client {
    client: firstflight::Client,
}

#[pymethods]
impl Client {
    #[new]
    fn new(network: Option<&[u8]>, plain: bool) -> PyResult<Self> {
        let off = std::env::var_os("FIRSTFLIGHT").is_some_and(|value| value.eq_ignore_ascii_case("off"));
        let builder =
            firstflight::Client::builder().kernel_only().network(id(network)?).fast_open(!plain && !off);
        // Without a file it does not fail.
        let client = builder.build().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { client })
    }

    fn network_changed(&self, network: Option<&[u8]>) -> PyResult<()> {
        let network = id(network)?;
        // One unknown network cannot be told from the next one, so what was learnt is forgotten.
        self.client.move_to(NOWHERE);
        self.client.move_to(network);
        Ok(())
    }

    /// Each address is an IP address, a port and a scope.
    fn begin(
        &self,
        addresses: Vec<(String, u16, u32)>,
        first: &[u8],
        replayable: bool,
    ) -> PyResult<Connecting> {
        let mut found = Vec::with_capacity(addresses.len());
        for (host, port, scope) in addresses {
            let host = host.split('%').next().unwrap_or_default();
            let ip = host.parse().map_err(|_| PyValueError::new_err(format!("{host} is no IP address")))?;
            found.push(match ip {
                IpAddr::V4(_) => SocketAddr::new(ip, port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            });
        }
        let first = match replayable {
            true => FirstFlight::safely_replayable(first),
            false => FirstFlight::at_most_once(first),
        };
        let work = self.client.begin(&found, first);
        Ok(Connecting { work: Some(work), told: told(Outcome::Undecided, 0, None), made: None })
    }
}

/// A network's id; unknown without one.
fn id(network: Option<&[u8]>) -> PyResult<NetworkId> {
    let Some(network) = network else { return Ok(NetworkId::UNKNOWN) };
    let id = network.try_into().map_err(|_| PyValueError::new_err("the id of a network is 16 bytes"))?;
    Ok(NetworkId(id))
}

/// A connect under way.
#[pyclass(module = "firstflight._native")]
pub(crate) struct Connecting {
    /// `None` after `close`.
    work: Option<kernel::Connecting>,
    told: OutcomeTuple,
    made: Option<(TcpStream, usize, bool)>,
}

#[pymethods]
impl Connecting {
    /// Goes on without blocking. Returns `None` when there is a connection, or else for which descriptors to wait until they are
    /// writable, and for how long at most, in seconds.
    fn step(&mut self) -> PyResult<Option<(Vec<RawFd>, Option<f64>)>> {
        if self.made.is_some() {
            return Ok(None);
        }
        let work = self.work.as_mut().ok_or_else(|| PyRuntimeError::new_err("the connect was closed"))?;
        match work.step() {
            None => {
                let sockets = work.sockets().map(|socket| socket.as_raw_fd()).collect();
                Ok(Some((sockets, work.timeout().map(|time| time.as_secs_f64()))))
            }
            Some(Ok(connected)) => {
                let info = firstflight_kernel::descriptor::info(&connected.stream).ok();
                self.told = told(connected.outcome, 0, info.as_ref());
                self.made = Some((connected.stream, connected.sent, connected.remote.is_ipv6()));
                Ok(None)
            }
            Some(Err(error)) => Err(self.failed(&error)),
        }
    }

    /// The connection's descriptor, how many bytes of the first flight have left, and whether it is of IPv6.
    fn take(&mut self) -> PyResult<(RawFd, usize, bool)> {
        let (stream, sent, ipv6) =
            self.made.take().ok_or_else(|| PyRuntimeError::new_err("there is no connection"))?;
        Ok((stream.into_raw_fd(), sent, ipv6))
    }

    /// Closes the sockets that were not taken.
    fn close(&mut self) {
        (self.work, self.made) = (None, None);
    }

    fn outcome(&self) -> OutcomeTuple {
        self.told
    }

    fn maybe_delivered(&self) -> bool {
        self.work.as_ref().is_some_and(kernel::Connecting::maybe_delivered)
            || self.told.1 == Reason::Unknown.as_str()
    }
}

impl Connecting {
    /// The error of the first attempt.
    fn failed(&mut self, error: &ConnectAnyError) -> PyErr {
        let unknown = Outcome::Handshake(Reason::Unknown);
        if error.attempts.iter().any(|failed| failed.outcome == unknown) {
            self.told = told(unknown, 0, None);
        }
        match error.attempts.first() {
            Some(first) => system(&first.error),
            None => PyOSError::new_err("no address to connect to"),
        }
    }
}
