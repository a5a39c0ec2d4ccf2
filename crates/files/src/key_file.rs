//! Errors of key files.

use crate::read::ReadError;

/// Why a file gives no keys. `C` says what is wrong with its content. The message continues a sentence that begins with
/// the file's name, and never quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError<C> {
    /// It cannot be read, or other users can.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its content is not that of a key file of its kind.
    #[error("{0}")]
    Content(C),
}
