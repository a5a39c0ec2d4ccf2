//! How `serve` treats first flights, and where its keys come from.

use crate::error::Error;
use crate::keys::Period;
use firstflight::credential::{CookieKeys, FastOpenPolicy, KeyRing, PendingLimit, Schedule, Scheme};
use firstflight::keys::{self, Form, KeyFile, KeyHandle};
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The variable with the keys, if no option names any.
const KEY_VARIABLE: &str = "FIRSTFLIGHT_KEY";

/// How first flights are treated.
#[derive(clap::Args)]
pub struct FastOpen {
    /// Cookie key, xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx, or KEY,BACKUP; other users can see it: prefer --key-file
    /// [default: FIRSTFLIGHT_KEY of the environment, else random]
    #[arg(long, value_name = "KEY", conflicts_with_all = ["key_file", "key_schedule"])]
    key: Option<String>,
    /// File with the cookie key in the same form; read again while running
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_schedule", "backup_key"])]
    key_file: Option<PathBuf>,
    /// File with a farm's secret, from which keys follow by the clock; read again while running
    #[arg(long, value_name = "FILE", conflicts_with = "backup_key")]
    key_schedule: Option<PathBuf>,
    #[arg(
        long = "key-period", value_name = "HOURS", help = Period::HELP, default_value = Period::DEFAULT,
        requires = "key_schedule"
    )]
    period: Period,
    /// Key whose cookies are accepted too, but not granted
    #[arg(long, value_name = "KEY")]
    backup_key: Option<String>,
    /// Cookie function: as the Linux kernel's, or as the Fast Open paper's
    #[arg(long, value_enum, default_value_t = SchemeName::Linux)]
    scheme: SchemeName,
    /// Ordinary handshakes only
    #[arg(long, conflicts_with_all = ["key", "key_file", "key_schedule", "backup_key", "no_cookie"])]
    no_fast_open: bool,
    /// Take data in any SYN, without a cookie: only where nobody can forge addresses
    #[arg(long)]
    no_cookie: bool,
    /// First flights that may wait for their client's ACK; more become ordinary handshakes
    #[arg(long, value_name = "N", default_value_t = 256)]
    pending: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SchemeName {
    Linux,
    Paper,
}

/// What listeners need.
pub struct Prepared {
    /// How they treat first flights; `None`: ordinary handshakes only.
    pub policy: Option<FastOpenPolicy>,
    file: Option<KeyFile>,
}

impl Prepared {
    /// Keeps the listeners' keys as their file has them.
    pub fn follow(self, listeners: Vec<KeyHandle>) {
        if let Some(file) = self.file {
            tokio::spawn(keys::follow_file(listeners, file));
        }
    }
}

impl FastOpen {
    /// Reads the keys.
    pub async fn prepare(&self) -> Result<Prepared, Error> {
        if self.no_fast_open {
            return Ok(Prepared { policy: None, file: None });
        }
        let file = self.file().await?;
        let ring = match &file {
            Some(file) => keys::current(file).map_err(Error::Clock)?.ring,
            None => Arc::new(self.ring()?),
        };
        let mut policy = FastOpenPolicy::new(ring, Arc::new(PendingLimit::new(self.pending)));
        policy.no_cookie = self.no_cookie;
        Ok(Prepared { policy: Some(policy), file })
    }

    async fn file(&self) -> Result<Option<KeyFile>, Error> {
        let (path, form) = match (&self.key_file, &self.key_schedule) {
            (Some(path), _) => (path, Form::Keys),
            (None, Some(path)) => {
                (path, Form::Schedule { period: self.period.duration(), lead: Schedule::DEFAULT_LEAD })
            }
            (None, None) => return Ok(None),
        };
        let opened = KeyFile::open(path, form, self.scheme()).await;
        opened.map(Some).map_err(|error| Error::KeyFile(path.clone(), error))
    }

    /// The ring without a file.
    fn ring(&self) -> Result<KeyRing, Error> {
        let mut keys = self.keys()?;
        if let Some(text) = &self.backup_key {
            keys = keys.with_backup(text.parse().map_err(|error| Error::Key("--backup-key", error))?);
        }
        Ok(keys.ring(self.scheme()))
    }

    fn keys(&self) -> Result<CookieKeys, Error> {
        if let Some(text) = &self.key {
            return text.parse().map_err(|error| Error::Key("--key", error));
        }
        let Some(text) = std::env::var_os(KEY_VARIABLE) else {
            return firstflight::random_key().map(CookieKeys::new).map_err(Error::Random);
        };
        // What is not UTF-8 is no key either way.
        let text = Zeroizing::new(text.into_string().unwrap_or_default());
        text.parse().map_err(|error| Error::Key(KEY_VARIABLE, error))
    }

    fn scheme(&self) -> Scheme {
        match self.scheme {
            SchemeName::Linux => Scheme::Linux,
            SchemeName::Paper => Scheme::Paper,
        }
    }
}
