//! A listener's settings, with the services and certificates that they name.

use crate::backend::Service;
use crate::config::{Certificate, Early, Listener, Route};
use crate::farm::{self, Sealing};
use crate::limits::Limit;
use crate::log::Log;
use crate::metrics::Series;
use firstflight_tls::{Acceptor, ConfigError, H2, HTTP_1_1, NewCertificates};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

/// A listener's settings in use. A reload replaces it.
pub(crate) struct Site {
    pub(crate) config: Listener,
    pub(crate) log: Log,
    pub(crate) series: Series,
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) sealing: Option<Arc<Sealing>>,
    service: Option<Arc<Service>>,
    routes: Vec<(Route, Arc<Service>)>,
    /// Places for connections.
    pub(crate) places: Arc<Limit>,
}

/// How many connections a listener may have.
fn most(config: &Listener) -> usize {
    config.max_connections.map_or(usize::MAX, NonZeroUsize::get)
}

/// The services by name.
pub(crate) type Services = HashMap<String, Arc<Service>>;

impl Site {
    /// Looks the services up, and reads the certificates. The acceptor of `former` stays if it names the same files, so that
    /// its sessions stay, too; what is in the files now comes second, to be used with the site.
    pub(crate) fn new(
        config: &Listener,
        services: &Services,
        log: &Log,
        former: Option<&Self>,
        sealing: Option<Arc<Sealing>>,
    ) -> Result<(Self, Option<NewCertificates>), ConfigError> {
        let service = |name: &String| services.get(name).cloned();
        let same = |former: &&Self| {
            let asks = config.tls.as_ref().is_some_and(|tls| tls.get_ref().client_ca.is_some());
            let unchanged =
                former.config.tls == config.tls && former.config.header_timeout == config.header_timeout;
            // The file of authorities is not followed, as those of certificates are.
            unchanged && !asks
        };
        let (acceptor, new) = match former.filter(same) {
            Some(former) => {
                let read = former.acceptor.as_ref().map(|tls| tls.certificates().read_again()).transpose()?;
                (former.acceptor.clone(), read)
            }
            None => (acceptor(config, sealing.as_deref())?, None),
        };
        // The connections of the former site are those of the listener.
        let places = former.map_or_else(|| Limit::new(most(config)), |former| Arc::clone(&former.places));
        let routes = config.routes.iter().map(|route| route.get_ref().clone());
        let routes =
            routes.filter_map(|route| service(route.service.get_ref()).map(|service| (route, service)));
        let routes: Vec<_> = routes.collect();
        let default = config.service.as_ref().and_then(|name| service(name.get_ref()));
        let named = routes.iter().map(|(_, service)| service).chain(&default).map(|service| service.name());
        let series = Series::new(config.name.get_ref(), named);
        let (config, log) = (config.clone(), log.clone());
        Ok((Self { config, log, series, acceptor, sealing, service: default, routes, places }, new))
    }

    /// The site is in use from now on.
    pub(crate) fn begin(&self) {
        self.places.set(most(&self.config));
    }

    pub(crate) fn name(&self) -> &str {
        self.config.name.get_ref()
    }

    /// What is wrong with the certificates, and what is sealed in vain.
    pub(crate) fn problems(&self) -> Vec<String> {
        let Some(served) = self.acceptor.as_ref().map(Acceptor::certificates) else { return Vec::new() };
        let problems = served.problems(SystemTime::now()).into_iter();
        let problems = problems.map(|problem| format!("listener {}: {problem}", self.name()));
        problems.chain(farm::seal_problems(&self.config, &served)).collect()
    }

    /// The service of what no route takes.
    pub(crate) const fn default_service(&self) -> Option<&Arc<Service>> {
        self.service.as_ref()
    }

    /// The service of a connection that asks for this name.
    pub(crate) fn service_for_name(&self, name: Option<&str>) -> Option<&Arc<Service>> {
        let routed = self.routes.iter().find(|(route, _)| route.takes_host(name));
        routed.map(|(_, service)| service).or(self.service.as_ref())
    }

    /// The service of a request, and what of it may run early.
    pub(crate) fn service_for_request(
        &self,
        host: Option<&str>,
        path: &str,
        method: &str,
    ) -> Option<(&Arc<Service>, Early)> {
        let takes = |route: &Route| {
            route.takes_host(host)
                && route.path.as_ref().is_none_or(|prefix| path.starts_with(prefix.as_str()))
                && (route.method.is_empty() || route.method.iter().any(|one| one == method))
        };
        let routed = self.routes.iter().find(|(route, _)| takes(route));
        match routed {
            Some((route, service)) => Some((service, route.early.unwrap_or(self.config.early))),
            None => self.service.as_ref().map(|service| (service, self.config.early)),
        }
    }
}

fn acceptor(config: &Listener, sealing: Option<&Sealing>) -> Result<Option<Acceptor>, ConfigError> {
    let Some(tls) = config.tls.as_ref().map(toml::Spanned::get_ref) else { return Ok(None) };
    let protocols: &[&[u8]] = if tls.http2 { &[H2, HTTP_1_1] } else { &[HTTP_1_1] };
    let mut builder = Acceptor::builder().alpn(protocols.iter().copied()).timeout(config.header_timeout.0);
    for Certificate { chain, key } in tls.certificate.get_ref() {
        builder = builder.files(chain, key);
    }
    if !tls.early_data {
        builder = builder.early_data(0);
    }
    if let Some(file) = &tls.client_ca {
        builder = builder.client_ca_file(file)?;
    }
    if let Some(sealing) = sealing {
        builder = builder.seal(sealing.server.clone());
    }
    builder.build().map(Some)
}
