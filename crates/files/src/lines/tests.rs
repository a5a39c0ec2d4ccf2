use super::*;
use crate::ReadError;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_file_is_its_owners_and_of_a_length() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    create(&path, "# x\n\n key 1 \n").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let read_lines = |text: &str| {
        assert_eq!(lines(text).collect::<Vec<_>>(), [(3, vec!["key", "1"])]);
        Ok(())
    };
    read(&path, read_lines).unwrap();
    assert_eq!(create(&path, "").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = read(&path, |_| Ok(())).unwrap_err();
    assert!(matches!(refused, KeyFileError::Read(ReadError::Open(0o644))), "{refused}");
    let long = directory.path().join("long");
    create(&long, &"x".repeat(LARGEST + 1)).unwrap();
    let refused = read(&long, |_| Ok(())).unwrap_err();
    assert!(matches!(refused, KeyFileError::Read(ReadError::TooLong(LARGEST))), "{refused}");
}
