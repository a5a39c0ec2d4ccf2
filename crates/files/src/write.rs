//! Writing, removing and renaming.

use crate::read;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::NamedTempFile;

/// Writes a new file of mode 0600. On an error no file of this name is left, so the next attempt can succeed.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when there is a file of this name; others when it cannot be written.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist_noclobber(path))
}

/// Writes a file of mode 0600, and replaces an existing one. On an error the existing file is unchanged.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist(path))
}

/// Like [`replace`], and overwrites the content of the existing file on the disk before its blocks are free, as far as that
/// can be: a symbolic link, or a file that cannot be opened for writing, is replaced only. Journals, snapshots, file systems
/// that copy on write, and flash may keep the former content anyway.
///
/// # Errors
/// As [`replace`]. The existing file is then unchanged.
pub fn replace_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    let former = path.symlink_metadata().ok().filter(fs::Metadata::is_file).and_then(|about| {
        let file = File::options().write(true).open(path).ok()?;
        Some((file, about.len()))
    });
    replace(path, content)?;
    if let Some((file, length)) = former {
        // The new content is in place, so nothing that goes wrong here is told as if it were not.
        let _ = wipe(file, length);
    }
    Ok(())
}

/// Overwrites the first `length` bytes of a file, and flushes them to the disk.
fn wipe(mut file: File, length: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(length), &mut file)?;
    file.sync_data()
}

/// Checks whether [`replace`] can create a file in the directory of `path`: it creates one and removes it.
///
/// # Errors
/// When it cannot, or `path` is a directory.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    File::open(directory(path))?;
    scratch(path).map(drop)
}

/// Removes a file. When this returns, the file does not come back after a crash.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    sync(path)
}

/// Renames a damaged file to `PATH.corrupt-NUMBER`, a name that is not in use, and returns that name.
///
/// # Errors
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut number = seconds;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".corrupt-{number}"));
        let aside = PathBuf::from(name);
        if aside.symlink_metadata().is_ok() {
            number += 1;
            continue;
        }
        fs::rename(path, &aside)?;
        return sync(path).map(|()| aside);
    }
}

/// Flushes the directory that `path` lies in, so that its names are on the disk.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

/// Writes a file under a temporary name, flushes it to the disk, and moves it to `path` by `rename`.
pub(crate) fn place(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    rename: impl FnOnce(NamedTempFile) -> Result<File, tempfile::PersistError>,
) -> io::Result<()> {
    let directory = File::open(directory(path))?;
    // The temporary file is removed when it is dropped.
    let mut file = scratch(path)?;
    write(file.as_file_mut())?;
    give(file.as_file())?;
    file.as_file().sync_all()?;
    rename(file).map_err(|error| error.error)?;
    directory.sync_all()
}

/// Gives a file that root has made to the user that the process becomes later. Otherwise that user could neither read it nor
/// write it again.
pub(crate) fn give(file: &File) -> io::Result<()> {
    match read::becomes() {
        Some(user) => fchown(file, Some(user), None),
        None => Ok(()),
    }
}

/// An empty file of mode 0600 in the directory of `path`.
fn scratch(path: &Path) -> io::Result<NamedTempFile> {
    // Made here, because the errors of tempfile name its file, which says nothing to a person.
    let make = |path: &Path| File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    tempfile::Builder::new().prefix(".firstflight-").make_in(directory(path), make)
}

/// The directory that `path` lies in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
