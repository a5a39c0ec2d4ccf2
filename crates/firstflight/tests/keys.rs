//! Key files and keys that change, through the public interface only.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::credential::{
    CookieKey, CookieKeys, FarmSecret, FarmSecrets, FastOpenPolicy, KeyParseError, Outcome, PendingLimit,
    Reason, Schedule, Scheme, SecretFileError,
};
use firstflight::keys::{self, Form, KeyError, KeyFile, KeyFileError, ReadError};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, link};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// A file that is deleted when this is dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("firstflight-keys-{}-{name}", std::process::id())))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
        self.mode(0o600);
    }

    fn mode(&self, mode: u32) {
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode)).unwrap();
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
    assert!(matches!(path.open(Form::Keys).await, Err(KeyFileError::Read(ReadError::Io(_)))));
    path.write(&key(1).to_text());
    let mut file = path.open(Form::Keys).await.unwrap();
    let primary = |file: &KeyFile| keys::current(file).unwrap().primary;
    assert_eq!(primary(&file), key(1).fingerprint());
    // The file's text is secret. Its bytes begin with "01".
    assert!(!format!("{file:?}").contains("48, 49"), "{file:?}");
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
    assert!(matches!(file.reload().await, Err(KeyFileError::Read(ReadError::Io(_)))));
    assert_eq!(primary(&file), key(2).fingerprint());
    path.write(&key(3).to_text());
    assert!(file.reload().await.unwrap());
    assert_eq!(primary(&file), key(3).fingerprint());
}

#[tokio::test]
async fn a_key_file_that_others_can_read_is_refused_and_the_keys_of_before_stay() {
    let path = TempFile::new("mode");
    path.write(&key(1).to_text());
    let mut file = path.open(Form::Keys).await.unwrap();
    path.write(&key(2).to_text());
    for mode in [0o644, 0o604, 0o620, 0o602] {
        path.mode(mode);
        let refused = |error: &KeyFileError| matches!(error, KeyFileError::Read(ReadError::Open(found)) if *found == mode);
        assert!(refused(&path.open(Form::Keys).await.unwrap_err()));
        assert!(refused(&file.reload().await.unwrap_err()));
        assert_eq!(keys::current(&file).unwrap().primary, key(1).fingerprint());
    }
    path.mode(0o600);
    assert!(file.reload().await.unwrap());
    path.write(&format!("a:{}", "07".repeat(32)));
    path.mode(0o644);
    let form = Form::Schedule { period: Duration::from_secs(86_400), lead: Schedule::DEFAULT_LEAD };
    assert!(matches!(path.open(form).await, Err(KeyFileError::Read(ReadError::Open(0o644)))));
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
    // If the period changes between the two readings of the clock, the first comparison differs, but not the second.
    let same = |_| keys::current(&file).unwrap().primary == keys::current(&expected).unwrap().primary;
    assert!((0..2).any(same));

    path.write(&key(1).to_text());
    let error = path.open(form).await.unwrap_err();
    assert!(
        matches!(error, KeyFileError::Content(KeyError::Secret(SecretFileError::Line { line: 1, .. }))),
        "{error}"
    );
    path.write("a:00");
    let error = path.open(Form::Keys).await.unwrap_err();
    assert!(matches!(error, KeyFileError::Content(KeyError::Key(KeyParseError::Words { .. }))), "{error}");
    let hour = Form::Schedule { period: Duration::from_secs(3600), lead };
    path.write(&format!("a:{}", "07".repeat(32)));
    assert!(matches!(path.open(hour).await, Err(KeyFileError::Content(KeyError::Schedule(_)))));
}

/// First visits of a client to a server whose keys are replaced between the visits.
#[tokio::test]
async fn a_listener_takes_new_keys_while_it_runs() {
    let path = link::PathConfig::default();
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
    let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
    let at = "10.0.0.2:80".parse().unwrap();
    let ring = |keys: CookieKeys| Arc::new(keys.ring(Scheme::Linux));
    let mut config = ListenConfig::new(at);
    let pending = Arc::new(PendingLimit::new(16));
    config.fast_open = Some(FastOpenPolicy::new(ring(CookieKeys::new(key(1))), pending));
    let listener = server.listen(config).unwrap();
    let visit = async || {
        let fast = ConnectConfig::default().fast_open(true);
        let (stream, accepted) = tokio::join!(
            client.connect(at, FirstFlight::safely_replayable(b"hello"), &fast),
            listener.accept()
        );
        let mut hello = [0; 5];
        accepted.unwrap().read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        stream.unwrap().outcome()
    };
    let stale = Outcome::Handshake(Reason::StaleOrWrongCredential);
    assert_eq!(visit().await, Outcome::Handshake(Reason::NoCredential));
    assert_eq!(visit().await, Outcome::Accepted);
    // The cookie of the backup key is accepted and replaced, so that the next ring accepts it.
    assert!(listener.set_keys(ring(CookieKeys::new(key(2)).with_backup(key(1)))));
    assert_eq!(visit().await, Outcome::Accepted);
    assert!(listener.keys().set(ring(CookieKeys::new(key(2)))));
    assert_eq!(visit().await, Outcome::Accepted);
    assert!(listener.set_keys(ring(CookieKeys::new(key(3)))));
    assert_eq!(visit().await, stale);
    assert_eq!(visit().await, Outcome::Accepted);
}
