//! What one part of a configuration demands of another.

use super::{
    Address, BackendProtocol, Config, Listener, Mistake, Mode, Period, Replays, Route, Service, Tun,
};
use firstflight::Authority;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// The largest window of HTTP/2 (RFC 9113 §6.9.1).
const WINDOW: u32 = (1 << 31) - 1;

/// Checks parts of `text`.
struct Checker<'a> {
    text: &'a str,
    services: HashMap<&'a str, &'a Service>,
}

impl Config {
    pub(super) fn check(&self, text: &str) -> Result<(), Mistake> {
        let mut services = HashMap::new();
        for service in &self.services {
            if services.insert(service.name.get_ref().as_str(), service).is_some() {
                let problem = format!("there is another service {:?}", service.name.get_ref());
                return Err(Mistake::at(text, &service.name.span(), problem));
            }
            check_service(text, service)?;
        }
        let checker = Checker { text, services };
        if self.listeners.is_empty() {
            return Err(Mistake::of_whole("has no [[listener]], so nobody can connect"));
        }
        for (n, listener) in self.listeners.iter().enumerate() {
            let others = self.listeners.get(..n).unwrap_or_default();
            if others.iter().any(|other| other.name.get_ref() == listener.name.get_ref()) {
                let problem = format!("there is another listener {:?}", listener.name.get_ref());
                return Err(Mistake::at(text, &listener.name.span(), problem));
            }
            if let Some(problem) = self.conflict(listener, others) {
                return Err(Mistake::at(text, &listener.address.span(), problem));
            }
            checker.listener(listener)?;
        }
        self.check_farm(text)?;
        self.check_dns(text)?;
        self.check_unused(text)
    }

    /// What must fit together so that a first flight runs as often as it may.
    fn check_farm(&self, text: &str) -> Result<(), Mistake> {
        for (n, listener) in self.listeners.iter().enumerate() {
            self.check_once(text, listener)?;
            if let Some(verifier) = &listener.verifier
                && verifier.get_ref().members.is_some_and(|members| members.get() > 1)
                && !(listener.per_site || self.knows(listener))
            {
                let problem = "members do not know which requests with certificates the others took: set per_site = true at the \
                               listener, or give them a [store]";
                return Err(Mistake::at(text, &verifier.span(), problem));
            }
            for other in self.listeners.iter().take(n) {
                let tun = |listener: &'_ Listener| {
                    listener.tun.as_ref().map(|tun| (tun.span(), tun.get_ref().clone()))
                };
                if let (Some((span, one)), Some((_, two))) = (tun(listener), tun(other))
                    && (one.device == two.device || one.host.iter().any(|host| two.host.contains(host)))
                {
                    let problem = format!("listener {:?} has this device or host, too", other.name.get_ref());
                    return Err(Mistake::at(text, &span, problem));
                }
                if let (Some(one), Some(two)) = (&listener.xdp, &other.xdp)
                    && one.get_ref().device == two.get_ref().device
                {
                    let problem = format!(
                        "listener {:?} has this device, too, and one engine owns it",
                        other.name.get_ref()
                    );
                    return Err(Mistake::at(text, &one.span(), problem));
                }
                if let (Some(one), Some(two)) = (&listener.verifier, &other.verifier)
                    && one.get_ref().key == two.get_ref().key
                    && one.get_ref() != two.get_ref()
                {
                    let problem = format!(
                        "listener {:?} has a verifier with this key and other settings, and a process has one for each key",
                        other.name.get_ref()
                    );
                    return Err(Mistake::at(text, &one.span(), problem));
                }
                self.check_identities(text, listener, other)?;
            }
        }
        if let Some(one_time) = &self.one_time
            && !self.listeners.iter().any(|listener| *listener.one_time.get_ref())
        {
            return Err(Mistake::at(text, &one_time.span(), "no listener has one_time = true"));
        }
        let Some(store) = &self.store else { return Ok(()) };
        let settings = store.get_ref();
        let at = |span: &Range<usize>, problem: &str| Err(Mistake::at(text, span, problem));
        if firstflight_redis::has_password(settings.redis.get_ref()) {
            return at(&settings.redis.span(), "has a password: put it into a file, login = FILE");
        }
        if settings.chain.is_some() != settings.key.is_some() {
            return at(&store.span(), "a certificate needs both chain and key");
        }
        if !self.listeners.iter().any(Listener::asks_store) {
            let problem = "no listener asks it anything: give one one_time, replays = \"no-duplicates\", [listener.seal] or trust";
            return at(&store.span(), problem);
        }
        match &self.one_time {
            Some(one_time) if one_time.get_ref().issuer.is_none() => at(
                &one_time.span(),
                "with [store] it needs issuer: another number on every member of the farm",
            ),
            _ => Ok(()),
        }
    }

    /// Whether the listener and the members of a farm know which requests with certificates the others took.
    const fn knows(&self, listener: &Listener) -> bool {
        self.store.is_some() && !listener.per_site
    }

    /// Whether two listeners that take certificates may have a name in common.
    pub(crate) fn may_share_names(&self, one: &Listener, other: &Listener) -> bool {
        let trusts = |listener: &Listener| {
            let verifier = listener.verifier.as_ref().map(|one| one.get_ref().clone());
            (listener.trust.clone(), verifier)
        };
        let know = self.knows(one) && self.knows(other) && trusts(one) == trusts(other);
        know || (one.per_site && other.per_site)
    }

    /// Two listeners with a name in common must know which requests the other one took, and refuse the same ones: what one of
    /// them refuses for lack of trust runs after its handshake, and a copy would run at the other.
    fn check_identities(&self, text: &str, listener: &Listener, other: &Listener) -> Result<(), Mistake> {
        let Some(name) = shared_identity(listener, other) else { return Ok(()) };
        if self.may_share_names(listener, other) {
            return Ok(());
        }
        let by = other.name.get_ref();
        let problem = if !(self.knows(listener) && self.knows(other)) {
            format!(
                "listener {by:?} has the identity {name}, too, so a request with a certificate could run at both: give one \
                 listener all addresses, give the gateway a [store], or set per_site = true at both"
            )
        } else {
            format!(
                "listener {by:?} has the identity {name}, too, and trusts other verifiers, so a request that one refuses could \
                 run at both: give both the same trust and [listener.verifier]"
            )
        };
        Err(Mistake::at(text, &listener.name.span(), problem))
    }

    /// How often a first flight of this listener runs.
    fn check_once(&self, text: &str, listener: &Listener) -> Result<(), Mistake> {
        let (replays, one_time) = (&listener.replays, &listener.one_time);
        let is_limited = *replays.get_ref() != Replays::Allow;
        let span = if *one_time.get_ref() { one_time.span() } else { replays.span() };
        let at = |problem: &str| Err(Mistake::at(text, &span, problem));
        if *one_time.get_ref() && self.one_time.is_none() {
            return at("needs [one_time] with state = FILE");
        }
        if *replays.get_ref() == Replays::AtMostOnce && !*one_time.get_ref() {
            return at(
                "at-most-once needs one_time = true: a plain cookie can be replayed for as long as its key lives",
            );
        }
        if (is_limited || *one_time.get_ref()) && !listener.fast_open {
            return at("needs fast_open");
        }
        if (is_limited || *one_time.get_ref()) && in_udp(listener).is_empty() && !listener.has_device() {
            return at(
                "needs UDP (udp_port), [listener.tun] or [listener.xdp]: the kernel's TCP has no memory of first flights",
            );
        }
        let Some(seal) = &listener.seal else { return Ok(()) };
        if listener.tls.is_none() {
            return Err(Mistake::at(
                text,
                &seal.span(),
                "sealed first flights are inside TLS: needs [listener.tls]",
            ));
        }
        if listener.reuse_port && self.store.is_none() && !listener.per_site {
            return Err(Mistake::at(
                text,
                &seal.span(),
                "with reuse_port two gateways serve at a time, and a sealed request could run at both: give the gateway a [store], or \
                 say with per_site = true that it may",
            ));
        }
        if seal.get_ref().keys.get_ref().is_empty() {
            return Err(Mistake::at(text, &seal.get_ref().keys.span(), "name a file with seal keys"));
        }
        Ok(())
    }
}

impl Config {
    /// Which port of `listener` is not free, because of the listeners before it, itself or the admin address.
    fn conflict(&self, listener: &Listener, others: &[Listener]) -> Option<String> {
        let addresses = listener.address.get_ref();
        for (n, address) in addresses.iter().enumerate() {
            if addresses.get(..n).unwrap_or_default().iter().any(|other| overlap(other, address)) {
                return Some(format!("an address before has {address}, too"));
            }
            // The system lets two sockets share a port only if both say so.
            let shares = |other: &Listener| listener.reuse_port && other.reuse_port;
            let is_taken = |other: &&Listener| {
                let same: Vec<_> =
                    other.address.get_ref().iter().filter(|one| overlap(one, address)).collect();
                same.contains(&address) || (!same.is_empty() && !shares(other))
            };
            if others.iter().any(|other| is_taken(&other)) {
                return Some(format!("another listener has {address}"));
            }
            if self.gateway.admin.is_some_and(|admin| overlap(&admin, address)) {
                return Some(format!("gateway.admin has {address}"));
            }
        }
        // A listener without udp_port does without UDP if its port is taken.
        let port = listener.udp_port.filter(|port| *port != 0)?;
        let ours: Vec<_> = addresses.iter().map(|address| SocketAddr::new(address.ip(), port)).collect();
        let taken = others
            .iter()
            .any(|other| in_udp(other).iter().any(|one| ours.iter().any(|own| overlap(one, own))));
        taken.then(|| format!("another listener has the UDP port {port}"))
    }
}

/// The addresses at which a listener serves UDP.
pub(super) fn in_udp(listener: &Listener) -> Vec<SocketAddr> {
    let at = |address: &SocketAddr| match listener.udp_port {
        Some(0) => None,
        Some(port) => Some(SocketAddr::new(address.ip(), port)),
        None if listener.reuse_port => None,
        None => Some(*address),
    };
    listener.address.get_ref().iter().filter_map(at).collect()
}

/// Whether one socket at each of these addresses is one too many. The system chooses another port for each port 0.
pub(super) fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified() || one.ip() == other.ip();
    one.port() == other.port() && one.port() != 0 && one.is_ipv4() == other.is_ipv4() && any
}

/// A name that both listeners have in certificates, at the same port.
fn shared_identity<'a>(one: &'a Listener, other: &Listener) -> Option<&'a str> {
    if !(one.takes_certificates() && other.takes_certificates()) {
        return None;
    }
    let port = |listener: &Listener| listener.address.get_ref().first().map_or(0, SocketAddr::port);
    let whole = |name: &str, listener: &Listener| match name.parse::<Authority>() {
        Ok(authority) => Ok(authority),
        Err(_) => Authority::new(name, port(listener)),
    };
    let has = |name: &&String| {
        let name = whole(name, one);
        name.is_ok() && other.identity.iter().any(|theirs| whole(theirs, other) == name)
    };
    one.identity.iter().find(has).map(String::as_str)
}

/// What is wrong with the addresses of a device.
fn check_tun(tun: &Tun, listener: &Listener) -> Result<(), &'static str> {
    if tun.host.is_empty() || tun.address.is_empty() {
        return Err(
            "needs host, the kernel's address on the device as \"10.9.0.1/24\", and address, the engine's as \"10.9.0.2\"",
        );
    }
    if listener.engine_addresses().iter().any(|at| at.port() == 0) {
        return Err("needs port");
    }
    let twice = |n: usize, ip: &IpAddr| tun.address.iter().take(n).any(|other| other == ip);
    if tun.address.iter().enumerate().any(|(n, ip)| twice(n, ip)) {
        return Err("has an address twice");
    }
    for ip in &tun.address {
        let Some(net) = tun.host.iter().find(|net| net.contains(ip)) else {
            return Err(
                "an address is in no network of host: the kernel would not send its packets to the device",
            );
        };
        if tun.host.iter().any(|host| host.addr() == *ip) {
            return Err("an address is the kernel's: choose another one of its network");
        }
        let is_wide = net.prefix_len() + 1 < net.max_prefix_len();
        if is_wide && (net.network() == *ip || (ip.is_ipv4() && net.broadcast() == *ip)) {
            return Err(
                "an address is its network's own or broadcast address: choose another one of the network",
            );
        }
    }
    Ok(())
}

fn check_service(text: &str, service: &Service) -> Result<(), Mistake> {
    let at = |problem: &str| Err(Mistake::at(text, &service.name.span(), problem));
    match (&service.root, service.backend.get_ref().is_empty()) {
        (None, true) => return at("needs backend = [\"HOST:PORT\"], or root = \"DIR\" to serve files"),
        (Some(_), false) => return at("has root and backend: its files come from one of them"),
        (None, false) if service.hidden => return at("hidden is about the files of root"),
        (None, false) if service.trial => {
            return at("trial is about what is served beside the files of root");
        }
        (None, false) => {}
        (Some(_), true) => {
            let of_backends = service.tls.is_some()
                || service.health.is_some()
                || service.proxy_protocol
                || service.server_first
                || service.replay_safe
                || service.protocol != BackendProtocol::Http1;
            return match of_backends {
                true => at("has root, so it has no backends, and no settings of them"),
                false => Ok(()),
            };
        }
    }
    if let Some(tls) = &service.tls {
        let at = |problem: &str| Err(Mistake::at(text, &tls.span(), problem));
        let settings = tls.get_ref();
        if settings.chain.is_some() != settings.key.is_some() {
            return at("a certificate needs both chain and key");
        }
        let unix = |address: &Address| matches!(address, Address::Unix(_));
        let is_name = |name: &String| Authority::new(name, 443).is_ok();
        if settings.name.as_ref().is_some_and(|name| !is_name(name)) {
            return at("name is no host name: whose certificate is expected?");
        }
        if settings.name.is_none() && service.backend.get_ref().iter().any(unix) {
            return at("TLS on a unix socket needs name: whose certificate is expected");
        }
    }
    let (streams, window) = (service.max_streams, &service.stream_window);
    if !(1..=1000).contains(&streams) {
        return at("max_streams must be from 1 to 1000");
    }
    // A window of nothing stops every response, and all of them together have the window of their connection.
    if *window.get_ref() == 0 || window.get_ref().saturating_mul(streams) > WINDOW {
        let problem = "must be 1 or more, and with max_streams not above 2147483647 bytes (RFC 9113)";
        return Err(Mistake::at(text, &window.span(), problem));
    }
    if let Some(health) = &service.health {
        if health.interval.0.is_zero() || health.timeout.0.is_zero() {
            return at("the interval and the timeout of health checks must be longer than nothing");
        }
        if health.rise == 0 || health.fall == 0 {
            return at("rise and fall of health checks must be 1 or more");
        }
        if !health.path.starts_with('/') {
            return at("the path of health checks begins with /");
        }
    }
    Ok(())
}

impl Checker<'_> {
    fn listener(&self, listener: &Listener) -> Result<(), Mistake> {
        let addresses = listener.address.get_ref();
        let at = |span: &Range<usize>, problem: &str| Err(Mistake::at(self.text, span, problem));
        let name = listener.name.span();
        if let Some(tun) = &listener.tun {
            check_tun(tun.get_ref(), listener).or_else(|problem| at(&tun.span(), problem))?;
        } else if let Some(xdp) = &listener.xdp {
            xdp.get_ref().check(listener).or_else(|problem| at(&xdp.span(), problem))?;
        } else if addresses.is_empty() {
            return at(&name, "needs an address, as \"0.0.0.0:443\"");
        }
        if addresses
            .iter()
            .any(|address| addresses.first().is_some_and(|first| address.port() != first.port()))
        {
            return at(
                &listener.address.span(),
                "all addresses of a listener need the same port: make another [[listener]] for another port",
            );
        }
        if let Some(wrong) = listener
            .identity
            .iter()
            .find(|name| name.parse::<Authority>().is_err() && Authority::new(name, 443).is_err())
        {
            return at(&name, &format!("identity: {wrong:?} is no host name"));
        }
        let unspecified = addresses.iter().any(|address| address.ip().is_unspecified());
        if listener.takes_certificates() && listener.identity.is_empty() && unspecified {
            return at(
                &name,
                "a listener at all addresses with trust or a verifier needs identity: the names of this server",
            );
        }
        if let Some(engine) = &listener.engine {
            engine.get_ref().check().or_else(|problem| at(&engine.span(), problem))?;
            if in_udp(listener).is_empty() && !listener.has_device() {
                let problem =
                    "has no effect: an engine serves UDP (udp_port), [listener.tun] or [listener.xdp]";
                return at(&engine.span(), problem);
            }
            if engine.get_ref().busy_poll.is_some() && !listener.has_device() {
                return at(
                    &engine.span(),
                    "busy_poll has no effect: it is for [listener.tun] and [listener.xdp]",
                );
            }
        }
        if let Some(verifier) = &listener.verifier
            && in_udp(listener).is_empty()
        {
            let problem =
                "a verifier answers in UDP: give the listener an address and a udp_port other than 0";
            return at(&verifier.span(), problem);
        }
        if listener.key_file.is_some() && listener.key_schedule.is_some() {
            return at(&name, "has key_file and key_schedule: its keys come from one of them");
        }
        let hours = listener.key_period.0.as_secs() / 3600;
        if !(12..=8784).contains(&hours) || listener.key_period != Period::seconds(hours * 3600) {
            return at(&name, "key_period must be whole hours from \"12h\" to \"366d\"");
        }
        if (1..=4096).contains(listener.max_header_bytes.get_ref()) {
            return at(&listener.max_header_bytes.span(), "must be more than 4096 bytes");
        }
        let (stream, whole) = (&listener.stream_window, &listener.connection_window);
        if !(1..=WINDOW).contains(stream.get_ref()) {
            return at(&stream.span(), "must be from 1 to 2147483647 bytes (RFC 9113)");
        }
        if !(65_535..=WINDOW).contains(whole.get_ref()) {
            return at(&whole.span(), "must be from 65535 to 2147483647 bytes (RFC 9113)");
        }
        if stream.get_ref() > whole.get_ref() {
            // One of the two may be the default.
            let span = if whole.span().is_empty() { stream.span() } else { whole.span() };
            let (stream, whole) = (stream.get_ref(), whole.get_ref());
            return at(&span, &format!("stream_window, {stream}, is more than connection_window, {whole}"));
        }
        if listener.service.is_none() && listener.routes.is_empty() {
            return at(&name, "needs a service, or a [[listener.route]]");
        }
        self.mode(listener)?;
        for service in listener.service.iter() {
            self.service(service, listener)?;
        }
        for route in &listener.routes {
            self.route(route.get_ref(), &route.span(), listener)?;
        }
        Ok(())
    }

    fn mode(&self, listener: &Listener) -> Result<(), Mistake> {
        let mode = *listener.mode.get_ref();
        if let Some(tls) = &listener.tls {
            if mode != Mode::Http {
                let problem =
                    "only mode \"http\" terminates TLS; mode \"tls-passthrough\" leaves it to the backends";
                return Err(Mistake::at(self.text, &tls.span(), problem));
            }
            let certificates = &tls.get_ref().certificate;
            if certificates.get_ref().is_empty() {
                return Err(Mistake::at(self.text, &certificates.span(), "name a certificate"));
            }
        }
        if mode == Mode::Tcp && !listener.routes.is_empty() {
            let problem = "mode \"tcp\" has no routes: it has only a service";
            return Err(Mistake::at(self.text, &listener.mode.span(), problem));
        }
        Ok(())
    }

    fn service(&self, name: &toml::Spanned<String>, listener: &Listener) -> Result<(), Mistake> {
        let at = |problem: String| Err(Mistake::at(self.text, &name.span(), problem));
        let Some(service) = self.services.get(name.get_ref().as_str()) else {
            return at(format!("there is no service {:?}", name.get_ref()));
        };
        let mode = *listener.mode.get_ref();
        if service.root.is_some() && mode != Mode::Http {
            return at(format!("the service {:?} has root, which is for mode \"http\"", name.get_ref()));
        }
        if service.server_first && mode != Mode::Tcp {
            return at(format!(
                "the service {:?} has server_first, which is for mode \"tcp\"",
                name.get_ref()
            ));
        }
        if service.protocol == BackendProtocol::H2 && mode != Mode::Http {
            return at(format!("the service {:?} has protocol, which is for mode \"http\"", name.get_ref()));
        }
        if service.replay_safe && mode == Mode::Http {
            return at(format!(
                "the service {:?} has replay_safe, which is for connections: in mode \"http\" use early",
                name.get_ref()
            ));
        }
        Ok(())
    }

    fn route(&self, route: &Route, span: &Range<usize>, listener: &Listener) -> Result<(), Mistake> {
        let at = |problem: &str| Err(Mistake::at(self.text, span, problem));
        let http_only = route.path.is_some() || !route.method.is_empty() || route.early.is_some();
        if *listener.mode.get_ref() == Mode::TlsPassthrough && http_only {
            return at("a route of TLS that is passed through has only host and service");
        }
        if route.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return at("the path of a route begins with /");
        }
        for host in &route.host {
            let name = host.strip_prefix("*.").unwrap_or(host);
            if name.is_empty() || name.contains(['*', ':', '/']) || *name != name.to_ascii_lowercase() {
                return at("a host is a name in lower case without port, or *. and such a name");
            }
        }
        self.service(&route.service, listener)
    }
}
