//! Files for pictures.

use crate::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file for a picture.
pub struct File(PathBuf, std::fs::File);

impl File {
    /// Opens it, so that a name that cannot be used is refused before the work.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = std::fs::File::create(path).map_err(|error| Error::Picture(path.to_owned(), error))?;
        Ok(Self(path.to_owned(), file))
    }

    pub fn write(mut self, picture: &str) -> Result<(), Error> {
        self.1.write_all(picture.as_bytes()).map_err(|error| Error::Picture(self.0, error))
    }
}
