//! A gateway without a file: the options are written as a configuration.

use crate::error::Error;
use crate::host_port;
use crate::self_signed::{SelfSigned, SelfSignedError};
use crate::written::{Written, path};
use std::net::SocketAddr;

/// The options in place of a file.
#[derive(clap::Args)]
pub struct Quick {
    /// Take connections at this address and port; once more for further addresses
    #[arg(long, value_name = "ADDR:PORT", value_parser = host_port::address)]
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
    /// Errors: when it cannot be made, or the configuration is to be printed: no file could name it.
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
mod tests;
