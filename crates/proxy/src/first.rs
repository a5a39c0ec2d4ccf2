//! The first data of a client in a tunnel: what it is, and how much of it may ride in a first flight.

use crate::settings::EarlyData;
use firstflight::{AttemptInfo, MakeFlight, ReplaySafety, Stream};
use firstflight_http::hello;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// How long a client has to speak after an early yes. One that says nothing may be a browser that connects ahead, or wait
/// for its server to speak first.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// The most that is taken before the connect.
const MOST: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct FirstClientData {
    bytes: Vec<u8>,
    /// So many of them may be executed twice. 0: none.
    safe: usize,
    early_data: EarlyData,
    /// How many bytes each attempt had.
    made: Mutex<Vec<(u32, usize)>>,
}

impl FirstClientData {
    /// Reads what the client sends first, behind `bytes` that it has sent already: a whole ClientHello, or anything else.
    /// `None` if nothing comes in time. Then, and if the client has closed its direction, the next read says so.
    /// Errors: the client's connection is over.
    pub(crate) async fn read(
        near: &mut (impl AsyncRead + Unpin),
        mut bytes: Vec<u8>,
        early_data: EarlyData,
    ) -> io::Result<Option<Self>> {
        let until = Instant::now() + PATIENCE;
        // Nothing is a beginning of a ClientHello, too.
        while hello::look(&bytes) == hello::FirstRead::More && bytes.len() < MOST {
            let room = MOST - bytes.len();
            bytes.reserve(room.min(4096));
            match timeout_at(until, (&mut *near).take(room as u64).read_buf(&mut bytes)).await {
                Ok(Ok(0)) | Err(_) => break,
                Ok(result) => result?,
            };
        }
        Ok(Some(Self::of(bytes, early_data)).filter(|first| !first.bytes.is_empty()))
    }

    fn of(bytes: Vec<u8>, early_data: EarlyData) -> Self {
        let safe = match hello::look(&bytes) {
            hello::FirstRead::Hello { length, .. } => length,
            _ if ReplaySafety::ByMethod.flight(&bytes).is_replayable() => bytes.len(),
            _ => 0,
        };
        Self { bytes, safe, early_data, made: Mutex::default() }
    }

    /// How much was sent with the connect.
    pub(crate) fn sent(&self) -> usize {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.last().map_or(0, |(_, len)| *len)
    }

    /// What was not sent with it.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent()..).unwrap_or_default()
    }

    /// Notes that the attempt with this number won.
    pub(crate) fn sent_by(&self, stream: Stream, number: u32) -> Stream {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|(one, _)| *one == number);
        stream
    }

    /// Whether data rides that must not run twice, if the server vouches for that.
    fn rides_once(&self) -> bool {
        self.early_data == EarlyData::AtMostOnce && self.safe < self.bytes.len()
    }

    /// How many bytes an attempt has.
    fn len(&self, certified: bool) -> usize {
        match self.safe {
            0 => self.bytes.len(),
            _ if self.early_data == EarlyData::Replay => self.bytes.len(),
            // The server executes it once only behind a certificate.
            _ if certified && self.rides_once() => self.bytes.len(),
            safe => safe,
        }
    }
}

impl MakeFlight for FirstClientData {
    fn is_replayable(&self, certified: bool) -> bool {
        self.safe > 0 && !(certified && self.rides_once())
    }

    fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>> {
        let len = self.len(info.block.is_some());
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push((info.attempt, len));
        Ok(self.bytes.get(..len).unwrap_or_default().to_vec())
    }
}
