//! How `serve` treats first flights, and the source of its keys.

use super::ServeError;
use crate::error::Error;
use crate::keys::Period;
use firstflight::credential::{
    CookieKeys, FastOpenPolicy, KeyRing, PendingLimit, Quarantine, Schedule, Scheme,
};
use firstflight::keys::{self, Form, KeyFile, KeyHandle};
use firstflight::{ListenConfig, ResponsePolicy};
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The environment variable that contains the keys if no option names any.
const KEY_VARIABLE: &str = "FIRSTFLIGHT_KEY";

/// First flights that may wait for their client's ACK. About sixty hosts of an office behind one address may have
/// five each at once.
pub const PENDING: u32 = 1024;

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
    /// File with a farm's secret, from which keys are derived by the clock; read again while running
    #[arg(long, value_name = "FILE", conflicts_with = "backup_key")]
    key_schedule: Option<PathBuf>,
    #[arg(
        long = "key-period", value_name = "TIME", help = Period::HELP, default_value = Period::DEFAULT,
        requires = "key_schedule"
    )]
    period: Period,
    /// Key whose cookies are accepted too, but not granted
    #[arg(long, value_name = "KEY")]
    backup_key: Option<String>,
    /// Cookie function: that of the Linux kernel, or that of the Fast Open paper
    #[arg(long, value_enum, default_value_t = SchemeName::Linux)]
    scheme: SchemeName,
    /// Ordinary handshakes only
    #[arg(long, conflicts_with_all = ["key", "key_file", "key_schedule", "backup_key", "no_cookie"])]
    no_fast_open: bool,
    /// Accept data in any SYN, without a cookie: only for networks in which addresses cannot be forged
    #[arg(long)]
    no_cookie: bool,
    /// First flights that may wait for their client's ACK; more become ordinary handshakes
    #[arg(long, value_name = "N", default_value_t = PENDING)]
    pending: u32,
    /// Maximum number of them for one client (an IPv4 address, an IPv6 /64), however many are free [default: 4 to 8,
    /// and half of those that are free]
    #[arg(long, value_name = "N")]
    pending_per_client: Option<u32>,
    /// Count connections that a RST ended as pending for 60 s even if they had not been accepted
    #[arg(long)]
    strict_quarantine: bool,
    /// What may be sent before the client's ACK: immediately, after-handshake, or N times the bytes received, as 3x
    #[arg(long, value_name = "HOW", default_value = "immediately", value_parser = response_policy)]
    response: ResponsePolicy,
    /// Remember connections that the client closed first for 2 MSL, so that a late copy of their SYN is not executed
    #[arg(long)]
    hold_last_ack: bool,
}

fn response_policy(text: &str) -> Result<ResponsePolicy, String> {
    match text {
        "immediately" => Ok(ResponsePolicy::Immediately),
        "after-handshake" => Ok(ResponsePolicy::AfterHandshake),
        _ => match text.strip_suffix('x').and_then(|times| times.parse().ok()) {
            Some(times @ 1..) => Ok(ResponsePolicy::Times(times)),
            _ => Err("write immediately, after-handshake, or a number and x, as 3x".into()),
        },
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SchemeName {
    Linux,
    Paper,
}

/// What listeners need.
pub struct Prepared {
    /// The policy for first flights; `None` means ordinary handshakes only.
    pub policy: Option<FastOpenPolicy>,
    file: Option<KeyFile>,
}

impl Prepared {
    /// Updates the listeners' keys when their file changes.
    pub fn follow(self, listeners: Vec<KeyHandle>) {
        if let Some(file) = self.file {
            tokio::spawn(keys::follow_file(listeners, file));
        }
    }
}

impl FastOpen {
    /// Sets what a listener needs in addition to the policy.
    pub fn configure(&self, config: &mut ListenConfig) {
        config.response = self.response;
        config.hold_last_ack = self.hold_last_ack;
    }

    /// Whether the kernel's TCP can use the keys.
    pub const fn fits_kernel(&self) -> bool {
        self.no_fast_open || matches!(self.scheme, SchemeName::Linux)
    }

    /// Whether the user named keys. Without them the kernel's own serve as well: other programs at the same address have
    /// them, too, and clients keep one cookie for an address.
    pub fn names_keys(&self) -> bool {
        self.key.is_some()
            || self.key_file.is_some()
            || self.key_schedule.is_some()
            || self.backup_key.is_some()
            || std::env::var_os(KEY_VARIABLE).is_some()
    }

    /// How many first flights may wait for their client's ACK.
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// Reads the keys.
    pub async fn prepare(&self) -> Result<Prepared, Error> {
        if self.no_fast_open {
            return Ok(Prepared { policy: None, file: None });
        }
        let file = self.file().await?;
        let ring = match &file {
            Some(file) => keys::current(file).map_err(ServeError::Clock)?.ring,
            None => Arc::new(self.ring()?),
        };
        let pending = PendingLimit::new(self.pending);
        if let Some(limit) = self.pending_per_client {
            pending.set_client_limit(limit);
        }
        let mut policy = FastOpenPolicy::new(ring, Arc::new(pending));
        policy.no_cookie = self.no_cookie;
        if self.strict_quarantine {
            policy.quarantine = Quarantine::Every;
        }
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

    /// The key ring if no file is given.
    fn ring(&self) -> Result<KeyRing, Error> {
        let mut keys = self.keys()?;
        if let Some(text) = &self.backup_key {
            keys = keys.with_backup(text.parse().map_err(|error| ServeError::Key("--backup-key", error))?);
        }
        Ok(keys.ring(self.scheme()))
    }

    fn keys(&self) -> Result<CookieKeys, Error> {
        if let Some(text) = &self.key {
            return text.parse().map_err(|error| ServeError::Key("--key", error).into());
        }
        let Some(text) = std::env::var_os(KEY_VARIABLE) else {
            return firstflight::random_key().map(CookieKeys::new).map_err(Error::Random);
        };
        // Text that is not UTF-8 is not a valid key.
        let text = Zeroizing::new(text.into_string().unwrap_or_default());
        text.parse().map_err(|error| ServeError::Key(KEY_VARIABLE, error).into())
    }

    fn scheme(&self) -> Scheme {
        match self.scheme {
            SchemeName::Linux => Scheme::Linux,
            SchemeName::Paper => Scheme::Paper,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_response_policy_is_a_word_or_a_factor() {
        assert_eq!(response_policy("immediately"), Ok(ResponsePolicy::Immediately));
        assert_eq!(response_policy("after-handshake"), Ok(ResponsePolicy::AfterHandshake));
        assert_eq!(response_policy("3x"), Ok(ResponsePolicy::Times(3)));
        for wrong in ["", "x", "3", "0x", "-1x", "later", "3 x"] {
            assert!(response_policy(wrong).unwrap_err().contains("3x"), "{wrong}");
        }
    }
}
