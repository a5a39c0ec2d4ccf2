//! The application's side: one end of one connection.

use super::MAX_WRITTEN;
use firstflight_stack::{ConnId, IoError, Stack, StateName};
use firstflight_wire::Instant;

/// The byte at `offset` of the stream that `side` sends on the connection from the client's `port`.
pub fn byte(side: usize, port: u16, offset: usize) -> u8 {
    let offset = offset + side * 0x4321 + usize::from(port) * 0x1_0001;
    ((offset.wrapping_mul(0x9e37_79b9) >> 11) ^ (offset >> 3)) as u8
}

/// One end of a connection, held by an application.
#[derive(Debug)]
pub struct End {
    /// 0 is the client.
    pub side: usize,
    pub id: ConnId,
    /// The client's port.
    pub port: u16,
    pub written: usize,
    pub read: usize,
    /// Whether it read the end of the stream.
    pub finished: bool,
    pub shut: bool,
    pub failed: Option<IoError>,
    /// Whether an event arrived since it was last checked.
    pub woken: bool,
}

impl End {
    pub fn new(side: usize, id: ConnId, port: u16) -> Self {
        let (written, read, finished, shut) = (0, 0, false, false);
        Self { side, id, port, written, read, finished, shut, failed: None, woken: true }
    }

    /// Whether nothing more will happen.
    pub fn over(&self) -> bool {
        self.failed.is_some() || (self.finished && self.shut)
    }

    fn fail(&mut self, error: IoError) {
        if matches!(error, IoError::Closed(_)) {
            self.failed = Some(error);
        }
    }

    pub fn write(&mut self, stack: &mut Stack, len: usize, now: Instant) {
        let len = len.min(MAX_WRITTEN.saturating_sub(self.written));
        let bytes: Vec<u8> = (0..len).map(|i| byte(self.side, self.port, self.written + i)).collect();
        match stack.write(self.id, &bytes, now) {
            Ok(n) => {
                assert!(!self.shut || n == 0, "data behind the end of the stream");
                self.written += n;
            }
            // After its own close it cannot write. That is not a failure of the connection.
            Err(_) if self.shut => {}
            Err(error) => self.fail(error),
        }
    }

    /// Reads up to `limit` bytes, or until there is no more data.
    pub fn read(&mut self, stack: &mut Stack, limit: usize, now: Instant) {
        let mut left = limit;
        let mut buf = [0; 2048];
        while left > 0 {
            let room = left.min(buf.len());
            match stack.read(self.id, &mut buf[..room], now) {
                Ok(0) => {
                    self.finished = true;
                    return;
                }
                Ok(n) => {
                    assert!(!self.finished, "bytes behind the end of the stream");
                    for (i, got) in buf[..n].iter().enumerate() {
                        let wanted = byte(1 - self.side, self.port, self.read + i);
                        assert_eq!(*got, wanted, "byte {} of {self:?}", self.read + i);
                    }
                    self.read += n;
                    left -= n;
                }
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Writes up to `total` bytes as space permits, then closes, and reads the available data.
    pub fn finish(&mut self, stack: &mut Stack, total: usize, now: Instant) {
        let mut before = usize::MAX;
        while !self.shut && self.written < total && self.written != before {
            before = self.written;
            self.write(stack, total - self.written, now);
        }
        if self.written >= total || self.failed.is_some() {
            self.shutdown(stack, now);
        }
        self.read(stack, usize::MAX, now);
    }

    pub fn shutdown(&mut self, stack: &mut Stack, now: Instant) {
        self.shut = true;
        if let Err(error) = stack.shutdown(self.id, now) {
            self.fail(error);
        }
    }

    /// Whether something that it sent is not acknowledged.
    pub fn is_waiting(&self, stack: &Stack) -> bool {
        let state = stack.info(self.id).map(|info| info.state);
        let live = !matches!(state, None | Some(StateName::Closed | StateName::TimeWait));
        live && stack.variables(self.id).is_some_and(|v| v.snd_una != v.snd_nxt)
    }

    /// Whether it believes that the peer's window is closed.
    pub fn has_no_window(&self, stack: &Stack) -> bool {
        stack.variables(self.id).is_some_and(|v| v.snd_wnd == 0)
    }

    /// Whether everything that it wrote, the end of the stream included, is acknowledged as far as it knows.
    pub fn has_said_all(&self, stack: &Stack) -> bool {
        let Some(info) = stack.info(self.id) else { return true };
        info.totals.bytes_acked == self.written as u64 && info.state == StateName::FinWait2
    }
}
