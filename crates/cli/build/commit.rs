//! The commit that a package is built from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of the workspace makes the command.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

pub(crate) struct Commit {
    hash: String,
    /// Whether sources differ from it.
    changed: bool,
    /// Files and directories whose change may change this.
    pub(crate) depends_on: Vec<PathBuf>,
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hash)?;
        if self.changed { f.write_str(" with changes") } else { Ok(()) }
    }
}

/// The commit of the checkout that the package in `directory` is a part of. `None` if there is none, or no git. Whether sources
/// were changed is found only if `changes` is set: then each change of a source runs this again.
pub(crate) fn find(directory: &Path, changes: bool) -> Option<Commit> {
    // A package that was downloaded may be inside of a checkout of something else.
    git(directory, &["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let root = PathBuf::from(git(directory, &["rev-parse", "--show-toplevel"])?);
    let hash = git(directory, &["rev-parse", "--short=12", "HEAD"])?;
    let mut depends_on = Vec::new();
    let head = git(directory, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(head.as_deref()) {
        let path = directory.join(git(directory, &["rev-parse", "--git-path", name])?);
        // Cargo would build again each time for a file that is not there.
        depends_on.extend(path.exists().then_some(path));
    }
    let mut changed = false;
    if changes {
        let status = [&["status", "--porcelain", "--untracked-files=no", "--"][..], &SOURCES].concat();
        changed = !git(&root, &status)?.is_empty();
        depends_on.extend(SOURCES.iter().map(|source| root.join(source)));
    }
    Some(Commit { hash, changed, depends_on })
}

/// What git prints. `None` if it fails.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // A hook of another repository may have set them.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let out = command.arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    out.status.success().then(|| text.trim().to_owned())
}
