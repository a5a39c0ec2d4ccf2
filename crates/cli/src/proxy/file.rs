//! The settings of `proxy` in a file.

use super::{Early, ProxyError, Settings};
use crate::error::Error;
use crate::verifier::Found;
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
            found_verifiers: Found::Off,
            via_dns: false,
            first_line: false,
            second_verifier: None,
            drain: Duration::from_secs(10),
            json: false,
        }
    }
}

/// Reads a file with settings.
///
/// # Errors
/// When it cannot be read, or has a mistake.
pub fn read(path: &Path) -> Result<Settings, ConfigError> {
    config::read(path, parse)
}

/// Reads the file of a proxy that runs and began with `began`.
///
/// # Errors
/// As [`read`], and when a setting needs a restart to change.
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
    ///
    /// # Errors
    /// Why a proxy would not start.
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
mod tests {
    use super::*;
    use crate::file_keys::assert_names_of_options;
    use clap::{Args as _, FromArgMatches};

    fn said(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_keys_are_the_names_of_the_options() {
        let command = Settings::augment_args(clap::Command::new("proxy"));
        assert_names_of_options(&command, &said("not_a_key = 1"));
        let defaults = Settings::from_arg_matches(&command.get_matches_from(["proxy"])).unwrap();
        assert_eq!(parse("").unwrap(), defaults);
    }

    #[test]
    fn a_file_says_what_options_say() {
        let text = "listen = [\"127.0.0.1:0\"]\npac = true\nallow_host = [\"www.example.com\"]\nallow_net = [\"10.0.0.0/8\"]\n\
                    early_data = \"once\"\ndrain = \"2s\"\njson = true\n";
        let command = Settings::augment_args(clap::Command::new("proxy"));
        let options = [
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--pac",
            "--allow-host",
            "www.example.com",
            "--allow-net",
            "10.0.0.0/8",
            "--early-data",
            "once",
            "--drain",
            "2s",
            "--json",
        ];
        let options = Settings::from_arg_matches(&command.get_matches_from(options)).unwrap();
        assert_eq!(parse(text).unwrap(), options);
    }

    #[test]
    fn a_mistake_names_line_and_key() {
        for (text, expected) in [
            ("pac = true\nalow_host = []", "line 2, alow_host: unknown field `alow_host`"),
            ("allow_host = [\"a\"]", "line 1, allow_host: needs pac = true"),
            ("pac = true\nallow_host = [\"a b\"]", "line 2, allow_host: \"a b\" is not a host"),
            ("listen = [\"192.0.2.1:1\"]", "line 1, listen: 192.0.2.1:1 is no loopback address"),
            ("drain = 10", "line 1, drain: "),
            ("drain = \"soon\"", "line 1, drain: \"soon\""),
            ("early_data = \"never\"", "line 1, early_data: unknown variant `never`"),
            ("verifier = \"127.0.0.1:1\"", "line 1, verifier: needs verifier_key"),
            ("\nverifier_key = \"00\"", "line 2, verifier_key: needs verifier"),
            ("verifier = \"127.0.0.1:1\"\nverifier_key = \"00\"", "line 2, verifier_key: "),
            ("via_dns = true", "line 1, via_dns: needs dns, verifier and second_verifier"),
            ("verifier = \"pv example\"\nverifier_key = \"00\"", "line 1, verifier: "),
            ("second_verifier = \"127.0.0.1:1\"", "line 1, second_verifier: needs via_dns"),
        ] {
            let said = said(text);
            assert!(said.starts_with(expected), "{text}: {said}");
        }
    }

    #[test]
    fn what_a_proxy_that_runs_cannot_take_over_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("proxy.toml");
        let began = parse("listen = [\"127.0.0.1:0\"]").unwrap();
        let again = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_again(&path, &began).map_err(|error| error.to_string())
        };
        let new = again("listen = [\"127.0.0.1:0\"]\npac = true\nallow_private = true").unwrap();
        assert!(new.pac && new.allow_private);
        let said = again("drain = \"1s\"\nlisten = [\"127.0.0.1:0\"]").unwrap_err();
        assert!(said.ends_with("line 1, drain: needs a restart to change"), "{said}");
        let said = again("").unwrap_err();
        assert!(said.ends_with("listen: needs a restart to change"), "{said}");
    }
}
