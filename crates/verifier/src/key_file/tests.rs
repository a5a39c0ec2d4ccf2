use super::*;
use firstflight_files::ReadError;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn keys_come_back_from_a_file_of_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let retired = vec![PrivateKey::from_seed(&[2; 32]).public()];
    let keys = VerifierKeys { key: PrivateKey::from_seed(&[1; 32]), retired: retired.clone() };
    keys.create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let read = VerifierKeys::read(&path).unwrap();
    assert_eq!((read.key.public(), read.retired), (keys.key.public(), retired));
    assert_eq!(keys.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);

    let path = directory.path().join("token");
    create_token_key(&path, &TokenKey::new(7, [3; 32])).unwrap();
    let read = read_token_keys(&path).unwrap();
    assert_eq!((read.len(), read[0].number(), read[0].bytes()), (1, 7, &[3; 32]));
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    VerifierKeys { key: PrivateKey::from_seed(&[1; 32]), retired: Vec::new() }.create(&path).unwrap();
    for mode in [0o604, 0o620, 0o601] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = VerifierKeys::read(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Read(ReadError::Open(found)) if found == mode), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(VerifierKeys::read(&path).is_ok());
}

#[test]
fn what_is_no_key_file_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let seed = "01".repeat(32);
    let verdict = |text: &str| {
        let path = directory.path().join("file");
        let _ = fs::remove_file(&path);
        create(&path, text).unwrap();
        let (verifier, token) = (VerifierKeys::read(&path), read_token_keys(&path));
        (verifier.err().map(|e| e.to_string()), token.err().map(|e| e.to_string()))
    };
    let line = |number| Some(format!("line {number} is none of a key file of this kind"));
    let none = Some("has no key".to_owned());
    assert_eq!(verdict(""), (none.clone(), none));
    assert_eq!(verdict(&format!("\n# x\nkey {seed}\n")), (None, line(3)));
    assert_eq!(verdict(&format!("key {seed}\nkey {seed}")).0, line(2));
    assert_eq!(verdict(&format!("key {seed}0")).0, line(1));
    assert_eq!(verdict(&format!("key {seed}\nretired {}", "00".repeat(32))).0, line(2));
    assert_eq!(verdict(&format!("token 1 {seed}")), (line(1), None));
    assert_eq!(verdict(&format!("token 1 {seed}\ntoken 1 {seed}")).1, line(2));
    assert_eq!(verdict(&format!("token 256 {seed}")).1, line(1));
    let told = verdict(&format!("key {seed}zz")).0.unwrap();
    assert!(!told.contains("0101"));
}
