//! What concerns the process: its user, its limit of open files, and the service manager.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use sd_notify::NotifyState;
use std::time::Duration;

/// File descriptors besides those of connections.
pub(crate) const OTHERS: usize = 256;

/// Why the process cannot be what it is to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no such user.
    #[error("gateway.user: there is no user {0:?}")]
    NoUser(String),
    /// The system refuses.
    #[error("cannot become the user {0:?}: {1}")]
    Become(String, std::io::Error),
}

/// Becomes this user, with only its main group, in all threads. Returns what was done, if anything was.
///
/// # Errors
/// When there is no such user, or the system refuses.
pub(crate) fn drop_privileges(user: Option<&str>) -> Result<Option<String>, ProcessError> {
    match (Uid::effective().is_root(), user) {
        (false, None) => Ok(None),
        (false, Some(name)) => Ok(Some(format!("not started as root, so the user stays: not {name}"))),
        (true, None) => Ok(Some("runs as root: name a user in gateway.user".to_owned())),
        (true, Some(name)) => {
            let failed = |error: nix::Error| ProcessError::Become(name.to_owned(), error.into());
            let found = User::from_name(name).map_err(failed)?;
            let user = found.ok_or_else(|| ProcessError::NoUser(name.to_owned()))?;
            // Set the groups first: only root can change them.
            setgroups(&[user.gid]).map_err(failed)?;
            setgid(user.gid).map_err(failed)?;
            setuid(user.uid).map_err(failed)?;
            Ok(Some(format!("dropped privileges: user {name}")))
        }
    }
}

/// The limit of open files, if the system says it.
pub(crate) fn limit_of_files() -> Option<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Raises the limit of open files as far as connections need it and the system allows it. Returns what was done.
pub(crate) fn raise_limit_of_files(connections: usize) -> String {
    let needed = (connections as u64).saturating_mul(2).saturating_add(OTHERS as u64);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return "the limit of open files is not known".to_owned();
    };
    if soft >= needed {
        return format!("limit of open files: {soft}");
    }
    // Only root may raise the hard limit.
    let raised = [(needed, needed.max(hard)), (needed.min(hard), hard)]
        .into_iter()
        .find(|(now, hard)| *now > soft && setrlimit(Resource::RLIMIT_NOFILE, *now, *hard).is_ok());
    match raised {
        Some((now, _)) if now >= needed => format!("limit of open files: raised from {soft} to {now}"),
        Some((now, _)) => format!(
            "limit of open files: raised from {soft} to {now}; {connections} connections may need {needed}"
        ),
        None => format!("limit of open files: {soft}; {connections} connections may need {needed}"),
    }
}

/// Tells the service manager, if there is one.
pub(crate) fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, state) {
        tracing::warn!(%error, "the service manager does not listen");
    }
}

/// Tells the service manager that a reload begins.
pub(crate) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// Tells the service manager again and again that the process works, if it wants to know.
pub(crate) async fn keep_watchdog_quiet() {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) || micros == 0 {
        return std::future::pending().await;
    }
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(Duration::from_micros(micros / 2)).await;
    }
}
