//! Sockets that a service manager passed (`LISTEN_FDS`, `LISTEN_PID`: sd_listen_fds(3)).

use listenfd::ListenFd;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// The sockets. They stay here, for a server that comes later: the service manager passes them once.
#[derive(Default)]
struct InheritedSockets {
    tcp: Vec<Arc<TcpListener>>,
    udp: Vec<Arc<UdpSocket>>,
}

static PASSED: Mutex<Option<InheritedSockets>> = Mutex::new(None);

impl InheritedSockets {
    fn read() -> Self {
        let mut passed = ListenFd::from_env();
        let mut sockets = Self::default();
        for n in 0..passed.len() {
            // A socket of another kind stays where it is.
            if let Ok(Some(tcp)) = passed.take_tcp_listener(n) {
                sockets.tcp.push(Arc::new(tcp));
            } else if let Ok(Some(udp)) = passed.take_udp_socket(n) {
                sockets.udp.push(Arc::new(udp));
            }
        }
        sockets
    }
}

/// The socket at this address that no server has.
fn find<T>(
    at: SocketAddr,
    sockets: impl FnOnce(&mut InheritedSockets) -> &mut Vec<Arc<T>>,
    address: impl Fn(&T) -> std::io::Result<SocketAddr>,
) -> Option<Arc<T>> {
    let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = sockets(passed.get_or_insert_with(InheritedSockets::read));
    let is_it =
        |socket: &&Arc<T>| Arc::strong_count(socket) == 1 && address(socket).is_ok_and(|found| found == at);
    sockets.iter().find(is_it).cloned()
}

/// The TCP listener at this address, if one was passed.
pub(super) fn tcp(at: SocketAddr) -> Option<Arc<TcpListener>> {
    find(at, |passed| &mut passed.tcp, TcpListener::local_addr)
}

/// The UDP socket at this address, if one was passed.
#[allow(dead_code, reason = "of servers in UDP")]
pub(super) fn udp(at: SocketAddr) -> Option<Arc<UdpSocket>> {
    find(at, |passed| &mut passed.udp, UdpSocket::local_addr)
}
