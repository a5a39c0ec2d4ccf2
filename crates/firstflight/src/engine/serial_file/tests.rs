//! No serial is issued twice, whatever happens to the file and the process.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::credential::Serial;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is deleted when this is dropped.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("firstflight-serials-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }

    fn open(&self) -> Result<SerialFile, SerialFileError> {
        SerialFile::open(&self.file(), 7, None)
    }

    fn edit(&self, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(self.file()).unwrap();
        fs::write(self.file(), change(text)).unwrap();
    }

    fn mark(&self) -> u64 {
        parse(&fs::read_to_string(self.file()).unwrap()).unwrap().mark
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn every_life_begins_above_the_one_before() {
    let place = TestDirectory::new();
    let mut last = 0;
    for life in 0..3 {
        let table = place.open().unwrap().start(100).unwrap();
        let given: Vec<Serial> = (0..10).filter_map(|_| table.issue()).collect();
        assert_eq!(given.len(), 10);
        assert!(given.iter().all(|serial| serial.counter() > last), "life {life}");
        assert!(given.iter().all(|serial| serial.counter() < place.mark()), "not beyond what is on disk");
        last = place.mark() - 1;
        drop(table);
        // The task releases the file.
        while matches!(place.open(), Err(SerialFileError::Locked)) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn the_mark_keeps_ahead_of_what_is_given_out() {
    let place = TestDirectory::new();
    let table = place.open().unwrap().start(100).unwrap();
    let mut given = 0;
    while given < 3 * RESERVE {
        match table.issue() {
            Some(serial) => {
                given += 1;
                if given % 1000 == 0 {
                    assert!(serial.counter() < place.mark());
                }
            }
            None => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn a_lost_or_an_old_file_gives_no_serial_again() {
    let place = TestDirectory::new();
    let shared = [9; 32];
    let open = || SerialFile::open(&place.file(), 7, Some(&shared)).unwrap();
    let before = open().mark;
    fs::remove_file(place.file()).unwrap();
    assert!(open().mark >= before, "lost");
    place.edit(|text| text.replace(&format!("mark {}", place.mark()), "mark 5"));
    assert!(open().mark >= before, "from a backup");
    // If the clock was set back, the file still has the higher mark.
    place.edit(|text| text.replace(&format!("mark {}", place.mark()), "mark 281474976710000"));
    assert_eq!(open().mark, 281_474_976_710_000);
}

#[test]
fn fresh_files_have_fresh_keys_and_keep_them() {
    let (one, two) = (TestDirectory::new(), TestDirectory::new());
    let keys = one.open().unwrap().keys.clone();
    assert_eq!(one.open().unwrap().keys, keys);
    assert_ne!(two.open().unwrap().keys, keys);
    assert_eq!(*SerialFile::open(&two.file(), 7, Some(&[5; 32])).unwrap().keys, [5; 32]);
    assert!(!format!("{:?}", one.open().unwrap()).contains("keys"));
}

#[test]
fn only_its_owner_reads_it() {
    let place = TestDirectory::new();
    place.open().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.file()), 0o600);
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, SerialFileError::Readable(0o644)) && error.to_string().contains("chmod 600"));
}

#[test]
fn a_file_has_one_process_and_one_issuer() {
    let place = TestDirectory::new();
    let held = place.open().unwrap();
    assert!(matches!(place.open(), Err(SerialFileError::Locked)));
    drop(held);
    let error = SerialFile::open(&place.file(), 8, None).unwrap_err();
    assert!(matches!(error, SerialFileError::Issuer(7)), "{error}");
}

#[test]
fn a_damaged_file_is_refused_and_left_alone() {
    let place = TestDirectory::new();
    place.open().unwrap();
    let good = fs::read_to_string(place.file()).unwrap();
    let cut = |at: usize| good.get(..good.len() - at).unwrap().to_owned();
    let damaged = [
        String::new(),
        cut(1),
        cut(5),
        good.replace("version 1", "version 2"),
        good.replace("issuer 7", "issuer 70000"),
        good.replace("mark ", "mark -"),
        format!("{good}more\n"),
        good.replace("keys ", "keys 0"),
    ];
    for text in damaged {
        fs::write(place.file(), &text).unwrap();
        assert!(matches!(place.open(), Err(SerialFileError::Damaged)), "{text}");
        assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
    }
    fs::write(place.file(), [0xff; 100]).unwrap();
    assert!(matches!(place.open(), Err(SerialFileError::Damaged)));
}

#[test]
fn what_cannot_be_created_is_refused() {
    let error = SerialFile::open(Path::new("/nonexistent/state"), 1, None).unwrap_err();
    assert!(matches!(error, SerialFileError::Io(_)), "{error}");
}
