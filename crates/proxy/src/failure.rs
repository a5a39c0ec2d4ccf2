//! Why a server is not reached, and how that is said in HTTP and in SOCKS.

use crate::policy::Forbidden;
use crate::socks::Code;
use firstflight::ClientError;
use http::StatusCode;
use std::io;

/// Why a server is not reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The name has no address, or cannot be looked up.
    #[error("{0}")]
    Lookup(ClientError),
    /// The proxy does not connect to such addresses.
    #[error("it resolves to {}", .0.as_str())]
    Forbidden(Forbidden),
    /// The proxy sends no HTTP to this port, because another service has it.
    #[error("port {0} is not for HTTP")]
    Port(u16),
    /// No address answered.
    #[error("{0}")]
    Connect(ClientError),
    /// The lookup or the connect took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The server broke HTTP, or its connection ended before the response.
    #[error("no response: {0}")]
    Response(String),
    /// The response took too long.
    #[error("no response in time")]
    ResponseTimedOut,
}

/// What a failure means: the status of HTTP, the error type of RFC 9209, and the code of SOCKS.
type Meaning = (StatusCode, &'static str, Code);

impl Failure {
    /// Why a connect failed, whose addresses were checked when they were found.
    pub(crate) fn of(error: ClientError) -> Self {
        match &error {
            ClientError::Lookup { error: lookup, .. } => {
                let inner = lookup.get_ref().and_then(|inner| inner.downcast_ref());
                inner.copied().map_or(Self::Lookup(error), Self::Forbidden)
            }
            _ => Self::Connect(error),
        }
    }

    fn meaning(&self) -> Meaning {
        match self {
            Self::Lookup(_) => (StatusCode::BAD_GATEWAY, "dns_error", Code::HostUnreachable),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "destination_ip_prohibited", Code::NotAllowed),
            Self::Port(_) => (StatusCode::FORBIDDEN, "http_request_denied", Code::NotAllowed),
            Self::Connect(error) => connect(first(error)),
            Self::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout", Code::TimedOut),
            Self::Response(_) => (StatusCode::BAD_GATEWAY, "http_response_incomplete", Code::Failure),
            Self::ResponseTimedOut => (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout", Code::Failure),
        }
    }

    /// The status for a client of HTTP.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.meaning().0
    }

    /// The error type of the field `Proxy-Status` (RFC 9209 §2.3).
    #[must_use]
    pub fn error_type(&self) -> &'static str {
        self.meaning().1
    }

    pub(crate) fn code(&self) -> Code {
        self.meaning().2
    }
}

/// The kind of the first attempt's error.
fn first(error: &ClientError) -> Option<io::ErrorKind> {
    match error {
        ClientError::Connect { error, .. } => error.attempts.first().map(|first| first.error.kind()),
        ClientError::Lookup { error, .. } => Some(error.kind()),
        _ => None,
    }
}

const fn connect(kind: Option<io::ErrorKind>) -> Meaning {
    use io::ErrorKind as Kind;
    let gateway = StatusCode::BAD_GATEWAY;
    match kind {
        Some(Kind::ConnectionRefused) => (gateway, "connection_refused", Code::Refused),
        Some(Kind::TimedOut) => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout", Code::TimedOut),
        Some(Kind::NetworkUnreachable) => (gateway, "destination_ip_unroutable", Code::NetworkUnreachable),
        Some(Kind::HostUnreachable) => (gateway, "destination_ip_unroutable", Code::HostUnreachable),
        _ => (gateway, "destination_unavailable", Code::Failure),
    }
}

#[cfg(test)]
mod tests;
