//! A ClientHello in clear, and why there is none.

use crate::error::AcceptError;
use rustls::AlertDescription;
use rustls::server::{Accepted, AcceptedAlert};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How much is read before there is a ClientHello, bytes. A handshake message of rustls has at most 64 KiB; records around
/// it and early data behind it come to that.
const LONGEST: usize = 128 * 1024;
/// How much is read at a time, bytes.
pub(super) const PIECE: usize = 4096;

/// A ClientHello that was read.
pub(super) struct Hello {
    pub(super) accepted: Accepted,
    /// What carried it. May have more behind it.
    pub(super) records: Vec<u8>,
    /// What rustls has not taken.
    pub(super) behind: Vec<u8>,
}

/// Why there is none.
pub(super) struct Refusal {
    pub(super) error: AcceptError,
    pub(super) alert: Alert,
}

/// What the client is told.
pub(super) enum Alert {
    None,
    /// By rustls.
    Tls(AcceptedAlert),
    /// A fatal alert of this kind, before any key (RFC 8446 §6.2).
    Plain(AlertDescription),
}

impl From<AcceptError> for Refusal {
    fn from(error: AcceptError) -> Self {
        Self { error, alert: Alert::None }
    }
}

impl Refusal {
    pub(super) fn no_protocol() -> Self {
        let error = AcceptError::Client(rustls::Error::NoApplicationProtocol);
        Self { error, alert: Alert::Plain(AlertDescription::NoApplicationProtocol) }
    }

    /// Tells the client, if it listens.
    pub(super) async fn send<IO: AsyncWrite + Unpin>(self, io: &mut IO) -> AcceptError {
        let mut bytes = Vec::new();
        match self.alert {
            Alert::None => {}
            Alert::Tls(mut alert) => drop(alert.write_all(&mut bytes)),
            Alert::Plain(kind) => bytes.extend([21, 3, 3, 0, 2, 2, u8::from(kind)]),
        }
        if !bytes.is_empty() && io.write_all(&bytes).await.is_ok() {
            let _ = io.shutdown().await;
        }
        self.error
    }
}

impl Hello {
    pub(super) async fn read<IO: AsyncRead + Unpin>(
        io: &mut IO,
        mut piece: Vec<u8>,
    ) -> Result<Self, Refusal> {
        let mut acceptor = rustls::server::Acceptor::default();
        let mut records = Vec::new();
        loop {
            let mut rest = piece.as_slice();
            records.extend_from_slice(rest);
            while !rest.is_empty() {
                acceptor.read_tls(&mut rest).map_err(|_| AcceptError::TooLong(LONGEST))?;
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) => return Ok(Self { accepted, records, behind: rest.to_vec() }),
                    Err((error, alert)) => {
                        return Err(Refusal { error: AcceptError::of(error), alert: Alert::Tls(alert) });
                    }
                }
            }
            if records.len() >= LONGEST {
                return Err(AcceptError::TooLong(LONGEST).into());
            }
            piece.resize(PIECE, 0);
            let count = io.read(&mut piece).await.map_err(AcceptError::Io)?;
            piece.truncate(count);
            if count == 0 {
                return Err(AcceptError::Closed.into());
            }
        }
    }
}
