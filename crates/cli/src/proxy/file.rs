//! The settings of `proxy` in a file.

use super::{Early, ProxyError, Settings};
use crate::error::Error;
use crate::verifier::SiteVerifiersUse;
use firstflight::Client;
use firstflight_daemon::config::{self, ConfigError, Mistake};
use std::path::Path;
use std::time::Duration;

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            allow_remote: false,
            allow_private: false,
            allow_net: Vec::new(),
            pac: false,
            allow_host: Vec::new(),
            early_data: Early::Hold,
            cache: None,
            no_fast_open: false,
            dns: None,
            verifier: None,
            verifier_key: None,
            group: None,
            found_verifiers: SiteVerifiersUse::Off,
            via_dns: false,
            first_line: false,
            second_verifier: None,
            drain: Duration::from_secs(10),
            json: false,
        }
    }
}

/// Reads a file with settings.
/// Errors: when it cannot be read, or has a mistake.
pub fn read(path: &Path) -> Result<Settings, ConfigError> {
    config::read(path, parse)
}

/// Reads the file of a proxy that runs and began with `began`.
/// Errors: as [`read`], and when a setting needs a restart to change.
pub fn read_again(path: &Path, began: &Settings) -> Result<Settings, Error> {
    let read = config::read(path, |text| {
        let new = parse(text)?;
        match new.needs_restart(began) {
            Some(key) => Err(Mistake::of_key(text, key, "needs a restart to change")),
            None => Ok(new),
        }
    });
    Ok(read?)
}

fn parse(text: &str) -> Result<Settings, Mistake> {
    let settings: Settings = config::parse(text)?;
    match settings.mistake() {
        Some((key, problem)) => Err(Mistake::of_key(text, key, problem)),
        None => Ok(settings),
    }
}

impl Settings {
    /// What clap demands of options, and what they say by themselves.
    fn mistake(&self) -> Option<(&'static str, String)> {
        let needs = |key, needed: &str| Some((key, format!("needs {needed}")));
        if !self.allow_host.is_empty() && !self.pac {
            return needs("allow_host", "pac = true");
        }
        if self.verifier.is_some() && self.verifier_key.is_none() {
            return needs("verifier", "verifier_key, its public key");
        }
        for (key, is_set) in [("verifier_key", self.verifier_key.is_some()), ("group", self.group.is_some())]
        {
            if is_set && self.verifier.is_none() {
                return needs(key, "verifier");
            }
        }
        if self.via_dns && (self.dns.is_none() || self.verifier.is_none() || self.second_verifier.is_none()) {
            return needs("via_dns", "dns, verifier and second_verifier");
        }
        if self.second_verifier.is_some() && !self.via_dns {
            return needs("second_verifier", "via_dns = true");
        }
        if self.first_line && !self.via_dns {
            return needs("first_line", "via_dns = true");
        }
        if let Some(at) = self.listen.iter().find(|at| !at.ip().is_loopback() && !self.allow_remote) {
            let problem = format!(
                "{at} is no loopback address, and everybody who reaches it could use the proxy: use 127.0.0.1 or [::1], or \
                         add allow_remote = true"
            );
            return Some(("listen", problem));
        }
        let built = self.issuer().map(drop).and_then(|()| self.builder(Client::new()).map(drop));
        // Other errors are about files and the system.
        built.err().and_then(|error| error.of_key())
    }

    /// The first key with another value than in `began` that a proxy that runs cannot take over.
    fn needs_restart(&self, began: &Self) -> Option<&'static str> {
        // All are named, so that a new one is thought of here.
        let Self {
            listen,
            allow_remote,
            allow_private: _,
            allow_net: _,
            pac: _,
            allow_host: _,
            early_data,
            cache,
            no_fast_open,
            dns,
            verifier,
            verifier_key,
            group,
            found_verifiers,
            via_dns,
            first_line,
            second_verifier,
            drain,
            json,
        } = self;
        [
            ("listen", *listen != began.listen),
            ("allow_remote", *allow_remote != began.allow_remote),
            ("early_data", *early_data != began.early_data),
            ("cache", *cache != began.cache),
            ("no_fast_open", *no_fast_open != began.no_fast_open),
            ("dns", *dns != began.dns),
            ("verifier", *verifier != began.verifier),
            ("verifier_key", *verifier_key != began.verifier_key),
            ("group", *group != began.group),
            ("found_verifiers", *found_verifiers != began.found_verifiers),
            ("via_dns", *via_dns != began.via_dns),
            ("first_line", *first_line != began.first_line),
            ("second_verifier", *second_verifier != began.second_verifier),
            ("drain", *drain != began.drain),
            ("json", *json != began.json),
        ]
        .into_iter()
        .find_map(|(key, differs)| differs.then_some(key))
    }

    /// Does what the start does with files and names, except for ports. The cache is not opened: a proxy in service has it.
    /// Errors: why a proxy would not start.
    pub fn check(&self) -> Result<(), Error> {
        Self { cache: None, ..self.clone() }.client()?;
        self.cache.as_ref().map_or(Ok(()), |path| {
            let checked = firstflight_files::check_writable(path);
            checked.map_err(|error| ProxyError::Cache(path.clone(), error).into())
        })
    }
}

impl ProxyError {
    /// The key that is wrong, and what is wrong with it, if the text of the settings decides it.
    fn of_key(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Host(host) => Some((
                "allow_host",
                format!("{host:?} is not a host: write www.example.com or 192.0.2.1, without a port"),
            )),
            Self::Key(problem) => Some(("verifier_key", problem.clone())),
            Self::NameViaDns => Some(("verifier", "via_dns needs an address, as 192.0.2.1:4433".to_owned())),
            Self::ViaDns(error) => Some(("second_verifier", error.to_string())),
            Self::Bind(_) | Self::Resolver(..) | Self::Cache(..) | Self::Group(..) => None,
        }
    }
}

#[cfg(test)]
mod tests;
