//! A client's connection while it speaks HTTP: hyper reads and writes it behind the framing that leads, and requests watch
//! it.

use crate::client_end::Near;
use crate::settings::Limits;
use firstflight_http::conn::{Left, ServerIo, Times};
use firstflight_http::framing;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// A client's connection. Its clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Conn {
    io: Arc<Mutex<ServerIo<Near>>>,
    near: Near,
}

fn new_io(near: Near, limits: &Limits) -> ServerIo<Near> {
    let head = framing::Limits { bytes: limits.head, fields: limits.fields };
    let times = Times {
        head: limits.head_timeout,
        idle: Some(limits.head_timeout),
        stall: Some(limits.body_timeout),
    };
    ServerIo::new(near, head, times)
}

impl Conn {
    pub(crate) fn new(near: Near, limits: &Limits) -> Self {
        Self { io: Arc::new(Mutex::new(new_io(near.clone(), limits))), near }
    }

    fn io(&self) -> MutexGuard<'_, ServerIo<Near>> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn near(&self) -> &Near {
        &self.near
    }

    /// Waits until the client of a tunnel that is not open yet has left: it failed, or has ended its direction without a word
    /// behind its CONNECT. For the task that drives the connection.
    pub(crate) async fn left(&self) {
        let closed = poll_fn(|cx| {
            let mut io = self.io();
            match io.poll_left(cx) {
                Poll::Ready(Left::Failed) => Poll::Ready(()),
                Poll::Ready(Left::Closed) if io.is_between() => Poll::Ready(()),
                Poll::Ready(Left::Closed) | Poll::Pending => Poll::Pending,
            }
        });
        tokio::select! {
            () = closed => {}
            () = self.near.failed() => {}
        }
    }

    /// Waits until the client has ended its direction. It may still read. `Left::Failed`: it has left. For the task that drives
    /// the connection.
    pub(crate) async fn ended(&self) -> Left {
        tokio::select! {
            left = poll_fn(|cx| self.io().poll_left(cx)) => left,
            () = self.near.failed() => Left::Failed,
        }
    }

    /// What follows is a tunnel.
    pub(crate) fn switch(&self) {
        self.io().switch();
    }

    /// The client's end of a tunnel, and what was read of it and is not hyper's.
    pub(crate) fn take(&self, limits: &Limits) -> (Near, Vec<u8>) {
        let new = new_io(self.near.clone(), limits);
        std::mem::replace(&mut *self.io(), new).into_parts()
    }

    /// Closes the connection that hyper has left.
    pub(crate) async fn close(&self) {
        if let Err(error) = poll_fn(|cx| self.io().poll_close(cx)).await {
            tracing::debug!(%error, "a client's connection was not closed in order");
        }
    }
}

/// hyper's end of it.
pub(crate) struct ForHyper(pub Conn);

firstflight::forward_io!([] ForHyper, Self(conn) => *conn.io());
