use super::*;
use firstflight_files::ReadError;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn id(id: u8) -> NonZeroU8 {
    id.try_into().unwrap()
}

fn key(byte: u8) -> DnsPathKey {
    DnsPathKey::from_bytes(&[byte; 32]).unwrap()
}

#[test]
fn keys_come_back_from_a_file_of_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let first = DnsPathKeyFile { id: id(255), key: key(1), former: Vec::new() };
    let second = first.rotated(key(2), 1000, 500).rotated(key(3), 2000, 999);
    assert_eq!((second.id, second.former.len()), (id(2), 2));
    second.create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(second.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let read = DnsPathKeyFile::read(&path).unwrap();
    let keys = read.keys(999);
    assert_eq!((keys.current(), keys.former()), ((id(2), key(3).public()), 2));
    assert_eq!(keys.next_end(), Some(1000));
    // A key that has ended does not become valid again.
    let keys = read.keys(1000);
    assert_eq!((keys.current().0, keys.former(), keys.next_end()), (id(2), 1, Some(2000)));
    assert_eq!(read.keys(2000).former(), 0);
    assert_eq!(read.rotated(key(4), 3000, 1500).former.len(), 2);

    let path = directory.path().join("relay");
    create_relay_key(&path, 7, &RelayKey::from_bytes(&[3; 32])).unwrap();
    let read = read_relay_keys(&path).unwrap();
    assert_eq!((read.len(), read[0].0, *read[0].1.to_bytes()), (1, 7, [3; 32]));
}

#[test]
fn numbers_that_still_open_are_not_used_again() {
    let mut file = DnsPathKeyFile { id: id(1), key: key(1), former: Vec::new() };
    for n in 0..600 {
        file = file.rotated(key(2), u64::MAX, n);
        assert!(file.former.iter().all(|(former, ..)| *former != file.id));
        assert!(file.former.len() <= DnsPathKeys::MAX_FORMER);
    }
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    create_relay_key(&path, 1, &RelayKey::from_bytes(&[3; 32])).unwrap();
    for mode in [0o604, 0o620, 0o601] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = read_relay_keys(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Read(ReadError::Open(found)) if found == mode), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(read_relay_keys(&path).is_ok());
}

#[test]
fn what_is_no_key_file_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let secret = "01".repeat(32);
    let verdict = |text: &str| {
        let path = directory.path().join("file");
        let _ = fs::remove_file(&path);
        create(&path, text).unwrap();
        let (dns_path, relay) = (DnsPathKeyFile::read(&path), read_relay_keys(&path));
        (dns_path.err().map(|e| e.to_string()), relay.err().map(|e| e.to_string()))
    };
    let line = |number| Some(format!("line {number} is none of a key file of this kind"));
    let none = Some("has no key".to_owned());
    assert_eq!(verdict("# x\n"), (none.clone(), none.clone()));
    assert_eq!(verdict(&format!("key 1 {secret}\nformer 2 {secret} 9")), (None, line(1)));
    assert_eq!(verdict(&format!("former 2 {secret} 9")).0, none);
    assert_eq!(verdict(&format!("key 1 {secret}\nkey 2 {secret}")).0, line(2));
    assert_eq!(verdict(&format!("key 0 {secret}")).0, line(1));
    assert_eq!(verdict(&format!("key 1 {secret}0")).0, line(1));
    assert_eq!(verdict(&format!("relay 1 {secret}\nrelay 0 {secret}")), (line(1), None));
    let twice = Some("has two keys with the number 1".to_owned());
    assert_eq!(verdict(&format!("key 1 {secret}\nformer 1 {secret} 9")).0, twice);
    assert_eq!(verdict(&format!("relay 1 {secret}\nrelay 1 {secret}")).1, twice);
    let told = verdict(&format!("relay 1 {secret}zz")).1.unwrap();
    assert!(!told.contains("0101"));
}
