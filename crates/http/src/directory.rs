//! Serves the files of a directory to GET and HEAD.
//!
//! | module | what |
//! |---|---|
//! | `name` | which file a path names, and its content type |
//! | `beneath` | opens files below the root, and never outside |
//! | `conditions` | `ETag`, `Last-Modified`, and conditions about them (RFC 9110 §13) |
//! | `range` | parts of a file (RFC 9110 §14) |
//! | `answer` | the response |
//! | `body` | a file as an HTTP body |

mod answer;
mod beneath;
mod body;
mod conditions;
mod name;
mod range;

pub use answer::FilesBody;
pub use body::{FileBody, PIECE, elsewhere};

use beneath::Root;
use conditions::Validators;
use hyper::StatusCode;
use lru::LruCache;
use rustix::io::Errno;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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
///
/// Links may lead to other places inside the root, also by an absolute path, and nowhere else. Names that begin with a dot
/// are hidden, apart from `/.well-known/`, and so is a link that leads to one.
pub struct Files {
    root: Arc<Root>,
    hidden: bool,
    open: Mutex<LruCache<String, OpenedFile>>,
}

#[derive(Clone)]
struct OpenedFile {
    file: Arc<File>,
    about: Arc<FileFacts>,
    mark: Mark,
    looked_up: Instant,
}

/// What a response says about a file.
struct FileFacts {
    /// The content type.
    kind: &'static str,
    validators: Validators,
}

enum PathContent {
    /// A file of this length.
    File(OpenedFile, u64),
    /// A directory, and the path has no slash at its end.
    Directory,
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

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("hidden", &self.hidden).finish_non_exhaustive()
    }
}

impl Files {
    /// The files below `root`. A directory that replaces it later is served from then on.
    ///
    /// # Errors
    /// When it is no directory, or cannot be read.
    pub async fn below(root: &Path) -> Result<Self, RootError> {
        let path = root.to_owned();
        let root = elsewhere(move || Root::new(&path)).await.map_err(RootError::Unreadable)??;
        let most = NonZeroUsize::new(MOST).unwrap_or(NonZeroUsize::MIN);
        Ok(Self { root: Arc::new(root), hidden: false, open: Mutex::new(LruCache::new(most)) })
    }

    /// Whether files and directories are served whose name begins with a dot. Such names often hold what is nobody's
    /// business: `.env`, `.git`, `.htpasswd`.
    #[must_use]
    pub const fn hidden(mut self, served: bool) -> Self {
        self.hidden = served;
        self
    }

    /// What is at the path of a URL.
    /// Errors: the status of the response.
    async fn find(&self, url_path: &str) -> Result<PathContent, StatusCode> {
        if let Some((known, len)) = self.known(url_path) {
            return Ok(PathContent::File(known, len));
        }
        let below = name::below_root(url_path, self.hidden)?;
        let mut found = self.look_up(below.clone()).await;
        if let Err(StatusCode::SERVICE_UNAVAILABLE) = found
            && self.let_go()
        {
            found = self.look_up(below).await;
        }
        let found = found?;
        if let PathContent::File(known, _) = &found {
            self.keep(url_path, known);
        }
        Ok(found)
    }

    async fn look_up(&self, below: PathBuf) -> Result<PathContent, StatusCode> {
        let (root, hidden) = (Arc::clone(&self.root), self.hidden);
        let unavailable = |_| StatusCode::SERVICE_UNAVAILABLE;
        elsewhere(move || look_up(&root, &below, hidden)).await.map_err(unavailable)?
    }

    /// A file that is open and has not changed, and its length.
    fn known(&self, url_path: &str) -> Option<(OpenedFile, u64)> {
        let known = self.lock().get(url_path)?.clone();
        let metadata = known.file.metadata().ok()?;
        let same = known.mark == Mark::of(&metadata) && known.looked_up.elapsed() < FRESH;
        same.then_some((known, metadata.len()))
    }

    fn keep(&self, url_path: &str, known: &OpenedFile) {
        if url_path.len() <= LONGEST {
            // What it replaces is closed behind the lock.
            let replaced = self.lock().push(url_path.to_owned(), known.clone());
            drop(replaced);
        }
    }

    /// Closes the files that stay open, because there are no descriptors. Whether there were any.
    fn let_go(&self) -> bool {
        let mut open = self.lock();
        let any = !open.is_empty();
        open.clear();
        any
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, OpenedFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_up(root: &Root, below: &Path, hidden: bool) -> Result<PathContent, StatusCode> {
    // Before the look-up, so that what changes during it counts as changed.
    let looked_up = Instant::now();
    let now = SystemTime::now();
    let file = root.open(below, hidden).map_err(status)?;
    let metadata = file.metadata().map_err(|error| status_of(&error))?;
    if metadata.is_dir() {
        let is_index = below.file_name() == Some(name::INDEX.as_ref());
        return if is_index { Err(StatusCode::NOT_FOUND) } else { Ok(PathContent::Directory) };
    }
    // A pipe, a socket or a device.
    if !metadata.is_file() {
        return Err(StatusCode::FORBIDDEN);
    }
    let about = FileFacts { kind: name::content_type(below), validators: Validators::of(&metadata, now) };
    let (file, about, mark) = (Arc::new(file), Arc::new(about), Mark::of(&metadata));
    Ok(PathContent::File(OpenedFile { file, about, mark, looked_up }, metadata.len()))
}

/// The status of the response, when a file cannot be opened or read.
fn status(error: Errno) -> StatusCode {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => StatusCode::NOT_FOUND,
        // XDEV and LOOP: links lead out of the root, or round in a circle. NXIO and NODEV: a socket, or a device.
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO | Errno::NODEV => {
            StatusCode::FORBIDDEN
        }
        // The server is short of descriptors or memory, or somebody holds a lease of the file.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        error => {
            tracing::warn!(%error, "cannot read a file");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

fn status_of(error: &io::Error) -> StatusCode {
    match Errno::from_io_error(error) {
        Some(error) => status(error),
        // The file has become shorter since its length was read, or the program ends.
        None => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests;
