//! The commit in `--version`.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../build/commit.rs"]
mod commit;

use std::fs;
use std::path::Path;
use std::process::Command;

fn git(directory: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
    let mut command = Command::new("git");
    let status = command.arg("-C").arg(directory).args(identity).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

#[test]
fn a_checkout_has_a_commit_and_a_package_within_another_one_has_none() {
    let workspace = tempfile::tempdir().unwrap();
    let (root, package) = (workspace.path(), workspace.path().join("crates/cli"));
    fs::create_dir_all(&package).unwrap();
    for file in [root.join("Cargo.toml"), root.join("Cargo.lock"), package.join("Cargo.toml")] {
        fs::write(file, "").unwrap();
    }
    let find = |changes| commit::find(&package, changes).map(|found| found.to_string());
    assert_eq!(find(true), None, "no checkout");
    git(root, &["init", "-q"]);
    git(root, &["commit", "-q", "--allow-empty", "-m", "Begin"]);
    assert_eq!(find(true), None, "a checkout of something else");
    git(root, &["add", "."]);
    git(root, &["commit", "-q", "-m", "Add a package"]);
    let found = commit::find(&package, true).unwrap();
    let hash = found.to_string();
    assert!(hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    assert!(found.depends_on.iter().all(|path| path.exists()), "{:?}", found.depends_on);
    fs::write(root.join("NOTES"), "no source").unwrap();
    assert_eq!(find(true).as_ref(), Some(&hash));
    fs::write(package.join("Cargo.toml"), "changed").unwrap();
    assert_eq!(find(true), Some(format!("{hash} with changes")));
    assert_eq!(find(false), Some(hash));
}

#[test]
fn the_version_is_that_of_the_package() {
    let out = Command::new(env!("CARGO_BIN_EXE_firstflight")).arg("--version").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let expected = concat!("firstflight ", env!("CARGO_PKG_VERSION"));
    let rest = text.trim().strip_prefix(expected).unwrap();
    assert!(rest.is_empty() || rest.starts_with(" ("), "{text}");
}
