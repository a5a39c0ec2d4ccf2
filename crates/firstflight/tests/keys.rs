//! Key files, through the public interface only.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::credential::{CookieKey, KeyParseError, SecretFileError};
use firstflight::credential::{CookieKeys, FarmSecret, FarmSecrets, Schedule, Scheme};
use firstflight::keys::{self, Form, KeyFile, KeyFileError};
use std::path::PathBuf;
use std::time::Duration;

/// A file that vanishes with it.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("firstflight-keys-{}-{name}", std::process::id())))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    async fn open(&self, form: Form) -> Result<KeyFile, KeyFileError> {
        KeyFile::open(&self.0, form, Scheme::Linux).await
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn key(byte: u8) -> CookieKey {
    CookieKey::from_bytes([byte; 16])
}

#[tokio::test]
async fn a_key_file_is_read_again_and_a_bad_one_changes_nothing() {
    let path = TempFile::new("reload");
    assert!(matches!(path.open(Form::Keys).await, Err(KeyFileError::Read(_))));
    path.write(&key(1).to_text());
    let mut file = path.open(Form::Keys).await.unwrap();
    let primary = |file: &KeyFile| keys::current(file).unwrap().primary;
    assert_eq!(primary(&file), key(1).fingerprint());
    assert!(!file.reload().await.unwrap());

    path.write(&CookieKeys::new(key(2)).with_backup(key(1)).to_text());
    assert!(file.reload().await.unwrap());
    assert_eq!(primary(&file), key(2).fingerprint());

    for bad in ["", "nonsense", "a,b,c", &"x".repeat(5000)] {
        path.write(bad);
        assert!(file.reload().await.is_err());
        assert_eq!(primary(&file), key(2).fingerprint(), "{bad}");
    }
    std::fs::remove_file(&path.0).unwrap();
    assert!(matches!(file.reload().await, Err(KeyFileError::Read(_))));
    assert_eq!(primary(&file), key(2).fingerprint());
    path.write(&key(3).to_text());
    assert!(file.reload().await.unwrap());
    assert_eq!(primary(&file), key(3).fingerprint());
}

#[tokio::test]
async fn a_file_of_farm_secrets_gives_scheduled_keys() {
    let path = TempFile::new("schedule");
    let secret = FarmSecret::new("a", &[7; 32]).unwrap();
    let (period, lead) = (Schedule::DEFAULT_PERIOD, Schedule::DEFAULT_LEAD);
    path.write(&format!("# the farm's\n{}\n", *secret.to_text()));
    let form = Form::Schedule { period, lead };
    let file = path.open(form).await.unwrap();
    let expected = Schedule::new(FarmSecrets::new(secret), Scheme::Linux, period, lead).unwrap();
    // A turn between the two readings of the clock shows as a difference once; not a second time.
    let same = |_| keys::current(&file).unwrap().primary == keys::current(&expected).unwrap().primary;
    assert!((0..2).any(same));

    path.write(&key(1).to_text());
    let error = path.open(form).await.unwrap_err();
    assert!(matches!(error, KeyFileError::Secret(SecretFileError::Line { line: 1, .. })), "{error}");
    let error = path.open(Form::Keys).await.map(drop);
    assert!(error.is_ok());
    path.write("a:00");
    let error = path.open(Form::Keys).await.unwrap_err();
    assert!(matches!(error, KeyFileError::Key(KeyParseError::Words { .. })), "{error}");
    let hour = Form::Schedule { period: Duration::from_secs(3600), lead };
    path.write(&format!("a:{}", "07".repeat(32)));
    assert!(matches!(path.open(hour).await, Err(KeyFileError::Schedule(_))));
}
