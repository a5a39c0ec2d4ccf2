//! A gateway without a file: the options are written as a configuration.

use crate::at;
use std::fmt::Write;
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
    #[arg(long, requires = "to", conflicts_with_all = ["tls_cert", "file"])]
    tcp: bool,
    /// Serve https:// with the certificate in this PEM file
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "from"], conflicts_with = "file")]
    tls_cert: Option<String>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", conflicts_with = "file")]
    tls_key: Option<String>,
    /// Print the configuration that the options stand for, as a file to begin with, and end
    #[arg(long, requires = "from", conflicts_with = "file")]
    print_config: bool,
}

/// A text in TOML. What a terminal would not show as it is has an escape.
fn quoted(text: impl AsRef<str>) -> String {
    let mut quoted = String::from('"');
    for c in text.as_ref().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ' => quoted.push(c),
            // Writing to a string cannot fail.
            c => drop(write!(quoted, "\\U{:08X}", u32::from(c))),
        }
    }
    quoted + "\""
}

impl Quick {
    /// Whether the configuration is only printed.
    pub const fn prints(&self) -> bool {
        self.print_config
    }

    /// The configuration.
    pub fn config(&self) -> String {
        let from: Vec<_> = self.from.iter().map(|at| quoted(at.to_string())).collect();
        let mode = if self.tcp { "tcp" } else { "http" };
        let mut text = format!(
            "[[listener]]\nname = \"web\"\naddress = [{}]\nmode = \"{mode}\"\nservice = \"app\"\n",
            from.join(", ")
        );
        if let (Some(chain), Some(key)) = (&self.tls_cert, &self.tls_key) {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[listener.tls]\ncertificate = [{{ chain = {}, key = {} }}]\n",
                quoted(chain),
                quoted(key)
            );
        }
        text += "\n[[service]]\nname = \"app\"\n";
        let to: Vec<_> = self.to.iter().map(quoted).collect();
        let _ = match &self.root {
            Some(root) => writeln!(text, "root = {}", quoted(root)),
            None => writeln!(text, "backend = [{}]", to.join(", ")),
        };
        text
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
        Config::parse(&quick.config()).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn options_are_a_configuration() {
        let to = config(&["--from", "127.0.0.1:80", "--from", "[::1]:80", "--to", "a:1", "--to", "unix:/x"])
            .unwrap();
        assert_eq!((to.listeners[0].address.get_ref().len(), to.services[0].backend.get_ref().len()), (2, 2));
        let odd = "a \"b\\ \u{7f}\u{2028}\n\u{1f600}ä";
        let files =
            config(&["--from", "127.0.0.1:80", "--root", odd, "--tls-cert", "c", "--tls-key", "k"]).unwrap();
        assert_eq!(files.services[0].root.as_deref(), Some(std::path::Path::new(odd)));
        assert!(files.listeners[0].tls.is_some());
        assert!(config(&["--from", "127.0.0.1:80", "--to", "a:1", "--tcp"]).is_ok());
        assert!(config(&["--from", "127.0.0.1:80"]).unwrap_err().contains("needs backend"));
        assert!(config(&["--from", "127.0.0.1:80", "--to", "a"]).unwrap_err().contains("no backend"));
        assert!(config(&["--to", "a:1"]).unwrap_err().contains("--from"));
        for beside in [
            &["--to", "a:1"][..],
            &["--root", "d"],
            &["--print-config"],
            &["--tls-cert", "c", "--tls-key", "k"],
        ] {
            assert!(
                config(&[&["FILE"], beside].concat()).unwrap_err().contains("cannot be used with"),
                "{beside:?}"
            );
        }
    }
}
