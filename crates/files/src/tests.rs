#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::write::place;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

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
    for mode in [0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = read_secret(&path, 6).unwrap_err();
        assert!(matches!(error, ReadError::Open(found) if found == mode), "{mode:o}: {error}");
        assert!(error.to_string().contains("chmod 600"));
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    assert!(read_secret(&path, 6).is_ok());
    assert!(matches!(read_secret(&path, 5), Err(ReadError::TooLong(_))));
    replace(&path, b"\xffecret").unwrap();
    assert!(matches!(read_secret(&path, 6), Err(ReadError::NotText)));
}

/// PostgreSQL's rule: `be-secure-common.c`, `check_ssl_key_file_permissions`.
#[test]
fn a_secret_is_of_this_user_or_of_root() {
    const US: u32 = 1000;
    let check = |owner, mode| read::check(owner, mode, &[US], false);
    for mode in [0o600, 0o400, 0o700] {
        assert!(check(US, mode).is_ok() && check(0, mode).is_ok(), "{mode:o}");
        assert!(matches!(check(1001, mode), Err(ReadError::Foreign(1001))), "{mode:o}");
    }
    // Debian's ssl-cert has 0640, a Kubernetes secret with a group 0440.
    for mode in [0o640, 0o440] {
        assert!(check(0, mode).is_ok(), "{mode:o}");
        assert!(matches!(check(US, mode), Err(ReadError::Open(found)) if found == mode), "{mode:o}");
        assert!(read::check(US, mode, &[US], true).is_ok(), "a credential of systemd with the mode {mode:o}");
    }
    for mode in [0o660, 0o650, 0o644, 0o604, 0o602, 0o601] {
        for owner in [0, US] {
            let error = check(owner, mode).unwrap_err();
            assert!(error.to_string().contains("defaultMode: 0640"), "{owner} {mode:o}: {error}");
        }
    }
    // The user that the process becomes counts as well.
    assert!(read::check(1001, 0o600, &[0, 1001], false).is_ok());
    let error = check(1001, 0o600).unwrap_err().to_string();
    assert!(error.contains("number 1001") && error.contains("chown"), "{error}");
}

#[test]
fn the_secret_of_another_user_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    create(&path, b"secret").unwrap();
    // Only root can give a file away.
    if std::os::unix::fs::chown(&path, Some(54_321), None).is_err() {
        return;
    }
    assert!(matches!(read_secret(&path, 6), Err(ReadError::Foreign(54_321))));
}

#[test]
fn a_lock_follows_no_link_and_waits_for_no_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let (state, lock, target) =
        ["state", "state.lock", "target"].map(|name| directory.path().join(name)).into();
    std::os::unix::fs::symlink(&target, &lock).unwrap();
    let says = |error: LockError, what: &str| match error {
        LockError::Io(error) => assert!(error.to_string().contains(what), "{error}"),
        LockError::Held => panic!("nobody has it"),
    };
    says(StateFile::lock(&state).unwrap_err(), "state.lock is a link");
    says(FixedFile::<4>::open(&lock).unwrap_err(), "state.lock is a link");
    assert_eq!(names(directory.path()), ["state.lock"], "the target was created");
    fs::write(&target, b"theirs").unwrap();
    says(FixedFile::<4>::open(&lock).unwrap_err(), "state.lock is a link");
    fs::remove_file(&lock).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    says(StateFile::lock(&state).unwrap_err(), "state.lock is not a regular file");
    assert_eq!(fs::read(&target).unwrap(), b"theirs");
}

/// A second name of the file shows what stays in its blocks.
#[test]
fn a_secret_that_is_replaced_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let (path, blocks, link) =
        (directory.path().join("key"), directory.path().join("blocks"), directory.path().join("link"));
    create(&path, b"former").unwrap();
    fs::hard_link(&path, &blocks).unwrap();
    replace_secret(&path, b"the next one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"the next one");
    assert_eq!(fs::read(&blocks).unwrap(), [0; 6]);
    // A link may lead to another user's file.
    std::os::unix::fs::symlink(&path, &link).unwrap();
    replace_secret(&link, b"another").unwrap();
    assert_eq!(
        (fs::read(&link).unwrap(), fs::read(&path).unwrap()),
        (b"another".to_vec(), b"the next one".to_vec())
    );
    replace_secret(&directory.path().join("new"), b"first").unwrap();
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
    let held = StateFile::lock(&path).unwrap();
    assert!(matches!(StateFile::lock(&path), Err(LockError::Held)));
    // A write replaces the file, and the lock stays.
    assert!(held.read(5).unwrap().is_none());
    held.replace(b"state").unwrap();
    assert_eq!(*held.read(5).unwrap().unwrap(), "state");
    assert!(matches!(StateFile::lock(&path), Err(LockError::Held)));
    held.remove().unwrap();
    assert!(held.read_secret(5).unwrap().is_none());
    drop(held);
    assert!(StateFile::lock(&path).is_ok());
}

#[test]
fn a_file_of_fixed_length_is_locked_and_written_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut file = FixedFile::<4>::open(&path).unwrap();
    assert_eq!(file.read().unwrap().as_str(), "");
    file.write(b"1234").unwrap();
    assert!(matches!(FixedFile::<4>::open(&path), Err(LockError::Held)));
    // The directory has changed its owner, or the process has.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o500)).unwrap();
    file.write(b"5678").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!((file.read().unwrap().as_str(), file.read().unwrap().as_str()), ("5678", "5678"));
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    fs::write(&path, "12345").unwrap();
    assert!(matches!(FixedFile::<4>::open(&path).unwrap().read(), Err(ReadError::TooLong(_))));
}

#[test]
fn files_set_aside_keep_their_content_and_have_different_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let aside = ["first", "second"].map(|text| {
        create(&path, text.as_bytes()).unwrap();
        set_aside(&path).unwrap()
    });
    assert_eq!(aside.each_ref().map(|path| fs::read_to_string(path).unwrap()), ["first", "second"]);
    assert!(!path.exists());
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Names {
    names: Vec<String>,
}

const FORMAT: Format = Format { version: 2, longest: 100, secret: true };

#[test]
fn a_file_of_another_version_is_not_read_as_one_of_this_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("names");
    assert!(FORMAT.read::<Names>(&path).unwrap().is_none());
    let names = Names { names: vec!["alice".into()] };
    FORMAT.write(&path, &names).unwrap();
    assert_eq!(FORMAT.read(&path).unwrap(), Some(names));
    for version in [1, 3] {
        // It may lack what this version has.
        replace(&path, format!("{{\"version\":{version}}}").as_bytes()).unwrap();
        let error = FORMAT.read::<Names>(&path).unwrap_err();
        assert!(matches!(error, FormatError::Version { found, expected: 2 } if found == version), "{error}");
    }
}

#[test]
fn a_damaged_file_is_not_quoted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("names");
    let verdict = |text: &[u8]| {
        replace(&path, text).unwrap();
        FORMAT.read::<Names>(&path).unwrap_err().to_string()
    };
    assert_eq!(verdict(b""), "it is cut off");
    assert_eq!(verdict(b"{\"version\":2,\"names\":[\"ali"), "it is cut off");
    assert_eq!(verdict(b"names"), "it is not JSON");
    assert_eq!(verdict(b"\xff"), "it is not text");
    assert_eq!(verdict(b"{\"version\":2,\"names\":\"secret\"}"), "it has other fields");
    assert_eq!(verdict(&[b' '; 101]), "it has more than 100 bytes");
}

#[test]
fn a_file_with_secrets_is_refused_if_others_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("names");
    let names = Names { names: Vec::new() };
    FORMAT.write(&path, &names).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = FORMAT.read::<Names>(&path).unwrap_err();
    assert!(
        matches!(error, FormatError::Read(ReadError::Open(0o644))) && error.to_string().contains("chmod 600"),
        "{error}"
    );
    let open = Format { secret: false, ..FORMAT };
    assert_eq!(open.read(&path).unwrap(), Some(names));
}

#[test]
fn digits_there_and_back() {
    assert_eq!(&*to_hex(&[0, 0x7f, 0xff]), "007fff");
    assert_eq!(*from_hex::<3>("007fFF").unwrap(), [0, 0x7f, 0xff]);
    for bad in ["", "007ff", "007fff0", "007fg0", "00 fff", "+07fff", "éééé"] {
        assert!(from_hex::<3>(bad).is_none(), "{bad}");
    }
}

#[test]
fn a_file_is_not_read_beyond_its_longest_length() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text");
    create(&path, b"four").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(read(&path, 4).unwrap().as_str(), "four");
    assert!(matches!(read(&path, 3), Err(ReadError::TooLong(_))));
    // A device has no length, and this one has no end.
    assert!(matches!(read(Path::new("/dev/zero"), 3), Err(ReadError::TooLong(_))));
}

#[test]
fn a_problem_is_reported_once_until_it_is_over() {
    let mut last = LastProblem::default();
    assert_eq!(last.new_message(&"a"), Some("a"));
    assert_eq!(last.new_message(&"a"), None);
    assert_eq!(last.new_message(&"b"), Some("b"));
    last.over();
    assert_eq!(last.new_message(&"b"), Some("b"));
}

#[test]
fn the_mark_of_some_editors_is_no_part_of_a_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (written, expected) in
        [("\u{feff}# begin\n", "# begin\n"), ("\u{feff}", ""), ("a\u{feff}", "a\u{feff}")]
    {
        let _ = fs::remove_file(&path);
        create(&path, written.as_bytes()).unwrap();
        assert_eq!(*read(&path, 100).unwrap(), expected);
        assert_eq!(*read_secret(&path, 100).unwrap(), expected);
    }
}

/// Nix, OSTree, `rsync -t` and `cp -p` give a new file the time of the old one, and a key of the same kind has its size.
#[test]
fn another_file_of_the_same_size_and_time_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let [path, new] = ["key", "new"].map(|name| directory.path().join(name));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let write = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        File::options().append(true).open(path).unwrap().set_modified(long_ago).unwrap();
    };
    write(&path, "one");
    let seen = FileStamp::at(&path);
    assert!(!seen.may_have_changed(&path));
    write(&new, "two");
    fs::rename(&new, &path).unwrap();
    assert!(seen.may_have_changed(&path), "replaced");
    let seen = FileStamp::at(&path);
    assert!(!seen.may_have_changed(&path));
    fs::remove_file(&path).unwrap();
    assert!(seen.may_have_changed(&path), "gone");
    let seen = FileStamp::at(&path);
    assert!(!seen.may_have_changed(&path));
    write(&path, "three");
    assert!(seen.may_have_changed(&path), "back");
}

/// A start that fails leaves nothing behind.
#[test]
fn a_lock_is_gone_with_its_owner_and_never_has_two() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let first = StateFile::lock(&path).unwrap();
    assert_eq!(names(directory.path()), ["state.lock"]);
    assert!(matches!(StateFile::lock(&path), Err(LockError::Held)));
    drop(first);
    assert!(names(directory.path()).is_empty());
    // Who removes the file of another one lets a third one in, whose file stays.
    let first = StateFile::lock(&path).unwrap();
    fs::remove_file(directory.path().join("state.lock")).unwrap();
    let second = StateFile::lock(&path).unwrap();
    drop(first);
    assert_eq!(names(directory.path()), ["state.lock"]);
    assert!(matches!(StateFile::lock(&path), Err(LockError::Held)));
    drop(second);
    // Threads that lock and unlock never hold it at one time.
    let held = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let Ok(lock) = StateFile::lock(&path) else { continue };
                    assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(lock);
                }
            });
        }
    });
    assert!(names(directory.path()).is_empty());
}

/// A temporary file's name says nothing to a person.
#[test]
fn an_error_of_writing_names_no_temporary_file() {
    // The kernel makes no file there, not even for root.
    for error in [
        create(Path::new("/proc/key"), b"x"),
        replace(Path::new("/proc/key"), b"x"),
        check_writable(Path::new("/proc/key")),
    ] {
        let error = error.unwrap_err();
        assert!(!error.to_string().contains(".firstflight-"), "{error}");
        assert!(error.raw_os_error().is_some(), "{error:?}");
    }
}
