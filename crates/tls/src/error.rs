//! Errors. Each one says who is at fault.

use firstflight::{BadAuthority, ClientError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Settings that cannot be used. The caller is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read, or is not what it should be.
    #[error("{} {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong. It continues a sentence that begins with the file's name, and never quotes the file.
        problem: String,
    },
    /// There is no certificate for the server.
    #[error("a server of TLS needs a certificate and its key")]
    NoCertificate,
    /// No root is trusted, so no server could be.
    #[error("no certificate authority is trusted: name a file, or use the platform's")]
    NoRoots,
    /// The platform trusts no root, as a container without the package of authorities.
    #[error(
        "this system has no certificate authorities: install them (Debian: ca-certificates), or name a file"
    )]
    NoPlatformRoots,
    /// Sealed first flights are for one protocol each, and the server names none.
    #[error("sealed first flights need the names of the protocols (ALPN)")]
    SealWithoutProtocol,
    /// rustls does not take the settings.
    #[error("cannot use these settings of TLS: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Why a client has no TLS connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server is not a host and a port. The caller is at fault.
    #[error(transparent)]
    Authority(#[from] BadAuthority),
    /// The host cannot be in a certificate. The caller is at fault.
    #[error("{0} is not a name that a certificate can have")]
    Name(String),
    /// rustls does not take the settings. The caller is at fault.
    #[error("cannot use these settings of TLS: {0}")]
    Config(rustls::Error),
    /// There is no connection below TLS.
    #[error(transparent)]
    Connect(#[from] ClientError),
    /// The certificate is not one of this server, or nobody trusted has signed it. The server is at fault, or
    /// somebody answers in its place, or the caller trusts too few.
    #[error("the server's certificate is not valid: {}", why(.0))]
    Certificate(rustls::CertificateError),
    /// The server ended the handshake with this alert (RFC 8446 §6.2).
    #[error("the server refused: alert {0:?}")]
    Refused(rustls::AlertDescription),
    /// The server does not speak TLS 1.3, or breaks its rules. The server is at fault, or somebody on the path.
    #[error("the server does not keep to TLS 1.3: {0}")]
    Server(rustls::Error),
    /// The server does not choose the protocol (ALPN) of its tickets any more. Its tickets are forgotten, so the next
    /// [`Connector::connect_or_lazy`](crate::Connector::connect_or_lazy) finds out what it speaks. The data was not executed,
    /// unless it may be executed twice.
    #[error("the server speaks another protocol than before: connect again")]
    Protocol,
    /// The server closed before its Finished. The server or the path is at fault.
    #[error("the server closed during the handshake")]
    Closed,
    /// The handshake took too long. The server or the path is at fault.
    #[error("no TLS handshake within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection broke.
    #[error("the connection broke during the handshake: {0}")]
    Io(io::Error),
    /// Data that must not be executed twice was on its way when the connection broke.
    #[error("maybe delivered: {0}")]
    MaybeDelivered(io::Error),
    /// The server's name is hidden ([`SealClient::hide`](crate::SealClient::hide)), and there is no connection that does not
    /// name it in clear. The data was not executed, unless it may be executed twice.
    #[error("the server's name is hidden: {0}")]
    Hidden(HiddenError),
}

/// Why a server whose name is hidden is not contacted, or not any more. Its name was not sent in clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HiddenError {
    /// No key of it is known, or none that may be used now and comes from a source that is trusted. Look up its record.
    #[error("there is no key to seal it to")]
    NoKey,
    /// Its key has the name itself as public name. The server's record hides nothing.
    #[error("it is the public name of its own key, so it cannot be hidden")]
    PublicName,
    /// The request cannot be sealed: it is empty or too long for a sealed first flight, or its protocol is not known. The
    /// caller is at fault.
    #[error("the request cannot be sealed (it is empty or too long, or has no protocol)")]
    Request,
    /// A server that does not know sealed first flights answered one for it within the last day: its key may be a forged
    /// one.
    #[error("its key may be forged, as a server did not take a sealed request")]
    Stopped,
    /// The server says that it cannot open the request, or somebody on the path does. Look up its record again.
    #[error("the server has another key by now, or somebody on the path says so")]
    Rejected,
}

impl ConnectError {
    /// The error of the connect behind `error`, which a library returned to which a [`LazyTlsStream`](crate::LazyTlsStream) was
    /// given. hyper's errors carry it, for example.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        firstflight::causes(error).find_map(|cause| cause.downcast_ref())
    }

    /// Whether a request over TLS may have been executed that ended with `error`: unless a connect says that it was not
    /// ([`ConnectError::maybe_delivered`]). What came after the connect is no `ConnectError`. Nobody knows then what the server did.
    ///
    /// ```
    /// # use firstflight_tls::ConnectError;
    /// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert!(ConnectError::may_have_run(&reset));
    /// assert!(!ConnectError::may_have_run(&ConnectError::Closed));
    /// ```
    #[must_use]
    pub fn may_have_run(error: &(dyn std::error::Error + 'static)) -> bool {
        Self::of(error).map_or_else(|| ClientError::may_have_run(error), Self::maybe_delivered)
    }

    /// Whether the server may have executed the data. Data that may be executed twice can be sent again; other data
    /// cannot. Of errors after the connect see [`ConnectError::may_have_run`].
    #[must_use]
    pub const fn maybe_delivered(&self) -> bool {
        matches!(self, Self::MaybeDelivered(_))
    }

    pub(crate) fn handshake(error: io::Error) -> Self {
        match of_rustls(error) {
            Ok(rustls::Error::InvalidCertificate(why)) => Self::Certificate(why),
            Ok(rustls::Error::AlertReceived(alert)) => Self::Refused(alert),
            Ok(error) => Self::Server(error),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::Authority(_) | ConnectError::Name(_) | ConnectError::Config(_) => {
                io::ErrorKind::InvalidInput
            }
            ConnectError::Connect(_) => {
                return match error {
                    ConnectError::Connect(error) => error.into(),
                    error => Self::other(error),
                };
            }
            ConnectError::Certificate(_) | ConnectError::Server(_) => io::ErrorKind::InvalidData,
            ConnectError::Refused(_) | ConnectError::Protocol => io::ErrorKind::ConnectionRefused,
            ConnectError::Closed => io::ErrorKind::UnexpectedEof,
            ConnectError::Timeout(_) => io::ErrorKind::TimedOut,
            ConnectError::Io(error) | ConnectError::MaybeDelivered(error) => error.kind(),
            ConnectError::Hidden(HiddenError::Request) => io::ErrorKind::InvalidInput,
            ConnectError::Hidden(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

/// Why a server has no TLS connection with a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client does not speak TLS 1.3, or breaks its rules. The client is at fault, or somebody on the path.
    #[error("the client does not keep to TLS 1.3: {0}")]
    Client(rustls::Error),
    /// The client's certificate is not valid. The client is at fault, or the caller trusts too few.
    #[error("the client's certificate is not valid: {}", why(.0))]
    Certificate(rustls::CertificateError),
    /// The client ended the handshake with this alert (RFC 8446 §6.2). It may not trust the server's certificate.
    #[error("the client refused: alert {0:?}")]
    Refused(rustls::AlertDescription),
    /// The client sent more than a ClientHello can have. The client is at fault.
    #[error("no ClientHello within {0} bytes")]
    TooLong(usize),
    /// The client sent neither TLS nor a sealed first flight that can be read. The client is at fault.
    #[error("the client sent {0}")]
    Flight(firstflight_seal::Refused),
    /// A sealed request does not run: it ran already, or that cannot be excluded. Somebody on the path has copied it, or
    /// the client is at fault. The connection was closed without a response.
    #[error("a sealed request must not run ({0:?})")]
    NotRun(firstflight_seal::Why),
    /// The client closed during the handshake.
    #[error("the client closed during the handshake")]
    Closed,
    /// The client took too long.
    #[error("no TLS handshake within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection broke.
    #[error("the connection broke during the handshake: {0}")]
    Io(io::Error),
}

impl AcceptError {
    pub(crate) fn of(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(why) => Self::Certificate(why),
            rustls::Error::AlertReceived(alert) => Self::Refused(alert),
            error => Self::Client(error),
        }
    }

    pub(crate) fn handshake(error: io::Error) -> Self {
        match of_rustls(error) {
            Ok(error) => Self::of(error),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<AcceptError> for io::Error {
    fn from(error: AcceptError) -> Self {
        let kind = match &error {
            AcceptError::Client(_)
            | AcceptError::Certificate(_)
            | AcceptError::TooLong(_)
            | AcceptError::Flight(_) => io::ErrorKind::InvalidData,
            AcceptError::NotRun(_) => io::ErrorKind::ConnectionAborted,
            AcceptError::Refused(_) => io::ErrorKind::ConnectionRefused,
            AcceptError::Closed => io::ErrorKind::UnexpectedEof,
            AcceptError::Timeout(_) => io::ErrorKind::TimedOut,
            AcceptError::Io(error) => error.kind(),
        };
        Self::new(kind, error)
    }
}

/// The error of rustls inside an error of the machine, or else the error itself.
fn of_rustls(error: io::Error) -> Result<rustls::Error, io::Error> {
    error.downcast::<rustls::Error>()
}

/// Why a certificate is not valid, in words for a person.
fn why(error: &rustls::CertificateError) -> String {
    use rustls::CertificateError as E;
    let known = match error {
        E::UnknownIssuer => "no trusted authority has signed it",
        E::BadSignature
        | E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature is not that of a trusted authority"
        }
        E::Expired | E::ExpiredContext { .. } => "it has expired, or the clock is wrong",
        E::NotValidYet | E::NotValidYetContext { .. } => "it is not valid yet, or the clock is wrong",
        E::NotValidForName | E::NotValidForNameContext { .. } => "it is for another name",
        // rustls has no word of its own for this one.
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is an authority's own (CA:TRUE): a server needs one with CA:FALSE"
        }
        other => return other.to_string(),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_why_a_certificate_is_not_valid() {
        let told = ConnectError::Certificate(rustls::CertificateError::UnknownIssuer).to_string();
        assert_eq!(told, "the server's certificate is not valid: no trusted authority has signed it");
    }
}
