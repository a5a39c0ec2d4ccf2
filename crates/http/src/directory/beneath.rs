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
    ///
    /// # Errors
    /// When it is no directory, or cannot be read.
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
    ///
    /// # Errors
    /// Those of the system. [`Errno::XDEV`] or [`Errno::LOOP`] if links lead out of the root, [`Errno::NOENT`] if they lead to
    /// a hidden name.
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    /// By the system call, and by the walk where there is none.
    fn both(root: &Root, below: &str) -> [Result<String>; 2] {
        let text = |file: Result<File>| {
            file.map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            })
        };
        let below = Path::new(below);
        [text(root.open(below, false)), text(root.open_by(below, false, |_, _, _| Err(Errno::NOSYS)))]
    }

    #[test]
    fn links_may_lead_to_places_inside_only() {
        let scratch = tempfile::tempdir().unwrap();
        let site = scratch.path().join("site");
        fs::create_dir_all(site.join("sub/deep")).unwrap();
        fs::write(scratch.path().join("secret"), "secret").unwrap();
        fs::write(site.join("sub/deep/page"), "page").unwrap();
        let inside = [
            ("relative", "sub/deep/page".into()),
            ("directory", PathBuf::from("sub")),
            ("sub/deep/up", "../../sub/deep/page".into()),
            ("absolute", site.join("sub/deep/page")),
            ("and-back", "../site/sub/deep/page".into()),
        ];
        let outside = [
            ("out", PathBuf::from("../secret")),
            ("away", "/etc/passwd".into()),
            ("parent", "..".into()),
            ("nothing", "../nothing".into()),
        ];
        for (name, target) in inside.iter().chain(&outside) {
            symlink(target, site.join(name)).unwrap();
        }
        let root = Root::new(&site).unwrap();
        let served =
            ["sub/deep/page", "relative", "directory/deep/page", "sub/deep/up", "absolute", "and-back"];
        for below in served {
            assert_eq!(both(&root, below), [Ok("page".to_owned()), Ok("page".to_owned())], "{below}");
        }
        for below in ["out", "away", "parent/secret"] {
            assert_eq!(both(&root, below), [Err(Errno::XDEV), Err(Errno::XDEV)], "{below}");
        }
        assert_eq!(root.open(Path::new("nothing"), false).unwrap_err(), Errno::XDEV);
    }

    #[test]
    fn a_link_to_a_hidden_name_is_hidden() {
        let scratch = tempfile::tempdir().unwrap();
        let site = scratch.path().join(".site");
        fs::create_dir_all(site.join(".git/deep")).unwrap();
        fs::create_dir_all(site.join(".well-known/acme")).unwrap();
        fs::create_dir_all(site.join("sub")).unwrap();
        for name in [
            ".git/HEAD",
            ".git/deep/page",
            ".env",
            ".well-known/acme/token",
            ".well-known/.x",
            "sub/.x",
            "sub/page",
        ] {
            fs::write(site.join(name), "page").unwrap();
        }
        for (name, target) in [
            ("gitlink", PathBuf::from(".git")),
            ("head", ".git/HEAD".into()),
            ("env", ".env".into()),
            ("twice", "env".into()),
            ("sub/up", "../.git/deep".into()),
            ("absolute", site.join(".git")),
            ("out", "../.site/.env".into()),
            ("x", "sub/.x".into()),
            ("dots", ".git/../sub/page".into()),
            ("acme", ".well-known/acme".into()),
            ("well-known-x", ".well-known/.x".into()),
        ] {
            symlink(target, site.join(name)).unwrap();
        }
        let root = Root::new(&site).unwrap();
        let hidden = [
            "gitlink/HEAD",
            "gitlink",
            "head",
            "env",
            "twice",
            "sub/up/page",
            "absolute/HEAD",
            "out",
            "x",
            "well-known-x",
        ];
        for below in hidden {
            assert_eq!(both(&root, below), [Err(Errno::NOENT), Err(Errno::NOENT)], "{below}");
            assert!(root.open(Path::new(below), true).is_ok(), "{below}");
        }
        for below in ["dots", "acme/token", ".well-known/acme/token", "sub/page"] {
            assert_eq!(both(&root, below), [Ok("page".to_owned()), Ok("page".to_owned())], "{below}");
        }
    }

    /// What [`Root::resolve`] said may no longer be true.
    #[test]
    fn a_walk_follows_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let site = scratch.path().join("site");
        fs::create_dir_all(site.join("real")).unwrap();
        fs::write(site.join("real/page"), "page").unwrap();
        symlink("real", site.join("dir")).unwrap();
        symlink("real/page", site.join("page")).unwrap();
        let root = Root::new(&site).unwrap();
        assert!(walk(&root.opened, Path::new("real/page")).is_ok());
        assert_eq!(walk(&root.opened, Path::new("dir/page")).unwrap_err(), Errno::NOTDIR);
        assert_eq!(walk(&root.opened, Path::new("page")).unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn a_directory_that_replaced_the_root_is_served() {
        let scratch = tempfile::tempdir().unwrap();
        let site = scratch.path().join("site");
        for (name, text) in [("site", "old"), ("new", "new")] {
            fs::create_dir(scratch.path().join(name)).unwrap();
            fs::write(scratch.path().join(name).join("page"), text).unwrap();
        }
        let root = Root::new(&site).unwrap();
        fs::rename(&site, scratch.path().join("old")).unwrap();
        assert_eq!(both(&root, "page")[0], Ok("old".to_owned()));
        fs::rename(scratch.path().join("new"), &site).unwrap();
        assert_eq!(both(&root, "page"), [Ok("new".to_owned()), Ok("new".to_owned())]);
    }

    /// The directory `turn` and a link out of the root change places all the time.
    #[test]
    fn neither_way_leaves_the_root_while_names_change() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use std::sync::atomic::{AtomicBool, Ordering};
        let scratch = tempfile::tempdir().unwrap();
        let site = scratch.path().join("site");
        fs::create_dir_all(site.join("turn")).unwrap();
        fs::write(site.join("turn/page"), "page").unwrap();
        fs::write(scratch.path().join("page"), "secret").unwrap();
        symlink("..", site.join("link")).unwrap();
        let root = Root::new(&site).unwrap();
        let stop = AtomicBool::new(false);
        let exchange =
            || renameat_with(CWD, site.join("turn"), CWD, site.join("link"), RenameFlags::EXCHANGE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && exchange().is_ok() {
                    std::thread::yield_now();
                }
            });
            let read = (0..3_000).flat_map(|_| both(&root, "turn/page"));
            let secrets = read.filter(|text| text.as_deref() == Ok("secret")).count();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(secrets, 0);
        });
    }
}
