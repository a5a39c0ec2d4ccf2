//! The name server in the gateway, and first flights from other name servers.

use crate::config::Config;
use crate::error::GatewayError;
use crate::gateway::View;
use crate::log::Log;
use firstflight::{Endpoint, RelayTarget};
use firstflight_dns::metrics::{Publisher, RelayPublisher};
use firstflight_dns::service::{
    FollowedZones, FollowingFront, FrontHandle, OpenFront, RelayCounts, RelaySocket, SetUpError, Sockets,
};
use std::panic::resume_unwind;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

/// Ports that are bound, and files that are read.
pub(crate) struct Bound {
    front: Option<(OpenFront, Sockets)>,
    relay: Option<RelaySocket>,
}

/// What is ready to give first flights to a listener.
pub(crate) struct Ready {
    front: Option<FollowingFront>,
    relay: Option<(RelaySocket, RelayTarget, Endpoint)>,
    says: Vec<String>,
}

/// The running name server, and the socket for others. Dropping it ends both.
pub(crate) struct Names {
    zones: Option<FollowedZones>,
    front: Option<FrontHandle>,
    stop: watch::Sender<()>,
    tasks: JoinSet<()>,
}

/// Reads files on a thread where that may take long: zones may be large.
async fn aside<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(read).await {
        Ok(read) => read,
        Err(error) => resume_unwind(error.into_panic()),
    }
}

impl Bound {
    /// Reads the files of `[dns]`, and binds its ports. `None` without `[dns]`.
    /// Errors: when a file or a port cannot be used.
    pub(crate) async fn bind(config: &Config) -> Result<Option<Self>, GatewayError> {
        let Some((dns, listener)) = config.dns() else { return Ok(None) };
        let front = match dns.front(listener) {
            Some(settings) => {
                let ports = settings.ports();
                let front = aside(move || settings.open()).await?;
                Some((front, ports.bind().await?))
            }
            None => None,
        };
        let relay = match &dns.relay {
            Some(relay) => {
                Some(RelaySocket::bind(relay.get_ref().listen, relay.get_ref().key.clone()).await?)
            }
            None => None,
        };
        Ok(Some(Self { front, relay }))
    }

    /// Gives first flights to the listener with this target, whose engine in UDP is `endpoint`.
    /// Errors: Without a random source.
    pub(crate) fn over(self, target: RelayTarget, endpoint: Endpoint) -> Result<Ready, GatewayError> {
        let mut says = Vec::new();
        let front = match self.front {
            Some((front, sockets)) => {
                says.extend(sockets.addresses().iter().map(|at| format!("listening on {at} for names")));
                says.extend(front.dns_path().map(str::to_owned));
                let fronts = sockets.for_fronts();
                says.extend(fronts.map(|at| format!("listening on {at} for the zone's other name servers")));
                let (target, endpoint) = (target.clone(), endpoint.clone());
                let served = front.serve_here(sockets, move |relayed| {
                    tracing::debug!(resolver = %relayed.resolver, "a first flight by DNS");
                    target.take(&endpoint, relayed);
                });
                Some(served.map_err(SetUpError::from)?)
            }
            None => None,
        };
        if let Some(at) = self.relay.as_ref().and_then(|relay| relay.local_addr().ok()) {
            says.push(format!("listening on {at} for first flights from name servers"));
        }
        let relay = self.relay.map(|socket| (socket, target, endpoint));
        Ok(Ready { front, relay, says })
    }
}

impl Ready {
    /// Begins to answer. The lines say where, and are for the log.
    pub(crate) fn run(self, log: &Log, view: &mut View) -> (Names, Vec<String>) {
        let Self { front, relay, says } = self;
        let (stop, stopping) = watch::channel(());
        let mut tasks = JoinSet::new();
        let zones = front.as_ref().map(FollowingFront::zones);
        let handle = front.as_ref().map(FollowingFront::handle);
        if let Some(front) = front {
            firstflight_dns::metrics::describe();
            view.names = Some(Publisher::new(front.handle()));
            let (log, stopping) = (log.clone(), stopping.clone());
            tasks.spawn(front.run(move |line| log.status(&line), ended(stopping)));
        }
        if let Some((socket, target, endpoint)) = relay {
            firstflight_dns::metrics::describe_relay();
            view.relayed = Some((socket.counts(), RelayPublisher::new()));
            tasks.spawn(async move {
                tokio::select! {
                    () = socket.run(|relayed| target.take(&endpoint, relayed)) => {}
                    () = ended(stopping) => {}
                }
            });
        }
        (Names { zones, front: handle, stop, tasks }, says)
    }
}

/// Waits until the sender is dropped: nothing is sent.
async fn ended(mut stopping: watch::Receiver<()>) {
    let _ = stopping.changed().await;
}

impl Names {
    /// Reads the zone files of `config` in place of those before. Other keys of `[dns]` do not change.
    pub(crate) fn read_again(&self, config: &Config) {
        if let (Some(zones), Some((dns, _))) = (&self.zones, config.dns()) {
            zones.replace(dns.zone_files());
        }
    }

    /// The name server's.
    pub(crate) const fn front(&self) -> Option<&FrontHandle> {
        self.front.as_ref()
    }

    /// Takes no further first flights, and answers the queries that are under way.
    pub(crate) async fn end(self) {
        let Self { zones: _, front: _, stop, mut tasks } = self;
        drop(stop);
        while tasks.join_next().await.is_some() {}
    }
}

/// What is wrong with the files of `[dns]`. No port is bound, and no file is created or locked.
pub(crate) async fn check(config: &Config) -> Vec<GatewayError> {
    let Some((dns, listener)) = config.dns() else { return Vec::new() };
    let (front, relay) = (dns.front(listener), dns.relay.as_ref().map(|relay| relay.get_ref().key.clone()));
    let errors = aside(move || {
        let of_front = front.and_then(|front| front.check().err());
        let of_relay = relay.and_then(|key| RelaySocket::check(&key).err());
        [of_front, of_relay]
    });
    errors.await.into_iter().flatten().map(GatewayError::from).collect()
}

/// Publishes the counts of the name server, and of the socket for others.
pub(crate) fn publish(names: &mut Option<Publisher>, relayed: &mut Option<(RelayCounts, RelayPublisher)>) {
    if let Some(names) = names {
        names.publish();
    }
    if let Some((counts, publisher)) = relayed {
        publisher.publish(&counts.now());
    }
}
