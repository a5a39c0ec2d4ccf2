//! A server's streams that close in stages when they are dropped.

use super::{Kind, Stream};
use crate::lingering::Lingering;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Connections of one server that close in stages at a time. A further one closes at once.
const MOST: usize = 256;

/// The room for the connections of a server that close in stages.
#[derive(Debug, Clone)]
pub(crate) struct Stages(Arc<Semaphore>);

impl Stages {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }

    /// Goes on with the connection of a stream that is dropped: a host answers what comes for a closed connection, or was
    /// not read, with a RST, and its client may lose the answer.
    pub(super) fn close(self, kind: &mut Kind) {
        let (Ok(runtime), Ok(place)) = (Handle::try_current(), self.0.try_acquire_owned()) else { return };
        let Some(kind) = kind.hand_over() else { return };
        runtime.spawn(async move {
            let _place = place;
            // Whatever it says: the connection is over.
            let _ = Lingering::new(Stream::of(kind)).shutdown().await;
        });
    }
}

impl Stream {
    /// The same stream, which closes in stages when it is dropped.
    pub(crate) fn staged(mut self, stages: &Stages) -> Self {
        self.stages = Some(stages.clone());
        self
    }
}

impl Kind {
    /// The connection in a value of its own: dropping this one then does nothing to it. `None` if there is no
    /// connection.
    fn hand_over(&mut self) -> Option<Self> {
        match self {
            Self::Engine(engine) => engine.hand_over().map(Self::Engine),
            Self::Kernel(kernel) => Some(Self::Kernel(kernel.share())),
        }
    }
}
