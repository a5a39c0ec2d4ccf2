use super::*;
use crate::fixtures::{NAME, NOW, key, name, rng};
use firstflight_files::ReadError;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const AFTER: u32 = NOW as u32 + 90_000;

#[test]
fn keys_come_back_from_a_file_of_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let first = KeyFile::new(name(NAME), key(1), AFTER);
    let second = first.rotated(key(2), AFTER + 1, NOW).unwrap();
    second.create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(second.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let keys = KeyFile::read(&path).unwrap().keys(NOW).unwrap();
    assert_eq!((keys.len(), keys.name().as_str()), (2, NAME));
    assert_eq!(keys.record(NOW).unwrap().entries()[0].key(), Some(&key(2).public()));
    let late = u64::from(AFTER) + 3600;
    assert_eq!(KeyFile::read(&path).unwrap().keys(late).unwrap().len(), 1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = KeyFile::read(&path).unwrap_err();
    assert!(matches!(error, KeyFileError::Read(ReadError::Open(0o644))), "{error}");
}

#[test]
fn numbers_that_open_are_not_used_again() {
    let mut file = KeyFile::new(name(NAME), key(1), AFTER);
    for n in 0..600 {
        file = file.rotated(key(2), u32::MAX, n).unwrap();
        let KeyFile::Keys { keys, .. } = &file else { panic!() };
        let mut ids: Vec<_> = keys.iter().map(|(id, ..)| *id).collect();
        ids.sort();
        ids.dedup();
        assert!(ids.len() == keys.len() && keys.len() <= KeySet::MAX);
    }
}

#[test]
fn a_farm_comes_back_and_goes_forward() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("farm");
    let farm = Farm::generate(name(NAME), 86_400, 3600, NOW, &mut rng(1)).unwrap();
    KeyFile::Farm(farm.clone()).create(&path).unwrap();
    let KeyFile::Farm(mut read) = KeyFile::read(&path).unwrap() else { panic!() };
    assert_eq!((read.index(), &**read.chain()), (farm.index(), &**farm.chain()));
    assert!(read.advance(NOW + 3 * 86_400).unwrap());
    KeyFile::Farm(read.clone()).replace(&path).unwrap();
    let file = KeyFile::read(&path).unwrap();
    assert_eq!(file.keys(NOW).unwrap_err(), ChainFault::Behind);
    assert!(file.rotated(key(1), AFTER, NOW).is_none());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_no_key_file_says_where() {
    let secret = "01".repeat(32);
    let fault = |text: &str| KeyFile::parse(text).unwrap_err().to_string();
    let keys = format!("{KEYS}1\nname a.example\nkey 1 {secret} 5\n");
    assert!(KeyFile::parse(&keys).is_ok());
    let newer = fault(&keys.replace("version 1", "version 2"));
    assert_eq!(
        newer,
        "has version 2, and this program reads version 1: use the program that wrote it, or a newer one"
    );
    assert_eq!(fault("key 1 x 5\n"), "is no file of seal keys: its first line is another one");
    assert_eq!(fault(&format!("{keys}key 1 {secret} 6\n")), "has two keys with the number 1");
    assert_eq!(fault(&format!("{keys}period 86400\n")), "line 4 is none of a file of seal keys");
    assert_eq!(fault(&keys.replace("key 1", "key 0")), "line 3 is none of a file of seal keys");
    assert_eq!(fault(&format!("{KEYS}1\nname a.example\n# key\n")), "has no key");
    assert_eq!(fault(&format!("{KEYS}1\nkey 1 {secret} 5\n")), "has no name");
    assert_eq!(fault(&keys.replace("a.example", "A")), "line 2 is none of a file of seal keys");
    let farm = format!("{FARM}1\nname a.example\nperiod 86400\nttl 60\nchain 1 {secret}\n");
    assert!(KeyFile::parse(&farm).is_ok());
    assert_eq!(fault(&farm.replace("86400", "60")), "a period has 3600 to 86400 seconds");
    assert_eq!(fault(&farm.replace("ttl 60\n", "")), "has no ttl");
    assert!(!fault(&keys.replace(" 5", " zz")).contains("0101"));
}
