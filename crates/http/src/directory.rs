//! Finds the file for a request and checks that it may be served.

mod body;
#[allow(dead_code, reason = "the next commit uses it")]
mod conditions;
#[allow(dead_code, reason = "the next commit uses it")]
mod range;

pub use body::{FileBody, PIECE, elsewhere};

use body::open_file;
use hyper::StatusCode;
use lru::LruCache;
use percent_encoding::percent_decode_str;
use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It does not exist or cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It is a file.
    #[error("not a directory")]
    NotDirectory,
}

/// Files that stay open.
const MOST: usize = 256;
/// Longer paths of URLs are looked up each time.
const LONGEST: usize = 1024;
/// After this time a path is looked up again. A changed, replaced, renamed or deleted file is noticed at once; this is for
/// changes that the file itself does not show: of links and directories on the way to it.
const FRESH: Duration = Duration::from_secs(1);

/// The files of a directory. Those that were asked for last stay open, so that the usual request needs no path.
pub struct Files {
    root: Arc<Path>,
    open: Mutex<LruCache<String, Known>>,
}

/// A file that is open.
#[derive(Clone)]
struct Known {
    file: Arc<File>,
    kind: &'static str,
    mark: Mark,
    looked_up: Instant,
}

/// What differs after a change of a file, its names or its permissions.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    changed: (i64, i64),
    names: u64,
}

impl Mark {
    fn of(metadata: &Metadata) -> Self {
        Self { changed: (metadata.ctime(), metadata.ctime_nsec()), names: metadata.nlink() }
    }
}

impl Files {
    /// The files below `root`.
    ///
    /// # Errors
    /// When it is no directory, or cannot be read.
    pub async fn below(root: &Path) -> Result<Self, RootError> {
        let root = tokio::fs::canonicalize(root).await.map_err(RootError::Unreadable)?;
        if !tokio::fs::metadata(&root).await.map_err(RootError::Unreadable)?.is_dir() {
            return Err(RootError::NotDirectory);
        }
        // The directory is not listed, but a missing permission should be reported now.
        drop(tokio::fs::read_dir(&root).await.map_err(RootError::Unreadable)?);
        let most = NonZeroUsize::new(MOST).unwrap_or(NonZeroUsize::MIN);
        Ok(Self { root: root.into(), open: Mutex::new(LruCache::new(most)) })
    }

    /// The file for the path of a URL, of which a first piece is read, and its content type.
    ///
    /// # Errors
    /// The status of the response: 403 outside the root or without permission to read, 404 if the file does not exist,
    /// 500 if the disk fails.
    pub async fn open(&self, url_path: &str) -> Result<(FileBody, &'static str), StatusCode> {
        let failed = |error: io::Error| status(&error);
        let known = match self.known(url_path) {
            Some(found) => found,
            None => {
                let wanted = self.root.join(relative(url_path)?);
                let root = Arc::clone(&self.root);
                let found = elsewhere(move || look_up(&root, &wanted)).await.map_err(failed)?;
                let (known, len) = found?;
                self.keep(url_path, &known);
                (known, len)
            }
        };
        let (Known { file, kind, .. }, len) = known;
        let mut body = FileBody::new(file, len);
        body.begin().await.map_err(failed)?;
        Ok((body, kind))
    }

    /// A file that is open and has not changed, and its length.
    fn known(&self, url_path: &str) -> Option<(Known, u64)> {
        let known = self.lock().get(url_path)?.clone();
        let metadata = known.file.metadata().ok()?;
        let same = known.mark == Mark::of(&metadata) && known.looked_up.elapsed() < FRESH;
        same.then_some((known, metadata.len()))
    }

    fn keep(&self, url_path: &str, known: &Known) {
        if url_path.len() <= LONGEST {
            // What it replaces is closed behind the lock.
            let replaced = self.lock().push(url_path.to_owned(), known.clone());
            drop(replaced);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Known>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(root: &Path, wanted: &Path) -> Result<(Known, u64), StatusCode> {
    let failed = |error: io::Error| status(&error);
    // Before the look-up, so that what changes during it counts as changed.
    let looked_up = Instant::now();
    let mut path = resolve(root, wanted)?;
    if std::fs::metadata(&path).map_err(failed)?.is_dir() {
        path = resolve(root, &path.join("index.html"))?;
    }
    let kind = content_type(&path);
    let file = open_file(&path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mark = Mark::of(&metadata);
    Ok((Known { file: Arc::new(file), kind, mark, looked_up }, metadata.len()))
}

/// Resolves links, and refuses to follow them out of the root.
fn resolve(root: &Path, path: &Path) -> Result<PathBuf, StatusCode> {
    let path = std::fs::canonicalize(path).map_err(|error| status(&error))?;
    if path.starts_with(root) { Ok(path) } else { Err(StatusCode::FORBIDDEN) }
}

/// The path relative to the root. A `..` is refused before the disk is accessed, so that clients do not learn what
/// exists outside.
fn relative(url_path: &str) -> Result<PathBuf, StatusCode> {
    let decoded = percent_decode_str(url_path).decode_utf8().map_err(|_| StatusCode::NOT_FOUND)?;
    if decoded.contains('\0') {
        return Err(StatusCode::NOT_FOUND);
    }
    let mut path = PathBuf::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(StatusCode::FORBIDDEN),
            name => path.push(name),
        }
    }
    Ok(path)
}

fn status(error: &io::Error) -> StatusCode {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            StatusCode::NOT_FOUND
        }
        // InvalidInput: the path is a pipe, a socket or a device.
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("pdf") => "application/pdf",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
