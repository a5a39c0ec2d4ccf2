//! Settings that are written, but have no effect. Who wrote them believes that they have one, so they are mistakes.

use super::{BackendProtocol, Config, HealthKind, Listener, Mistake, Mode, Replays, Service, check};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// The keys that a text has, with their places. A default cannot be told from the same value in the text otherwise.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    gateway: Keys,
    store: Keys,
    listener: Vec<Keys>,
    service: Vec<Keys>,
}

#[derive(Default, Deserialize)]
struct Keys(BTreeMap<Spanned<String>, IgnoredAny>);

impl Keys {
    /// The place of the first of these keys that is written.
    fn find(&self, keys: &[&str]) -> Option<Range<usize>> {
        self.0.keys().find(|key| keys.contains(&key.get_ref().as_str())).map(Spanned::span)
    }
}

/// Settings of a listener that concern requests.
const OF_REQUESTS: &[&str] = &[
    "max_requests_per_client",
    "max_buffered_per_client",
    "trusted",
    "forwarded",
    "odd_field_names",
    "short",
    "traceparent",
    "early",
    "tunnel_timeout",
    "body_timeout",
    "max_body",
    "max_header_bytes",
    "max_headers",
    "max_streams",
    "stream_window",
    "connection_window",
];
/// Settings of a service that concern backends.
const OF_BACKENDS: &[&str] = &[
    "balance",
    "connect_timeout",
    "response_timeout",
    "retries",
    "pool",
    "pool_idle",
    "max_streams",
    "stream_window",
    "passive",
];

impl Config {
    /// What is written in `text`, and has no effect.
    pub(super) fn check_unused(&self, text: &str) -> Result<(), Mistake> {
        // It was read as a configuration before.
        let written: Written = firstflight_daemon::config::parse(text)?;
        let told = |span: Option<Range<usize>>, why: &str| match span {
            Some(span) => Err(Mistake::at(text, &span, why)),
            None => Ok(()),
        };
        if self.gateway.admin.is_none() {
            told(written.gateway.find(&["admin_hosts"]), "has no effect: it is about questions at admin")?;
        }
        if let Some(store) = &self.store
            && !firstflight_redis::has_tls(store.get_ref().redis.get_ref())
        {
            let why = "has no effect: it is for TLS, and redis names a store without it: write rediss://";
            told(written.store.find(&["ca", "chain", "key"]), why)?;
        }
        for (listener, keys) in self.listeners.iter().zip(&written.listener) {
            for (unused, why) in of_listener(self, listener) {
                told(keys.find(unused), why)?;
            }
        }
        for (service, keys) in self.services.iter().zip(&written.service) {
            for (unused, why) in of_service(self, service) {
                told(keys.find(unused), why)?;
            }
        }
        Ok(())
    }
}

type Unused = Vec<(&'static [&'static str], &'static str)>;

/// Keys that have no effect at this listener, and why.
fn of_listener(config: &Config, listener: &Listener) -> Unused {
    let mut unused = Unused::new();
    if *listener.mode.get_ref() != Mode::Http {
        unused.push((OF_REQUESTS, "has no effect: it is for mode \"http\""));
    }
    if listener.key_schedule.is_none() {
        unused.push((&["key_period"], "has no effect: it is about the keys of key_schedule"));
    }
    if *listener.replays.get_ref() != Replays::NoDuplicates {
        unused.push((&["replay_memory"], "has no effect: it is about replays = \"no-duplicates\""));
    } else if config.store.is_some() {
        unused.push((&["replay_memory"], "has no effect: with [store] the store remembers"));
    }
    if !listener.takes_certificates() {
        unused.push((
            &["identity"],
            "has no effect: it is about certificates, which need trust, the file of their verifiers, or [listener.verifier]",
        ));
        if listener.seal.is_none() {
            let why = "has no effect: it is about certificates and sealed requests, and there is neither trust, \
                       [listener.verifier] nor [listener.seal]";
            unused.push((&["per_site", "first_start"], why));
        }
    }
    let remembers = listener.takes_certificates() && listener.per_site;
    if listener.first_start && config.store.is_some() && !remembers {
        let why = "has no effect: with [store] the memory there says since when it remembers";
        unused.push((&["first_start"], why));
    }
    if check::in_udp(listener).is_empty() && !listener.has_device() {
        unused.push((
            &["trust"],
            "has no effect: certificates come in UDP (udp_port), to [listener.tun] or to [listener.xdp] only",
        ));
    }
    if !listener.fast_open {
        unused.push((&["pending"], "has no effect: fast_open is false, so no first flight is taken"));
    }
    unused
}

/// Keys that have no effect at this service, and why.
fn of_service(config: &Config, service: &Service) -> Unused {
    let mut unused = Unused::new();
    if service.root.is_some() {
        unused.push((OF_BACKENDS, "has no effect: the service has root, so it has no backends"));
    }
    if service.protocol != BackendProtocol::H2 {
        unused.push((&["max_streams", "stream_window"], "has no effect: it is about protocol = \"h2\""));
    }
    let names = |listener: &Listener| {
        let routed = listener.routes.iter().map(|route| &route.get_ref().service);
        let mut all = listener.service.iter().chain(routed);
        all.any(|name| name.get_ref() == service.name.get_ref())
    };
    let mut modes =
        config.listeners.iter().filter(|one| names(one)).map(|one| *one.mode.get_ref()).peekable();
    if modes.peek().is_some() && modes.all(|mode| mode != Mode::Http) {
        let why = "has no effect: it is about requests, and no listener of the service has mode \"http\"";
        unused.push((&["response_timeout", "pool", "pool_idle"], why));
    }
    if let Some(health) = &service.health
        && health.kind == HealthKind::Tcp
        && (health.host.is_some() || health.path != "/")
    {
        unused.push((&["health"], "path and host have no effect: they are about kind = \"http\""));
    }
    unused
}
