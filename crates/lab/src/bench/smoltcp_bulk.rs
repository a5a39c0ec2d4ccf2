//! Bulk: one connection between two smoltcp stacks.

use super::smoltcp::Pair;
use super::{BULK_BUFFER, BenchError, CHUNK, Pattern, World};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::Socket;

/// One connection, written at one end and read at the other.
pub struct Bulk {
    pair: Pair,
    sender: SocketHandle,
    receiver: SocketHandle,
    written: u64,
    read: u64,
    pattern: Pattern,
    buffer: Vec<u8>,
}

impl Bulk {
    /// An open connection.
    pub fn new() -> Result<Self, BenchError> {
        let mut pair = Pair::new();
        let (sender, receiver) = (pair.client.socket(BULK_BUFFER), pair.server.socket(BULK_BUFFER));
        pair.listen(receiver)?;
        pair.connect(sender)?;
        let (pattern, buffer) = (Pattern::new(), vec![0; CHUNK]);
        let mut bulk = Self { pair, sender, receiver, written: 0, read: 0, pattern, buffer };
        while bulk.read < 32 << 20 {
            bulk.exchange()?;
        }
        Ok(bulk)
    }

    fn write(&mut self) -> Result<(), BenchError> {
        let socket: &mut Socket<'_> = self.pair.client.sockets.get_mut(self.sender);
        while socket.can_send() {
            let n = socket
                .send_slice(self.pattern.chunk(self.written))
                .map_err(|e| BenchError::refused("smoltcp's sender's write", e))?;
            self.written += n as u64;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), BenchError> {
        let socket: &mut Socket<'_> = self.pair.server.sockets.get_mut(self.receiver);
        while socket.can_recv() {
            let n = socket
                .recv_slice(&mut self.buffer)
                .map_err(|e| BenchError::refused("smoltcp's receiver's read", e))?;
            self.pattern.verify(self.read, &self.buffer[..n])?;
            self.read += n as u64;
        }
        Ok(())
    }
}

impl World for Bulk {
    fn name(&self) -> &'static str {
        "smoltcp, bulk"
    }

    fn exchange(&mut self) -> Result<(), BenchError> {
        let now = self.pair.now;
        self.pair.client.arrive(now);
        self.write()?;
        while self.pair.client.depart(now) {}
        self.pair.carry_up();
        self.pair.server.arrive(now);
        self.read()?;
        while self.pair.server.depart(now) {}
        self.pair.carry_down();
        Ok(())
    }

    fn done(&self) -> u64 {
        self.read
    }

    fn packets(&self) -> u64 {
        self.pair.packets()
    }

    fn check(&self) -> Result<(), BenchError> {
        if self.written - self.read <= 2 * BULK_BUFFER as u64 {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("smoltcp: {} bytes written, {} read", self.written, self.read)))
    }
}
