//! The gateway's series. Those of `firstflight::metrics` are beside them.
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_gateway_connections` | `listener` | gauge: connections of clients |
//! | `firstflight_gateway_connections_total` | `listener`, `way`, `outcome` | connections accepted |
//! | `firstflight_gateway_refused_total` | `listener`, `reason` | connections that were closed before they reached a service |
//! | `firstflight_gateway_requests_total` | `listener`, `service`, `code` | requests answered, by class of status |
//! | `firstflight_gateway_early_total` | `listener`, `verdict` | requests and connections that began before the client was confirmed |
//! | `firstflight_gateway_bytes_total` | `listener`, `direction` | bytes of bodies and of connections |
//! | `firstflight_gateway_response_seconds` | `service` | histogram: from the head of a request to the head of its response |
//! | `firstflight_gateway_backend_up` | `service`, `backend` | gauge: 1 if the backend works, 0 if not, NaN if that is not known |
//! | `firstflight_gateway_backend_active` | `service`, `backend` | gauge: connections or requests at a backend |
//! | `firstflight_gateway_backend_failures_total` | `service`, `backend`, `kind` | connects, requests and responses that failed |
//! | `firstflight_gateway_retries_total` | `service`, `reason` | requests that were sent again |
//! | `firstflight_gateway_reloads_total` | `result` | reloads of the configuration |
//! | `firstflight_gateway_reload_successful` | | gauge: 1, or 0 if the last reload was refused |
//! | `firstflight_gateway_reload_success_timestamp_seconds` | | gauge: Unix time at which the configuration in use was read |
//! | `firstflight_gateway_log_lines_lost_total` | | lines of the access log that nobody took in time |

use crate::backend::Backend;
use crate::backend::health::HealthState;
use crate::client::ClientFacts;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::collections::{BTreeSet, HashMap};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

const CONNECTIONS: &str = "firstflight_gateway_connections";
const ACCEPTED: &str = "firstflight_gateway_connections_total";
const REFUSED: &str = "firstflight_gateway_refused_total";
const REQUESTS: &str = "firstflight_gateway_requests_total";
const EARLY: &str = "firstflight_gateway_early_total";
const BYTES: &str = "firstflight_gateway_bytes_total";
const SECONDS: &str = "firstflight_gateway_response_seconds";
const UP: &str = "firstflight_gateway_backend_up";
const ACTIVE: &str = "firstflight_gateway_backend_active";
const FAILURES: &str = "firstflight_gateway_backend_failures_total";
const RETRIES: &str = "firstflight_gateway_retries_total";
const RELOADS: &str = "firstflight_gateway_reloads_total";
const RELOADED: &str = "firstflight_gateway_reload_successful";
const RELOADED_AT: &str = "firstflight_gateway_reload_success_timestamp_seconds";
const LOST: &str = "firstflight_gateway_log_lines_lost_total";

/// Upper bounds of the histogram, seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// The recorder of this process. `None` if the program has installed one of another kind.
pub(crate) fn recorder() -> Option<&'static PrometheusHandle> {
    let install = || {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), &BUCKETS).ok()?;
        let handle = builder.install_recorder().ok()?;
        firstflight::metrics::describe();
        firstflight_tls::metrics::describe();
        firstflight::verifier::metrics::describe();
        firstflight_daemon::process::describe();
        describe();
        Some(handle)
    };
    RECORDER.get_or_init(install).as_ref()
}

fn describe() {
    describe_gauge!(CONNECTIONS, Unit::Count, "Connections of clients");
    describe_counter!(ACCEPTED, Unit::Count, "Connections accepted");
    describe_counter!(REFUSED, Unit::Count, "Connections closed before they reached a service");
    describe_counter!(REQUESTS, Unit::Count, "Requests answered");
    describe_counter!(
        EARLY,
        Unit::Count,
        "Requests and connections that began before the client was confirmed"
    );
    describe_counter!(BYTES, Unit::Bytes, "Bytes of bodies and of connections");
    describe_histogram!(SECONDS, Unit::Seconds, "From the head of a request to the head of its response");
    describe_gauge!(UP, Unit::Count, "Whether the backend works: 1, 0, or NaN if that is not known");
    describe_gauge!(ACTIVE, Unit::Count, "Connections or requests at a backend");
    describe_counter!(FAILURES, Unit::Count, "Connects, requests and responses that failed");
    describe_counter!(RETRIES, Unit::Count, "Requests that were sent again");
    describe_counter!(RELOADS, Unit::Count, "Reloads of the configuration");
    describe_gauge!(RELOADED, Unit::Count, "1, or 0 if the last reload of the configuration was refused");
    describe_gauge!(RELOADED_AT, Unit::Seconds, "Unix time at which the configuration in use was read");
    describe_counter!(LOST, Unit::Count, "Lines of the access log that nobody took in time");
}

/// A connection of a listener. It counts in the gauge until it is dropped.
pub(crate) struct OpenGauge(Gauge);

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

pub(crate) fn refused(listener: &str, reason: &'static str) {
    counter!(REFUSED, "listener" => listener.to_owned(), "reason" => reason).increment(1);
}

/// Classes of statuses, and a client that left.
const CODES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The series that every connection and request of a listener counts in. They are looked up once: a lookup makes texts and
/// takes a lock.
pub(crate) struct Series {
    listener: String,
    open: Gauge,
    /// By way and outcome: there are few of both.
    accepted: FoundCounters<(&'static str, &'static str)>,
    early: FoundCounters<&'static str>,
    received: Counter,
    sent: Counter,
    /// By service, in the order of `CODES`.
    requests: HashMap<String, [OnceLock<Counter>; 6]>,
}

/// Counters that were looked up.
struct FoundCounters<K>(RwLock<Vec<(K, Counter)>>);

impl<K> Default for FoundCounters<K> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Copy + PartialEq> FoundCounters<K> {
    fn increment(&self, key: K, find: impl FnOnce() -> Counter) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = known.iter().find(|(other, _)| *other == key) {
            return counter.increment(1);
        }
        drop(known);
        let counter = find();
        counter.increment(1);
        self.0.write().unwrap_or_else(PoisonError::into_inner).push((key, counter));
    }
}

impl Series {
    pub(crate) fn new<'a>(listener: &str, services: impl Iterator<Item = &'a str>) -> Self {
        let bytes = |direction| counter!(BYTES, "listener" => listener.to_owned(), "direction" => direction);
        let requests = services.map(|service| (service.to_owned(), Default::default())).collect();
        let open = gauge!(CONNECTIONS, "listener" => listener.to_owned());
        let (accepted, early) = (FoundCounters::default(), FoundCounters::default());
        let (received, sent) = (bytes("in"), bytes("out"));
        Self { listener: listener.to_owned(), open, accepted, early, received, sent, requests }
    }

    /// A connection was accepted.
    pub(crate) fn accepted(&self, about: &ClientFacts) -> OpenGauge {
        self.open.increment(1);
        let (way, outcome) = (about.way.as_str(), about.outcome.as_str());
        self.accepted.increment((way, outcome), || {
            let labels =
                [("listener", self.listener.clone()), ("way", way.into()), ("outcome", outcome.into())];
            counter!(ACCEPTED, &labels)
        });
        OpenGauge(self.open.clone())
    }

    /// A request or a connection began before the client was confirmed.
    pub(crate) fn early(&self, verdict: &'static str) {
        let labels = || [("listener", self.listener.clone()), ("verdict", verdict.to_owned())];
        self.early.increment(verdict, || counter!(EARLY, &labels()));
    }

    pub(crate) fn bytes(&self, up: u64, down: u64) {
        self.received.increment(up);
        self.sent.increment(down);
    }

    /// `service` is empty for a request without one.
    pub(crate) fn request(&self, service: &str, status: Option<u16>) {
        let class = status.map_or(0, |status| usize::from(status / 100).clamp(1, 5));
        let code = CODES.get(class).copied().unwrap_or_default();
        let find = || {
            let labels = [
                ("listener", self.listener.clone()),
                ("service", service.to_owned()),
                ("code", code.to_owned()),
            ];
            counter!(REQUESTS, &labels)
        };
        match self.requests.get(service).and_then(|counters| counters.get(class)) {
            Some(counter) => counter.get_or_init(find).increment(1),
            None => find().increment(1),
        }
    }
}

pub(crate) fn response_times(service: &str) -> Histogram {
    histogram!(SECONDS, "service" => service.to_owned())
}

fn labels(backend: &Backend) -> [(&'static str, String); 2] {
    [("service", backend.service.clone()), ("backend", backend.label.clone())]
}

/// Publishes how backends are.
#[derive(Debug, Default)]
pub(crate) struct BackendPublisher(BTreeSet<[String; 2]>);

impl BackendPublisher {
    /// Sets the gauges, before they are read. Of a backend that is no longer there nothing is known.
    pub(crate) fn publish<'a>(&mut self, backends: impl IntoIterator<Item = (&'a Backend, HealthState)>) {
        let mut former = std::mem::take(&mut self.0);
        for (backend, known) in backends {
            let labels = labels(backend);
            gauge!(UP, &labels).set(match known {
                HealthState::Up => 1.0,
                HealthState::Down => 0.0,
                HealthState::Unknown => f64::NAN,
            });
            gauge!(ACTIVE, &labels).set(backend.active() as f64);
            let labels = labels.map(|(_, value)| value);
            former.remove(&labels);
            self.0.insert(labels);
        }
        for [service, backend] in former {
            let labels = [("service", service), ("backend", backend)];
            gauge!(UP, &labels).set(f64::NAN);
            gauge!(ACTIVE, &labels).set(0.0);
        }
    }
}

pub(crate) fn backend_failed(backend: &Backend, kind: &'static str) {
    let [service, name] = labels(backend);
    counter!(FAILURES, &[service, name, ("kind", kind.to_owned())]).increment(1);
}

pub(crate) fn retried(service: &str, reason: &'static str) {
    counter!(RETRIES, "service" => service.to_owned(), "reason" => reason).increment(1);
}

/// The configuration was read again, and is in use (`done`) or not.
pub(crate) fn reloaded(done: bool) {
    counter!(RELOADS, "result" => if done { "done" } else { "refused" }).increment(1);
    if !done {
        gauge!(RELOADED).set(0.0);
    }
}

/// The configuration that was read now is in use.
pub(crate) fn configured() {
    gauge!(RELOADED).set(1.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!(RELOADED_AT).set(now.as_secs_f64());
}

pub(crate) fn log_lines_lost(count: u64) {
    counter!(LOST).increment(count);
}

#[cfg(test)]
mod tests;
