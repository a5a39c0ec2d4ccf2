//! Files of one test that are deleted when the test ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path that no other test has, which ends with `name`.
fn unique(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("firstflight-cli-{}-{number}-{name}", std::process::id()))
}

/// A directory.
pub(crate) struct Dir(PathBuf);

impl Dir {
    /// A new directory.
    pub(crate) fn new(name: &str) -> Self {
        let path = unique(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file that only its owner can read.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One file, with the usual permissions, that is deleted when this is dropped.
pub(crate) struct TempFile(pub PathBuf);

impl TempFile {
    pub(crate) fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = unique(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
