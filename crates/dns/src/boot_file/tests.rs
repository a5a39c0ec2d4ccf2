use super::*;
use std::fs;

#[test]
fn each_start_is_larger_than_the_last_whatever_the_clock_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("boot");
    let mut file = BootFile::open(&path).unwrap();
    assert_eq!(file.next(1000).unwrap(), Boot(1000));
    assert_eq!(file.next(1000).unwrap(), Boot(1001));
    assert!(matches!(BootFile::open(&path), Err(BootError::Held)));
    BootFile::check(&path).unwrap();
    drop(file);
    let mut file = BootFile::open(&path).unwrap();
    assert_eq!(file.next(500).unwrap(), Boot(1002));
    assert_eq!(file.next(5000).unwrap(), Boot(5000));
    assert_eq!(file.next(u32::MAX).unwrap(), Boot(u32::MAX));
    assert!(matches!(file.next(5000), Err(BootError::Exhausted)));
    assert_eq!(fs::read_to_string(&path).unwrap(), "4294967295\n");
}

#[test]
fn a_look_creates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("boot");
    BootFile::check(&path).unwrap();
    assert!(!path.exists());
    let below = directory.path().join("none/boot");
    assert!(matches!(BootFile::check(&below), Err(BootError::Io(_))));
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("boot");
    for text in ["1000\n", "key 1 00\n\n\n", "0000001000", "0000001000\nx", "99999999999", "x000001000\n"] {
        fs::write(&path, text).unwrap();
        assert!(matches!(BootFile::open(&path), Err(BootError::NotBoot)), "{text}");
        assert!(matches!(BootFile::check(&path), Err(BootError::NotBoot)), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, "").unwrap();
    assert_eq!(BootFile::open(&path).unwrap().next(9).unwrap(), Boot(9));
}
