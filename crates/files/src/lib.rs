//! Key files and state files: how they are read, written and locked.
//!
//! - A file with secrets is read only if no other user can read or change it, and only if it is this user's or root's
//!   ([`read_secret`]). No file is read beyond
//!   the length that its kind can have ([`read`]).
//! - Writes are atomic: a file is written under another name, flushed to the disk, and renamed. After a crash, or on a
//!   full disk, there is the old file or the new one, and no temporary file after an error ([`create`], [`replace`]).
//! - Every file that this crate writes has the mode 0600. A file is removed or renamed for good when the call returns:
//!   its directory is flushed too ([`remove`], [`set_aside`]).
//! - A file that is locked, or the file of its lock, is never a link: nothing is created elsewhere.
//! - A secret that must not come back is overwritten before its blocks are free ([`replace_secret`]).
//! - A file that one process may use is locked: by a second file beside it ([`StateFile`]), or itself if it is written
//!   in place ([`FixedFile`]).
//! - A file in JSON has a version, and a file of another version is not read as one of this version ([`Format`]).
//! - A key file of lines is read, and written, in one way ([`lines`]).
//! - Secrets are hexadecimal digits in a file, and no copy of them stays in memory ([`to_hex`], [`from_hex`]).
//! - Whether a file that is followed may have changed is seen by more than its size and time, which tools copy
//!   ([`FileStamp`]).
//! - A problem with a file that is read every second is reported once ([`LastProblem`]).
//! - No error quotes the content of a file.
#![forbid(unsafe_code)]

mod fixed;
mod followed;
mod format;
mod hex;
mod key_file;
pub mod lines;
mod problem;
mod read;
mod state;
mod write;

pub use fixed::FixedFile;
pub use followed::{FileStamp, Stamp, open_regular};
pub use format::{Format, FormatError, Mistake};
pub use hex::{from_hex, to_hex};
pub use key_file::KeyFileError;
pub use problem::LastProblem;
pub use read::{
    BYTE_ORDER_MARK, OpenMode, OtherOwner, ReadError, may_pass, read, read_secret, set_service_user,
};
pub use state::{LockError, StateFile};
pub use write::{check_writable, create, remove, replace, replace_secret, set_aside};

#[cfg(test)]
mod tests;
