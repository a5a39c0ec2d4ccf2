//! Bulk: one connection between two of our stacks.

use super::ours::{Pair, SERVICE};
use super::{BULK_BUFFER, BenchError, CHUNK, Pattern, World};
use firstflight_stack::{ConnId, ConnectConfig, Event, IoError, Readiness};

/// One connection, written at one end and read at the other.
pub struct Bulk {
    pair: Pair,
    sender: ConnId,
    receiver: Option<ConnId>,
    writable: bool,
    written: u64,
    read: u64,
    pattern: Pattern,
    buffer: Vec<u8>,
}

impl Bulk {
    /// An open connection whose congestion window has grown, with or without timestamps (RFC 7323).
    pub fn new(timestamps: bool) -> Result<Self, BenchError> {
        let tcp = firstflight_tcp::Config::default()
            .send_buffer(BULK_BUFFER as u32)
            .receive_buffer(BULK_BUFFER as u32)
            .timestamps(timestamps);
        let mut pair = Pair::new(tcp, 1024)?;
        let now = pair.now;
        let (sender, _) = pair
            .client
            .connect(SERVICE, &[], &ConnectConfig::default(), now)
            .map_err(|e| BenchError::refused("our connect", e))?;
        let (pattern, buffer) = (Pattern::new(), vec![0; CHUNK]);
        let (writable, receiver) = (false, None);
        let mut bulk = Self { pair, sender, receiver, writable, written: 0, read: 0, pattern, buffer };
        while bulk.read < 32 << 20 {
            bulk.exchange()?;
        }
        Ok(bulk)
    }

    fn write(&mut self) -> Result<(), BenchError> {
        while self.writable {
            let chunk = self.pattern.chunk(self.written);
            match self.pair.client.write(self.sender, chunk, self.pair.now) {
                Ok(n) => self.written += n as u64,
                Err(IoError::WouldBlock) => self.writable = false,
                Err(error) => return Err(BenchError::refused("our sender's write", error)),
            }
        }
        Ok(())
    }

    fn read(&mut self, id: ConnId) -> Result<(), BenchError> {
        loop {
            match self.pair.server.read(id, &mut self.buffer, self.pair.now) {
                Ok(0) => return Err(BenchError::Wrong("the sender closed".into())),
                Ok(n) => {
                    self.pattern.verify(self.read, &self.buffer[..n])?;
                    self.read += n as u64;
                }
                Err(IoError::WouldBlock) => return Ok(()),
                Err(error) => return Err(BenchError::refused("our receiver's read", error)),
            }
        }
    }
}

impl World for Bulk {
    fn name(&self) -> &'static str {
        "firstflight, bulk"
    }

    fn exchange(&mut self) -> Result<(), BenchError> {
        self.pair.client_arrive();
        while let Some(event) = self.pair.client.poll_event() {
            if let Event::Ready(_, ready) = event {
                self.writable |= ready.contains(Readiness::CONNECTED) || ready.contains(Readiness::WRITABLE);
            }
        }
        self.write()?;
        self.pair.client_depart();
        self.pair.server_arrive();
        while let Some(event) = self.pair.server.poll_event() {
            match event {
                Event::Acceptable(listener) => self.receiver = self.pair.server.accept(listener),
                Event::Ready(id, ready) if ready.contains(Readiness::READABLE) => self.read(id)?,
                Event::Ready(..) => {}
            }
        }
        self.pair.server_depart();
        Ok(())
    }

    fn done(&self) -> u64 {
        self.read
    }

    fn packets(&self) -> u64 {
        self.pair.up.carried() + self.pair.down.carried()
    }

    fn check(&self) -> Result<(), BenchError> {
        self.pair.check()?;
        let info = self.receiver.and_then(|id| self.pair.server.info(id));
        if info.is_some() && self.written - self.read <= 2 * BULK_BUFFER as u64 {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("{} bytes written, {} read", self.written, self.read)))
    }
}
