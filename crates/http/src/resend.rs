//! When a request may be sent again (RFC 9110 §9.2.2, RFC 9112 §9.3.1, RFC 9113 §8.7).
//!
//! | what is known of the first attempt | it goes again |
//! |---|---|
//! | nothing of it was written | yes |
//! | HTTP/2: RST_STREAM with REFUSED_STREAM, or its stream is above the last one of GOAWAY | yes |
//! | a kept connection ended before one byte of an answer, and the method is idempotent | once |
//! | a new connection ended before one byte of an answer, and the method is safe | once, at another server |
//! | a new connection ended before one byte of an answer, and the method is not safe | no |
//! | a byte of an answer came: a part of a head, one that is wrong or too long, an interim response | no |
//! | HTTP/2: RST_STREAM with another code, or a wrong frame | no |
//! | no answer in time | no |

use crate::heard::Heard;
use hyper::Method;
use std::io;

/// What is known of an attempt that got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFate {
    /// Nothing of the request was executed: it was not written, or the server says so.
    NotExecuted,
    /// The connection ended, and no byte of an answer came.
    Silence,
    /// Something came back, or nobody knows.
    Answered,
}

/// How often a request may still go again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// As often as there are backends to try.
    Yes,
    /// Once, and on a new connection.
    Once,
    /// Once, if there is another server: this one has died, perhaps, and a safe method asks for nothing but an answer.
    Elsewhere,
    /// It has its answer.
    No,
}

/// Whether a request goes again. `kept` says that its connection had another request before. A connection that is new was
/// not about to be closed, so its end is the server's answer.
#[must_use]
pub fn again(fate: AttemptFate, kept: bool, method: &Method) -> Again {
    match fate {
        AttemptFate::NotExecuted => Again::Yes,
        AttemptFate::Silence if kept && is_idempotent(method) => Again::Once,
        AttemptFate::Silence if !kept && method.is_safe() => Again::Elsewhere,
        AttemptFate::Silence | AttemptFate::Answered => Again::No,
    }
}

/// Whether a request has the same effect if it is executed twice (RFC 9110 §9.2.2). Of methods that are not known, nobody
/// knows.
#[must_use]
pub fn is_idempotent(method: &Method) -> bool {
    method.is_safe() || matches!(*method, Method::PUT | Method::DELETE)
}

/// What passed a connection of HTTP/1 when a request was given to it.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    read: u64,
    written: u64,
}

impl Before {
    /// Now.
    #[must_use]
    pub fn now(heard: &Heard) -> Self {
        Self { read: heard.read(), written: heard.written() }
    }

    /// What is known of a request of HTTP/1 that failed with this error. `unsent` says that hyper gave it back.
    #[must_use]
    pub fn fate(self, heard: &Heard, unsent: bool, error: &hyper::Error) -> AttemptFate {
        if unsent {
            return AttemptFate::NotExecuted;
        }
        let ended = error.is_incomplete_message() || error.is_closed() || error.is_canceled() || is_io(error);
        match (heard.read() == self.read, heard.written() == self.written) {
            _ if !ended => AttemptFate::Answered,
            // An end that came while the connection was idle may show only when it is written.
            (true, true) => AttemptFate::NotExecuted,
            (true, false) => AttemptFate::Silence,
            (false, _) => AttemptFate::Answered,
        }
    }
}

/// What an error of HTTP/2 says about its request. `silent` says that no frame for its stream came, as far as is known.
#[must_use]
pub fn fate_of_h2(error: &h2::Error, silent: bool) -> AttemptFate {
    // h2 ends a stream with the GOAWAY of the server only if the stream is above its last one, or was never opened.
    let above = error.is_go_away() && error.is_remote();
    let refused = error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    if above || refused {
        return AttemptFate::NotExecuted;
    }
    if error.is_io() && silent { AttemptFate::Silence } else { AttemptFate::Answered }
}

fn is_io(error: &hyper::Error) -> bool {
    firstflight::causes(error).any(|cause| cause.is::<io::Error>())
}

#[cfg(test)]
mod tests;
