//! The life of the command: start, signals, end.

use crate::config::{Config, ConfigError};
use crate::error::GatewayError;
use crate::gateway::{self, Gateway};
use crate::metrics;
use firstflight::kernel::Setting;
use firstflight::link::xdp::XdpError;
use firstflight_daemon::{
    ExitKind, SignalRequest, Signals, UserError, drop_privileges, manager, open_files, will_become,
};
use std::io;
use std::path::Path;

/// Where the user is named.
const USER: &str = "gateway.user";

/// How often a look shows whether a part of the gateway has stopped for good.
const LOOK: std::time::Duration = std::time::Duration::from_secs(5);
/// The same while the gateway waits for a network card.
const OFTEN: std::time::Duration = std::time::Duration::from_millis(200);

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What it names.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The user.
    #[error("gateway.user: {0}")]
    User(#[from] UserError),
    /// What only a network card's start needs stays.
    #[error(transparent)]
    Privileges(XdpError),
    /// A listener accepts nothing in UDP, or on its device, any more.
    #[error(
        "an engine of a listener has stopped for good, because its device or UDP socket failed, so the gateway has ended"
    )]
    Stopped,
    /// The system refuses signals.
    #[error("cannot take signals: {0}")]
    Signals(io::Error),
}

impl RunError {
    /// Whether it is a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Config(error) => error.exit_kind(),
            Self::Gateway(error) => error.exit_kind(),
            Self::User(error) => error.exit_kind(),
            Self::Signals(_) | Self::Privileges(_) | Self::Stopped => ExitKind::Failure,
        }
    }
}

/// What [`check`] has found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Checked {
    /// Why a gateway would not start.
    pub errors: Vec<RunError>,
    /// What a gateway would start with, but is not right: a certificate that has ended, or a file that cannot be read again
    /// later.
    pub warnings: Vec<String>,
    /// What this machine lacks for a gateway to do all that it says.
    pub notes: Vec<String>,
}

/// Does what the start does, except for binding ports: reads a configuration and the files that it names, becomes the user
/// that it names if the process is root's, and reads the files once more.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn check(path: &Path) -> Checked {
    let mut checked = Checked::default();
    let config = match Config::read(path) {
        Ok(config) => config,
        Err(error) => {
            checked.errors.push(error.into());
            return checked;
        }
    };
    checked.errors.extend(announce_user(&config).err().map(RunError::from));
    let found = gateway::read_all(&config).await;
    checked.errors.extend(found.errors.into_iter().map(RunError::from));
    checked.warnings = found.certificates;
    let wants_cookies = config.listeners.iter().any(|listener| listener.fast_open && !listener.has_device());
    if wants_cookies && Setting::read().is_ok_and(|setting| !setting.server) {
        checked.notes.push(
            "this network namespace does not allow Fast Open at servers: set net.ipv4.tcp_fastopen to 3"
                .to_owned(),
        );
    }
    if checked.errors.is_empty() {
        match drop_privileges(config.gateway.user.as_deref(), USER) {
            Ok(_) => checked.warnings.extend(not_readable(Source::File(path), &config).await),
            Err(error) => checked.errors.push(error.into()),
        }
    }
    checked
}

/// Opens every file again, as the user that the process is now. A file that only root can read is used, but never again.
async fn not_readable(source: Source<'_>, config: &Config) -> Vec<String> {
    let Some(user) = config.gateway.user.as_deref() else { return Vec::new() };
    let again = source.read().err().map(|error| error.to_string());
    let found = gateway::read_all(config).await;
    // Its device was made before.
    let found = found.errors.iter().filter(|error| !matches!(error, GatewayError::Tun(..)));
    let found = found.map(ToString::to_string);
    again
        .into_iter()
        .chain(found)
        .map(|error| {
            format!(
                "{error}: no reload is accepted as long as the user {user:?} cannot read it (0640 with its group, or its own and 0600)"
            )
        })
        .collect()
}

/// The keys belong to the user that the gateway becomes, if it can become another one.
fn announce_user(config: &Config) -> Result<(), UserError> {
    config.gateway.user.as_deref().map_or(Ok(()), will_become)
}

/// Where a configuration is.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    File(&'a Path),
    /// It cannot change, but the files that it names can.
    Text(&'a str),
}

impl Source<'_> {
    fn read(self) -> Result<Config, ConfigError> {
        match self {
            Self::File(path) => Config::read(path),
            Self::Text(text) => Config::parse(text)
                .map_err(|mistake| ConfigError::Mistake { path: "the configuration".into(), mistake }),
        }
    }
}

/// Runs a gateway until SIGTERM or SIGINT. SIGHUP reads the configuration again.
///
/// # Errors
/// When it does not start.
///
/// # Panics
/// Outside a tokio runtime with I/O and time.
pub async fn run(path: &Path) -> Result<(), RunError> {
    run_source(Source::File(path)).await
}

/// Runs a gateway with the configuration in `text`. SIGHUP reads the files again that it names.
///
/// # Errors
/// When it does not start.
///
/// # Panics
/// Outside a tokio runtime with I/O and time.
pub async fn run_text(text: &str) -> Result<(), RunError> {
    run_source(Source::Text(text)).await
}

async fn run_source(source: Source<'_>) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    let config = source.read()?;
    let user = config.gateway.user.clone();
    announce_user(&config)?;
    let limit = open_files::raise_limit(config.gateway.max_connections.get());
    let mut gateway = Gateway::start(config, io::stdout()).await?;
    let mut wrong = gateway.certificate_problems();
    let said = drop_privileges(user.as_deref(), USER)?;
    gateway.give_up_privileges().map_err(RunError::Privileges)?;
    // Options stand for a trial, which has neither many clients nor a user of its own.
    if matches!(source, Source::File(_)) {
        gateway.say(&limit);
        said.iter().for_each(|said| gateway.say(said));
    }
    if said.is_some() {
        wrong.extend(not_readable(source, gateway.config()).await);
    }
    wrong.iter().for_each(|problem| tracing::warn!("{problem}"));
    manager::ready();
    let watchdog = tokio::spawn(manager::keep_watchdog_quiet());
    let (mut waits, mut told) = (false, None);
    tell_of_card(&gateway, &mut waits);
    let failure = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                SignalRequest::Reload => {
                    reload(&mut gateway, source).await;
                    tell_of_card(&gateway, &mut waits);
                }
                SignalRequest::End => break None,
            },
            () = tokio::time::sleep(if waits { OFTEN } else { LOOK }) => {
                if gateway.has_failed() {
                    break Some(RunError::Stopped);
                }
                tell_of_card(&gateway, &mut waits);
                let because = gateway.card_waits_because();
                if because != told {
                    because.iter().for_each(|why| gateway.say(&format!("cannot take its network card: {why}")));
                    told = because;
                }
            }
        }
    };
    manager::stopping();
    gateway.stopping();
    let delay = gateway.config().gateway.drain_delay.0;
    let ending = async {
        tokio::time::sleep(delay).await;
        gateway.end().await;
    };
    tokio::select! {
        () = ending => {}
        // A second signal ends everything at once.
        () = signals.end() => {}
    }
    watchdog.abort();
    gateway.conclude().await;
    failure.map_or(Ok(()), Err)
}

/// Says when the gateway begins to wait for a network card, and when it has it. `waits` is whether the first was said last.
fn tell_of_card(gateway: &Gateway, waits: &mut bool) {
    match gateway.waits_for_card() {
        Some(other) if !*waits => gateway.say(&format!("waits for its network card, which {other} uses")),
        None if *waits => gateway.say("has its network card"),
        _ => return,
    }
    *waits = !*waits;
}

async fn reload(gateway: &mut Gateway, source: Source<'_>) {
    manager::reloading();
    let result = match source.read() {
        Ok(config) => gateway.reload(config).await.map_err(RunError::from),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => {
            if let Err(error) = gateway.give_up_privileges() {
                tracing::warn!("{}", RunError::Privileges(error));
            }
            metrics::reloaded(true);
            gateway.say("the configuration was read again");
            gateway.certificate_problems().iter().for_each(|problem| tracing::warn!("{problem}"));
        }
        Err(error) => {
            metrics::reloaded(false);
            gateway.say(&format!("the configuration stays as it is: {error}"));
        }
    }
    manager::ready();
}
