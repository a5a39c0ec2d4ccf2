//! `--user`: drops privileges after the ports are bound.

use super::DnsError;
use nix::unistd::{User, setgid, setgroups, setuid};

/// Becomes this user, with only its main group, in all threads.
pub fn become_user(name: &str) -> Result<(), DnsError> {
    let failed = |error: nix::Error| DnsError::Become(name.to_owned(), error.into());
    let user = User::from_name(name).map_err(failed)?.ok_or_else(|| DnsError::NoUser(name.to_owned()))?;
    // Set the groups first: only root can change them.
    setgroups(&[user.gid]).map_err(failed)?;
    setgid(user.gid).map_err(failed)?;
    setuid(user.uid).map_err(failed)
}
