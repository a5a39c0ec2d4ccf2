//! Certificates in files, and how they are followed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Ca, Made, NAME, site, wire};
use firstflight::FirstFlight;
use firstflight_tls::{Acceptor, ConfigError, Connector};
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Files {
    _dir: tempfile::TempDir,
    chain: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(made: &Made) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = Self { chain: dir.path().join("chain.pem"), key: dir.path().join("key.pem"), _dir: dir };
        files.write(made);
        files
    }

    fn write(&self, made: &Made) {
        fs::write(&self.chain, made.certificate.pem()).unwrap();
        write_secret(&self.key, &made.key.serialize_pem());
    }
}

fn write_secret(path: &Path, text: &str) {
    use std::io::Write;
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

async fn served_serial(ca: &Ca, acceptor: &Acceptor) -> Vec<u8> {
    let connector = ca.connector().build().unwrap();
    let (ours, theirs) = wire();
    let site = site();
    let (ours, _theirs) =
        tokio::join!(connector.connect_over(ours, &site, FirstFlight::empty()), acceptor.accept_over(theirs));
    ours.unwrap().peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_new_certificate_is_used_and_a_broken_one_is_not() {
    let ca = Ca::new();
    let (old, new) = (ca.certify(NAME), ca.certify(NAME));
    let files = Files::new(&old);
    let acceptor = Acceptor::builder().files(&files.chain, &files.key).build().unwrap();
    assert_eq!(served_serial(&ca, &acceptor).await, *old.chain()[0]);

    fs::write(&files.chain, "nothing").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(served_serial(&ca, &acceptor).await, *old.chain()[0]);
    // The chain alone is new, so the key does not fit.
    fs::write(&files.chain, new.certificate.pem()).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(served_serial(&ca, &acceptor).await, *old.chain()[0]);
    files.write(&new);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(served_serial(&ca, &acceptor).await, *new.chain()[0]);
}

#[tokio::test]
async fn each_name_gets_its_certificate() {
    let ca = Ca::new();
    let (other, ours) = (ca.certify("www.example.net"), ca.certify(NAME));
    let (first, second) = (Files::new(&other), Files::new(&ours));
    let acceptor = Acceptor::builder()
        .files(&first.chain, &first.key)
        .files(&second.chain, &second.key)
        .build()
        .unwrap();
    assert_eq!(served_serial(&ca, &acceptor).await, *ours.chain()[0]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let ca = Ca::new();
    let (one, other) = (ca.certify(NAME), ca.certify(NAME));
    let (files, others) = (Files::new(&one), Files::new(&other));
    let problem = |chain: &Path, key: &Path| match Acceptor::builder().files(chain, key).build() {
        Err(ConfigError::File { file, problem }) => (file, problem),
        other => panic!("{other:?}"),
    };
    let (file, text) = problem(&files.chain, &others.key);
    assert_eq!((file, text), (others.key.clone(), format!("is not the key of {}", files.chain.display())));
    assert_eq!(problem(&files.key, &files.key).1, "has no certificate in PEM");
    assert_eq!(problem(&files.chain, &files.chain).0, files.chain);
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).unwrap();
    let (file, text) = problem(&files.chain, &files.key);
    assert!(file == files.key && text.contains("0644"), "{text}");
    let missing = Path::new("/nowhere/chain.pem");
    assert_eq!(problem(missing, &files.key).0, missing);
    assert!(Connector::builder().ca_file(missing).is_err());
}

#[tokio::test]
async fn the_authorities_of_a_file_are_trusted() {
    let (ca, dir) = (Ca::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("ca.pem");
    fs::write(&file, ca.pem()).unwrap();
    let (acceptor, connector) =
        (ca.acceptor().build().unwrap(), Connector::builder().ca_file(&file).unwrap().build().unwrap());
    let (ours, theirs) = wire();
    let site = site();
    let (ours, _theirs) =
        tokio::join!(connector.connect_over(ours, &site, FirstFlight::empty()), acceptor.accept_over(theirs));
    ours.unwrap();
}
