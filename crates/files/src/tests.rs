#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn a_secret_is_its_owners_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    create(&path, b"secret").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(*read_secret(&path, 6).unwrap(), "secret");
    for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = read_secret(&path, 6).unwrap_err();
        assert!(matches!(error, ReadError::Open(found) if found == mode), "{mode:o}: {error}");
        assert!(error.to_string().contains("chmod 600"));
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    assert!(read_secret(&path, 6).is_ok());
    assert!(matches!(read_secret(&path, 5), Err(ReadError::TooLong)));
    replace(&path, b"\xffecret").unwrap();
    assert!(matches!(read_secret(&path, 6), Err(ReadError::NotText)));
}

#[test]
fn a_file_that_is_there_is_not_created() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    create(&path, b"first").unwrap();
    assert_eq!(create(&path, b"second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(directory.path()), ["key"]);
    replace(&path, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(names(directory.path()), ["key"]);
}

/// A disk that is full after three bytes.
fn full(file: &mut File) -> io::Result<()> {
    file.write_all(b"hal")?;
    Err(io::ErrorKind::StorageFull.into())
}

#[test]
fn a_full_disk_leaves_no_file_that_blocks_the_next_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let error = place(&path, full, |file| file.persist_noclobber(&path)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(names(directory.path()).is_empty());
    create(&path, b"whole").unwrap();
    // Nor does it change an existing file.
    place(&path, full, |file| file.persist(&path)).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert_eq!(names(directory.path()), ["key"]);
}

#[test]
fn where_nothing_can_be_written_is_known_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    check_writable(&path).unwrap();
    assert!(names(directory.path()).is_empty());
    assert_eq!(check_writable(directory.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(check_writable(&path.join("x")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn one_process_holds_a_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let held = lock(&path).unwrap();
    assert!(matches!(lock(&path), Err(LockError::Held)));
    drop(held);
    assert!(lock(&path).is_ok());
}

#[test]
fn digits_there_and_back() {
    assert_eq!(&*to_hex(&[0, 0x7f, 0xff]), "007fff");
    assert_eq!(*from_hex::<3>("007fFF").unwrap(), [0, 0x7f, 0xff]);
    for bad in ["", "007ff", "007fff0", "007fg0", "00 fff", "+07fff", "éééé"] {
        assert!(from_hex::<3>(bad).is_none(), "{bad}");
    }
}
