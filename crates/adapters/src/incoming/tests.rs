use super::*;
use std::sync::Mutex;

/// Fails with these errors, the last one first. Then there is nothing to accept.
struct Fails(Mutex<Vec<io::ErrorKind>>);

impl Accept for Fails {
    fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match self.0.lock().unwrap().pop() {
            Some(kind) => Poll::Ready(Err(kind.into())),
            None => Poll::Pending,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::AddrNotAvailable.into())
    }
}

#[tokio::test(start_paused = true)]
async fn errors_end_no_server() {
    use io::ErrorKind::{ConnectionAborted, Other, OutOfMemory};
    let mut incoming = Incoming::new(Fails(Mutex::new(vec![Other, OutOfMemory, ConnectionAborted])));
    let mut left_after = async |wait| {
        assert!(tokio::time::timeout(wait, incoming.accept()).await.is_err());
        incoming.listener().0.lock().unwrap().len()
    };
    // A client that has gone costs nothing, a lack of memory a pause.
    assert_eq!(left_after(Duration::from_millis(900)).await, 1);
    assert_eq!(left_after(Duration::from_millis(200)).await, 0);
}
