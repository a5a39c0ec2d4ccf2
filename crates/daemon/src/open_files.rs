//! The limit of open files.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// File descriptors besides those of connections.
pub const OTHERS: usize = 256;

/// The limit of open files, if the system says it.
#[must_use]
pub fn limit() -> Option<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Raises the limit of open files as far as the system allows it without privileges, for a program that does not know how many
/// connections it will have.
pub fn raise_to_most() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, "the limit of open files stays {soft}");
    }
}

/// Raises the limit of open files as far as connections need it and the system allows it. Returns what was done.
#[must_use]
pub fn raise_limit(connections: usize) -> String {
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
