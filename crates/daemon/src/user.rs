//! The user of the process.

use crate::ExitKind;
use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use std::io;

/// Why the process cannot become a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// There is no such user.
    #[error("there is no user {0:?}")]
    NoUser(String),
    /// The system refuses.
    #[error("cannot become the user {0:?}: {1}")]
    Become(String, io::Error),
}

impl UserError {
    /// Whether it is a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::NoUser(_) => ExitKind::Mistake,
            Self::Become(_, error) => ExitKind::of_file(error),
        }
    }
}

/// Says that the process becomes this user later, so that key files of that user are read before, too.
///
/// # Errors
/// When there is no such user, or the system refuses.
pub fn will_become(name: &str) -> Result<(), UserError> {
    firstflight_files::set_service_user(find(name)?.uid.as_raw());
    Ok(())
}

fn find(name: &str) -> Result<User, UserError> {
    let found = User::from_name(name).map_err(|error| UserError::Become(name.to_owned(), error.into()))?;
    found.ok_or_else(|| UserError::NoUser(name.to_owned()))
}

/// Becomes this user, with only its main group, in all threads.
///
/// # Errors
/// When there is no such user, or the system refuses.
pub fn become_user(name: &str) -> Result<(), UserError> {
    let failed = |error: nix::Error| UserError::Become(name.to_owned(), error.into());
    let user = find(name)?;
    // Set the groups first: only root can change them.
    setgroups(&[user.gid]).map_err(failed)?;
    setgid(user.gid).map_err(failed)?;
    setuid(user.uid).map_err(failed)
}

/// Becomes this user if the process runs as root. Returns what was done, if there is something to say. `option` is where the
/// user is named.
///
/// # Errors
/// As [`become_user`].
pub fn drop_privileges(user: Option<&str>, option: &str) -> Result<Option<String>, UserError> {
    match (Uid::effective().is_root(), user) {
        (false, None) => Ok(None),
        (false, Some(name)) => Ok(Some(format!("not started as root, so the user stays: not {name}"))),
        (true, None) => Ok(Some(format!("runs as root: name a user in {option}"))),
        (true, Some(name)) => {
            become_user(name)?;
            Ok(Some(format!("dropped privileges: user {name}")))
        }
    }
}
