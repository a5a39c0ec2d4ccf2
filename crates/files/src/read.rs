//! Reading.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use zeroize::{Zeroize, Zeroizing};

/// Where systemd puts the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// With this mark some editors begin a text. [`read`] and [`read_secret`] leave it out.
pub const BYTE_ORDER_MARK: char = '\u{feff}';
/// The user that can do everything anyway.
const ROOT: u32 = 0;

/// Why a file was not read. The message continues a sentence that begins with the file's name, and never quotes the
/// file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refuses: the path or its permissions are at fault.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Other users can read or change it. Contains its mode. Its creator is at fault.
    #[error("{}", OpenMode(*.0))]
    Open(u32),
    /// It belongs to another user, who can read and change it. Contains that user's number. Its creator is at fault.
    #[error("{}", OtherOwner(*.0))]
    Foreign(u32),
    /// It is longer than a file of its kind can be. Contains the longest length, bytes. Its content is at fault.
    #[error("has more than {0} bytes")]
    TooLong(usize),
    /// It is not UTF-8: its content is at fault.
    #[error("is not text")]
    NotText,
}

impl ReadError {
    /// Whether it may be otherwise in a minute although nobody changes the file: see [`may_pass`].
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Io(error) if may_pass(error))
    }
}

/// Whether a file that cannot be read or written may be usable in a minute although nobody changes it: a full disk, a lack of
/// descriptors, or a lost connection to a file server. One that is missing, or that belongs to others, is a person's mistake.
#[must_use]
pub fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind;
    !matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::AlreadyExists
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidData
            | ErrorKind::InvalidFilename
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::UnexpectedEof
            | ErrorKind::Unsupported
            // How this project's own code says that it is not such a file.
            | ErrorKind::Other
    )
}

/// The message about a key file with this mode. The file's name comes before it.
#[derive(Debug, Clone, Copy)]
pub struct OpenMode(pub u32);

impl fmt::Display for OpenMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "has the mode {:04o}, so others can use the key: make it 0600 (chmod 600); one that root owns may be 0640 (in \
             Kubernetes defaultMode: 0640)",
            self.0
        )
    }
}

/// The message about a key file that this user owns. The file's name comes before it.
#[derive(Debug, Clone, Copy)]
pub struct OtherOwner(pub u32);

impl fmt::Display for OtherOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "belongs to the user with the number {}, who can use the key: give it to this user (number {}), or to root (chown)",
            self.0,
            service_user().unwrap_or_else(us)
        )
    }
}

/// The user that this process becomes later. Key files of that user are its own.
static SERVICE_USER: OnceLock<u32> = OnceLock::new();

/// Says which user this process becomes later, by number, so that key files of that user are read before, too. Only the first
/// call counts.
pub fn set_service_user(user: u32) {
    let _ = SERVICE_USER.set(user);
}

fn service_user() -> Option<u32> {
    SERVICE_USER.get().copied()
}

/// The user that this process, which is root's, becomes later.
pub(crate) fn becomes() -> Option<u32> {
    service_user().filter(|user| us() == ROOT && *user != ROOT)
}

/// The user who became root by `sudo` for this process, and could have done what this process does.
fn caller_of_sudo() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok().filter(|_| us() == ROOT)
}

/// The user of this process.
fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Reads a file of at most `longest` bytes. The returned memory is wiped when it is dropped.
///
/// # Errors
/// See [`ReadError`]. Never [`ReadError::Open`].
pub fn read(path: &Path, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    text(File::open(path)?, longest)
}

/// Like [`read`], for a file with secrets: other users must not be able to read or change it.
///
/// The rule is that of PostgreSQL. The file of this user has the mode 0600 or less. A file of root's may be readable by its
/// group (0640), because only root chooses who is in it. A file of another user is refused, unless that user called
/// `sudo` for this process. Only regular files are checked, not a pipe, for example.
///
/// # Errors
/// See [`ReadError`].
pub fn read_secret(path: &Path, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        // systemd gives its credentials to a service by an access control list, whose mask looks like the group's
        // permission to read.
        let credential = std::env::var_os(CREDENTIALS).is_some_and(|directory| path.starts_with(directory));
        let ours = [us(), service_user().unwrap_or_else(us), caller_of_sudo().unwrap_or_else(us)];
        check(metadata.uid(), metadata.mode() & 0o777, &ours, credential)?;
    }
    text(file, longest)
}

pub(crate) fn text(file: File, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    // Allocate for the whole content, because growing would leave a copy in freed memory. Only a regular file has a
    // known length.
    let metadata = file.metadata()?;
    let known = usize::try_from(metadata.len()).ok().filter(|_| metadata.is_file());
    let length = known.map_or(longest, |length| length.min(longest));
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.saturating_add(1)));
    file.take(longest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > longest {
        return Err(ReadError::TooLong(longest));
    }
    let text = String::from_utf8(std::mem::take(&mut *bytes));
    let mut text = text.map(Zeroizing::new).map_err(|error| {
        error.into_bytes().zeroize();
        ReadError::NotText
    })?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

/// Whether a file with this owner and this mode is secret. `ours` are the users that the process is, or becomes.
pub(crate) fn check(owner: u32, mode: u32, ours: &[u32], credential: bool) -> Result<(), ReadError> {
    let others = match owner {
        ROOT => 0o037,
        owner if !ours.contains(&owner) => return Err(ReadError::Foreign(owner)),
        _ if credential => 0o037,
        _ => 0o077,
    };
    if mode & others == 0 { Ok(()) } else { Err(ReadError::Open(mode)) }
}
