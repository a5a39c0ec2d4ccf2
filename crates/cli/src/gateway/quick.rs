//! A gateway without a file: the options are written as a configuration.

use crate::at;
use crate::error::Error;
use crate::self_signed::{SelfSigned, SelfSignedError};
use crate::written::{Written, path};
use std::net::SocketAddr;

/// The options in place of a file.
#[derive(clap::Args)]
pub struct Quick {
    /// Take connections at this address and port; once more for further addresses
    #[arg(long, value_name = "ADDR:PORT", value_parser = at::address)]
    from: Vec<SocketAddr>,
    /// Forward to this backend, as 127.0.0.1:8000, name:8000 or unix:/run/app.sock; once more for further ones
    #[arg(long, value_name = "BACKEND", requires = "from", conflicts_with_all = ["root", "file"])]
    to: Vec<String>,
    /// Serve the files of this directory, in place of backends
    #[arg(long, value_name = "DIR", requires = "from", conflicts_with = "file")]
    root: Option<String>,
    /// Forward bytes, of any protocol; without it requests of HTTP
    #[arg(long, requires = "to", conflicts_with_all = ["tls_cert", "tls_self_signed", "file"])]
    tcp: bool,
    /// Serve https:// with the certificate in this PEM file
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "from"], conflicts_with = "file")]
    tls_cert: Option<String>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", conflicts_with = "file")]
    tls_key: Option<String>,
    /// For a trial: serve https:// with a certificate that is made now and ends with the command, for localhost and --from, or also
    /// for NAME. Clients have to be told to accept it, and the start says how
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',', requires = "from")]
    #[arg(conflicts_with_all = ["tls_cert", "file"])]
    tls_self_signed: Option<Vec<String>>,
    /// Print the configuration that the options stand for, as a file to begin with, and end
    #[arg(long, requires = "from", conflicts_with = "file")]
    print_config: bool,
}

impl Quick {
    /// Whether the configuration is only printed.
    pub const fn prints(&self) -> bool {
        self.print_config
    }

    /// Makes the certificate of a trial, if one is wanted.
    ///
    /// # Errors
    /// When it cannot be made, or the configuration is to be printed: no file could name it.
    pub fn self_signed(&self) -> Result<Option<SelfSigned>, Error> {
        let Some(names) = &self.tls_self_signed else { return Ok(None) };
        if self.print_config {
            return Err(Error::NothingToPrint);
        }
        let made: Result<_, SelfSignedError> = SelfSigned::new(names, &self.from);
        Ok(Some(made?))
    }

    /// The configuration, with the certificate of a trial if there is one.
    pub fn config(&self, self_signed: Option<&SelfSigned>) -> String {
        let mut file = Written::default();
        file.table("[[listener]]");
        file.text("name", "web");
        file.texts("address", self.from.iter().map(SocketAddr::to_string));
        file.text("mode", if self.tcp { "tcp" } else { "http" });
        file.text("service", "app");
        let named = self.tls_cert.clone().zip(self.tls_key.clone());
        let of_trial = self_signed.map(|made| (path(made.certificate()), path(made.key())));
        file.certificates(named.or(of_trial));
        file.gap();
        file.table("[[service]]");
        file.text("name", "app");
        file.file("root", self.root.as_ref());
        file.texts("backend", &self.to);
        file.into_text()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;
    use firstflight_gateway::Config;

    #[derive(Parser)]
    struct Command {
        /// The argument of the real command.
        #[arg(conflicts_with = "from")]
        file: Option<String>,
        #[command(flatten)]
        quick: Quick,
    }

    fn config(options: &[&str]) -> Result<Config, String> {
        let command = Command::try_parse_from([&["gateway"], options].concat());
        let Command { file, quick } = command.map_err(|error| error.to_string())?;
        assert_eq!(file, None);
        Config::parse(&quick.config(quick.self_signed().unwrap().as_ref()))
            .map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn options_are_a_configuration() {
        let to = config(&["--from", "127.0.0.1:80", "--from", "[::1]:80", "--to", "a:1", "--to", "unix:/x"])
            .unwrap();
        assert_eq!((to.listeners[0].address.get_ref().len(), to.services[0].backend.get_ref().len()), (2, 2));
        let odd = "a \"b\\ \u{7f}\u{2028}\n\u{1f600}ä";
        let files =
            config(&["--from", "127.0.0.1:80", "--root", odd, "--tls-cert", "c", "--tls-key", "k"]).unwrap();
        assert_eq!(files.services[0].root, Some(std::path::absolute(odd).unwrap()));
        assert!(files.listeners[0].tls.is_some());
        let trial = config(&["--from", "127.0.0.1:80", "--to", "a:1", "--tls-self-signed=www.example.com"]);
        assert!(trial.unwrap().listeners[0].tls.is_some());
        assert!(config(&["--from", "127.0.0.1:80", "--to", "a:1", "--tcp"]).is_ok());
        assert!(config(&["--from", "127.0.0.1:80"]).unwrap_err().contains("needs backend"));
        assert!(config(&["--from", "127.0.0.1:80", "--to", "a"]).unwrap_err().contains("no backend"));
        assert!(config(&["--to", "a:1"]).unwrap_err().contains("--from"));
        for beside in [
            &["--to", "a:1"][..],
            &["--root", "d"],
            &["--print-config"],
            &["--tls-cert", "c", "--tls-key", "k"],
            &["--tls-self-signed"],
        ] {
            assert!(
                config(&[&["FILE"], beside].concat()).unwrap_err().contains("cannot be used with"),
                "{beside:?}"
            );
        }
    }
}
