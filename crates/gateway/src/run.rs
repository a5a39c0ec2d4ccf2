//! The life of the command: start, signals, end.

use crate::config::{Config, ConfigError};
use crate::gateway::{self, Gateway, GatewayError};
use crate::metrics;
use firstflight_daemon::{
    Asked, ExitKind, Signals, UserError, drop_privileges, manager, open_files, will_become,
};
use std::io;
use std::path::Path;

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
    /// The system refuses signals.
    #[error("cannot take signals: {0}")]
    Signals(io::Error),
}

impl RunError {
    /// Whether it is a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Config(ConfigError::Read { error, .. }) => ExitKind::of_file(error),
            Self::Config(_) => ExitKind::Mistake,
            Self::Gateway(error) => error.exit_kind(),
            Self::User(error) => error.exit_kind(),
            Self::Signals(_) => ExitKind::Failure,
        }
    }
}

/// Reads a configuration and the files that it names, and changes nothing.
///
/// # Errors
/// The first mistake.
pub async fn check(path: &Path) -> Result<(), RunError> {
    let config = Config::read(path)?;
    announce_user(&config)?;
    gateway::check(&config).await?;
    Ok(())
}

/// The keys belong to the user that the gateway becomes, if it can become another one.
fn announce_user(config: &Config) -> Result<(), UserError> {
    config.gateway.user.as_deref().map_or(Ok(()), will_become)
}

/// Runs a gateway until SIGTERM or SIGINT. SIGHUP reads the configuration again.
///
/// # Errors
/// When it does not start.
///
/// # Panics
/// Outside a tokio runtime with I/O and time.
pub async fn run(path: &Path) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    let config = Config::read(path)?;
    let user = config.gateway.user.clone();
    announce_user(&config)?;
    let limit = open_files::raise_limit(config.gateway.max_connections);
    let mut gateway = Gateway::start(config, io::stdout()).await?;
    gateway.say(&limit);
    if let Some(said) = drop_privileges(user.as_deref(), "gateway.user")? {
        gateway.say(&said);
    }
    manager::ready();
    let watchdog = tokio::spawn(manager::keep_watchdog_quiet());
    while signals.next().await == Asked::Reload {
        reload(&mut gateway, path).await;
    }
    manager::stopping();
    gateway.stopping();
    let delay = gateway.config().gateway.drain_delay.0;
    let ending = async {
        tokio::time::sleep(delay).await;
        gateway.drain().await;
    };
    tokio::select! {
        () = ending => {}
        // A second signal ends everything at once.
        () = signals.end() => {}
    }
    watchdog.abort();
    Ok(())
}

async fn reload(gateway: &mut Gateway, path: &Path) {
    manager::reloading();
    let result = match Config::read(path) {
        Ok(config) => gateway.reload(config).await.map_err(RunError::from),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => {
            metrics::reloaded("done");
            gateway.say("the configuration was read again");
        }
        Err(error) => {
            metrics::reloaded("refused");
            tracing::error!("the configuration stays as it is: {error}");
            gateway.say(&format!("the configuration stays as it is: {error}"));
        }
    }
    manager::ready();
}
