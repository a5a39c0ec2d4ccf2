#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_file_of_keys_is_a_secret_of_96_digits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let put = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        FarmKeys::read(&path)
    };
    let digits = format!("{}{}\n", "ab".repeat(32), "0c".repeat(16));
    let keys = put(&digits, 0o600).unwrap();
    assert_eq!(*keys.one_time(), [0xab; 32]);
    assert!(!format!("{keys:?}").contains("ab"));
    assert_eq!(put(&digits, 0o600).unwrap().fingerprint(), keys.fingerprint());
    let other = put(&digits.replace("0c", "0d"), 0o600).unwrap();
    assert_ne!(other.fingerprint(), keys.fingerprint());
    assert!(matches!(put(&digits, 0o644), Err(FarmKeysError::Unreadable(_))));
    for wrong in ["", "ab", &digits.replace('c', "g"), &digits.repeat(50)] {
        assert!(matches!(put(wrong, 0o600), Err(FarmKeysError::Malformed)), "{wrong}");
    }
}
