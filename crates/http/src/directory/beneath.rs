//! Opens files beneath a directory, whatever happens meanwhile to the names on the way.
//!
//! A path that is checked and then opened can lead elsewhere by then: who may write below the root exchanges a directory
//! for a link. So the check is the opening. On Linux it is `openat2` with `RESOLVE_BENEATH`. Where the kernel or a sandbox
//! has no such call, and for links that leave the root on their way back into it, the path is resolved first, and the
//! result is walked without following any link.

use super::{RootError, name};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::{Errno, Result};
use std::fs::{File, canonicalize};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A pipe or a device does not make the opening wait.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// A directory that only leads to another name needs no permission to read it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEP: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Attempts of a call that the kernel gave up because something was renamed, or because of a signal.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ATTEMPTS: usize = 8;

/// Which links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "all links are resolved")
)]
enum Links {
    None,
    Inside,
}

/// A directory of which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    /// As it was at the beginning.
    opened: OwnedFd,
}

impl Root {
    /// Opens the directory.
    /// Errors: when it is no directory, or cannot be read.
    pub(super) fn new(path: &Path) -> std::result::Result<Self, RootError> {
        let path = std::path::absolute(path).map_err(RootError::Unreadable)?;
        // It is not listed, but a missing permission should be reported now.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(&path, flags, Mode::empty()) {
            Ok(opened) => Ok(Self { path, opened }),
            Err(Errno::NOTDIR) if path.is_file() => Err(RootError::NotDirectory),
            Err(error) => Err(RootError::Unreadable(error.into())),
        }
    }

    /// Opens what is at `below`, for reading. It may be no regular file. Unless `hidden`, no link may lead to a hidden name.
    /// Errors: those of the system. [`Errno::XDEV`] or [`Errno::LOOP`] if links lead out of the root, [`Errno::NOENT`]
    /// if they lead to a hidden name.
    pub(super) fn open(&self, below: &Path, hidden: bool) -> Result<File> {
        self.open_by(below, hidden, beneath)
    }

    fn open_by(
        &self,
        below: &Path,
        hidden: bool,
        beneath: impl Fn(&OwnedFd, &Path, Links) -> Result<OwnedFd>,
    ) -> Result<File> {
        // A directory that replaced the root is served, as after the release of a new site. If there is none, or no
        // permission any more, the one of the beginning is.
        let now = open(&self.path, STEP, Mode::empty());
        let root = now.as_ref().unwrap_or(&self.opened);
        if !hidden {
            match beneath(root, below, Links::None) {
                Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
                result => return result.map(File::from),
            }
        }
        let file = match beneath(root, below, Links::Inside) {
            // Links led out of the root. The absolute path of a place inside does so as well. What does not exist outside
            // must look like what does.
            Err(Errno::XDEV) => self.walk(root, below, hidden, |_| Errno::XDEV),
            // No such system call, forbidden by a sandbox, or too much is being renamed.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => self.walk(root, below, hidden, |error| error),
            // A link was among the names. Where it leads must be known before it is followed.
            Ok(_) if !hidden => self.walk(root, below, hidden, |error| error),
            result => result,
        };
        file.map(File::from)
    }

    /// Opens what `below` leads to. The function changes the error if that is not known.
    fn walk(
        &self,
        root: &OwnedFd,
        below: &Path,
        hidden: bool,
        unknown: impl FnOnce(Errno) -> Errno,
    ) -> Result<OwnedFd> {
        let real = self.resolve(below).map_err(unknown)?;
        if !hidden && name::is_hidden(&real) {
            return Err(Errno::NOENT);
        }
        walk(root, &real)
    }

    /// `below` without links. It may be out of date when it returns, so it must be walked.
    fn resolve(&self, below: &Path) -> Result<PathBuf> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let root = canonicalize(&self.path).map_err(errno)?;
        let path = canonicalize(root.join(below)).map_err(errno)?;
        path.strip_prefix(&root).map(Path::to_owned).map_err(|_| Errno::XDEV)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn beneath(root: &OwnedFd, below: &Path, links: Links) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = match links {
        Links::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    let mut result = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        result = openat2(root, below, FILE, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn beneath(_: &OwnedFd, _: &Path, _: Links) -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Opens `below` name by name. A link among the names is an error.
fn walk(root: &OwnedFd, below: &Path) -> Result<OwnedFd> {
    let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
        // It is the root.
        return openat(root, ".", FILE, Mode::empty());
    };
    let mut step: Option<OwnedFd> = None;
    for name in parent {
        let from = step.as_ref().unwrap_or(root);
        step = Some(openat(from, name, STEP | OFlags::NOFOLLOW, Mode::empty())?);
    }
    openat(step.as_ref().unwrap_or(root), name, FILE | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests;
