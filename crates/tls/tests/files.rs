//! Certificates in files, and how they are followed.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{Ca, Made, NAME, site, wire};
use firstflight::FirstFlight;
use firstflight_tls::{Acceptor, ConfigError, Connector, TestCertificate};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

/// Takes any certificate, and verifies signatures of these schemes.
#[derive(Debug)]
struct Takes(Vec<SignatureScheme>);

impl ServerCertVerifier for Takes {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        unreachable!("TLS 1.3 only")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        verify_tls13_signature(message, certificate, signed, &provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

/// The certificate that a client with these schemes gets. An address has no place in a ClientHello.
async fn shown(acceptor: &Acceptor, schemes: &[SignatureScheme], name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Takes(schemes.to_vec())))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let (mut ours, theirs) = wire();
    let visit = async {
        while client.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            ours.write_all(&bytes).await.unwrap();
            let mut read = [0; 4096];
            let count = ours.read(&mut read).await.unwrap();
            client.read_tls(&mut &read[..count]).unwrap();
            client.process_new_packets().unwrap();
        }
        client.peer_certificates().unwrap()[0].to_vec()
    };
    tokio::join!(visit, acceptor.accept_over(theirs)).0
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

/// Replaces files as Nix, OSTree, `rsync -t` and `cp -p` do: size and time stay.
#[tokio::test]
async fn a_new_certificate_of_the_same_size_and_time_is_used() {
    let ca = Ca::new();
    let old = ca.certify(NAME);
    let length = |made: &Made| (made.certificate.pem().len(), made.key.serialize_pem().len());
    // Signatures of ECDSA differ in length.
    let new = loop {
        let made = ca.certify(NAME);
        if length(&made) == length(&old) {
            break made;
        }
    };
    let files = Files::new(&old);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let age =
        |path: &Path| fs::File::options().append(true).open(path).unwrap().set_modified(long_ago).unwrap();
    [&files.chain, &files.key].into_iter().for_each(|path| age(path));
    let acceptor = Acceptor::builder().files(&files.chain, &files.key).build().unwrap();
    assert_eq!(served_serial(&ca, &acceptor).await, *old.chain()[0]);
    let other = Files::new(&new);
    for (from, to) in [(&other.chain, &files.chain), (&other.key, &files.key)] {
        age(from);
        fs::rename(from, to).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(served_serial(&ca, &acceptor).await, *new.chain()[0]);
}

#[tokio::test]
async fn files_that_are_read_again_change_nothing_before_all_are_right() {
    let ca = Ca::new();
    let (old, new, wrong) = (ca.certify(NAME), ca.certify(NAME), ca.certify("www.example.net"));
    let (files, others) = (Files::new(&old), Files::new(&wrong));
    let builder = Acceptor::builder().files(&files.chain, &files.key).files(&others.chain, &others.key);
    let acceptor = builder.build().unwrap();
    files.write(&new);
    fs::write(&others.key, "").unwrap();
    let error = acceptor.certificates().read_again().unwrap_err().to_string();
    assert_eq!(error, format!("{} has no private key in PEM", others.key.display()));
    others.write(&wrong);
    let read = acceptor.certificates().read_again().unwrap();
    assert_eq!(served_serial(&ca, &acceptor).await, *old.chain()[0]);
    read.commit();
    assert_eq!(served_serial(&ca, &acceptor).await, *new.chain()[0]);
}

#[test]
fn what_a_certificate_says_of_its_time_is_told() {
    let ca = Ca::new();
    let files = Files::new(&ca.certify(NAME));
    let acceptor = Acceptor::builder().files(&files.chain, &files.key).build().unwrap();
    let [served] = acceptor.certificates().now().try_into().unwrap();
    assert_eq!(served.chain.as_deref(), Some(files.chain.as_path()));
    assert!(served.begins < served.ends);
    assert_eq!(served.problem(served.begins), None);
    assert_eq!(served.problem(served.ends), None);
    let second = Duration::from_secs(1);
    assert!(served.problem(served.ends + second).unwrap().contains("renew the certificate"));
    assert!(served.problem(served.begins - second).unwrap().contains("clock"));
}

/// One name with a certificate of ECDSA and one of RSA, as many sites have them.
#[tokio::test]
async fn a_client_gets_the_certificate_that_it_can_verify() {
    let ca = Ca::new();
    let ecdsa = ca.certify(NAME);
    let rsa = ca.certify_rsa(NAME);
    let (first, second) = (Files::new(&ecdsa), Files::new(&rsa));
    let acceptor = Acceptor::builder()
        .files(&first.chain, &first.key)
        .files(&second.chain, &second.key)
        .build()
        .unwrap();
    let all = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256];
    for name in [NAME, "192.0.2.1"] {
        assert_eq!(shown(&acceptor, &all, name).await, *ecdsa.chain()[0], "{name}");
        assert_eq!(shown(&acceptor, &all[..1], name).await, *rsa.chain()[0], "{name}");
    }
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
    for encrypted in
        ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED"]
    {
        let end = encrypted.lines().next().unwrap().replace("BEGIN", "END");
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
        write_secret(&files.key, &format!("{encrypted}\n\nMIGH\n{end}\n"));
        let (file, text) = problem(&files.chain, &files.key);
        assert!(file == files.key && text.contains("openssl pkey"), "{text}");
    }
    // An editor of Windows has touched both.
    let marked = |text: String| format!("\u{feff}{}", text.replace('\n', "\r\n"));
    fs::write(&files.chain, marked(one.certificate.pem())).unwrap();
    write_secret(&files.key, &marked(one.key.serialize_pem()));
    Acceptor::builder().files(&files.chain, &files.key).build().unwrap();
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

#[tokio::test]
async fn a_test_certificate_is_accepted_by_who_trusts_it_and_by_nobody_else() {
    let made = TestCertificate::new(["www.example.com"], Duration::from_secs(600)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("test.pem"), dir.path().join("test.key"));
    fs::write(&chain, made.certificate()).unwrap();
    write_secret(&key, made.key());
    let acceptor = Acceptor::builder().files(&chain, &key).build().unwrap();
    let other = dir.path().join("other.pem");
    let second = TestCertificate::new(["www.example.com"], Duration::from_secs(600)).unwrap();
    fs::write(&other, second.certificate()).unwrap();
    for (trusted, site, accepted) in [
        (&chain, "www.example.com:443", true),
        (&other, "www.example.com:443", false),
        (&chain, "www.example.org:443", false),
    ] {
        let connector = Connector::builder().ca_file(trusted).unwrap().build().unwrap();
        let (ours, theirs) = wire();
        let site = site.parse().unwrap();
        let (ours, _theirs) = tokio::join!(
            connector.connect_over(ours, &site, FirstFlight::empty()),
            acceptor.accept_over(theirs)
        );
        assert_eq!(ours.is_ok(), accepted, "{trusted:?} {site}: {ours:?}");
    }
}

#[tokio::test]
async fn any_certificate_will_do_if_the_caller_says_so() {
    let (ca, site) = (Ca::new(), site());
    let acceptor = ca.acceptor().build().unwrap();
    let connector = Connector::builder().trust_any_certificate().build().unwrap();
    let (ours, theirs) = wire();
    let (ours, _theirs) =
        tokio::join!(connector.connect_over(ours, &site, FirstFlight::empty()), acceptor.accept_over(theirs));
    ours.unwrap();
}
