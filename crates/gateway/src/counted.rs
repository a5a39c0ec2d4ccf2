//! What a listener counts until its end.

use crate::listening::{ByKernel, Listening};
use crate::log::{self, Last, Log};
use firstflight::Endpoint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct ListenerCounts {
    name: String,
    by_kernel: Option<Arc<ByKernel>>,
    engines: Vec<Endpoint>,
    asks_store: bool,
}

impl ListenerCounts {
    pub(crate) fn of(name: &str, listening: &Listening, has_store: bool) -> Self {
        let by_kernel = (!listening.addresses.is_empty()).then(|| Arc::clone(&listening.by_kernel));
        let asks_store = has_store && listening.site.load().config.asks_store();
        Self { name: name.to_owned(), by_kernel, engines: listening.endpoints.clone(), asks_store }
    }

    /// Writes it into the log. Engines that saw nothing are left out.
    pub(crate) fn say(&self, log: &Log) {
        let (listener, time) = (self.name.as_str(), log::now);
        if let Some(by_kernel) = &self.by_kernel {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts =
                log::Tcp { connections: of(&by_kernel.connections), accepted: of(&by_kernel.accepted) };
            log.last(&Last::Tcp { time: time(), listener, counts });
        }
        for engine in &self.engines {
            let counters = engine.counters();
            if self.asks_store {
                let counts = log::Store::new(&engine.store_counters());
                log.last(&Last::Store { time: time(), listener, counts });
            }
            // A first flight from a name server is answered without a packet.
            if counters.packets_in + counters.packets_out > 0 {
                let counts = log::Report::new(&counters, engine.connections());
                log.last(&Last::Counters { time: time(), listener, counts });
            }
        }
    }
}
