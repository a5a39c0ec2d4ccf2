//! Tests of certificates in files.

use super::*;
use firstflight_credential::asap::certify;
use firstflight_wire::asap::CertificateFlags;
use std::os::unix::fs::PermissionsExt;

const HOME: NetworkId = NetworkId([1; 16]);
const CAFE: NetworkId = NetworkId([2; 16]);
const DAY: u32 = 86_400;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

fn certificate(client: u8, lasts: u32, obtained: Instant) -> ClientCertificate {
    let (verifier, own, address) = (key(1), key(client), "203.0.113.5".parse().unwrap());
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier, &own.public(), address, 1_767_225_600, lasts, flags).unwrap();
    ClientCertificate::new(body, verifier.public(), address, own, obtained).unwrap()
}

fn now() -> Instant {
    boot_clock().unwrap()
}

struct KeptFile {
    directory: tempfile::TempDir,
}

impl KeptFile {
    fn new(lasts: u32, obtained: Instant) -> Self {
        let kept = Self { directory: tempfile::tempdir().unwrap() };
        let asked = Some("198.51.100.1:443".parse().unwrap());
        KeptCertificate::create(&kept.path(), certificate(2, lasts, obtained), HOME, asked).unwrap();
        kept
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("certificate")
    }

    fn open(&self) -> Result<KeptCertificate, KeptError> {
        KeptCertificate::open(&self.path())
    }

    /// Changes the text of the file.
    fn replace(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path()).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(self.path(), text.replace(from, to)).unwrap();
    }
}

fn refused<T>(result: Result<T, KeptError>) -> NotUsed {
    match result.map(drop).unwrap_err() {
        KeptError::Refused(_, why) => why,
        other => panic!("{other}"),
    }
}

#[test]
fn it_is_one_sites_from_its_first_use_on() {
    let kept = KeptFile::new(DAY, now());
    assert_eq!(std::fs::metadata(kept.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let (a, b) = (PoolSite::new("a.example"), PoolSite::new("b.example"));
    let mut open = kept.open().unwrap();
    assert_eq!(open.site(), None);
    let shown = open.use_for(&a, HOME).unwrap();
    assert_eq!(shown.key().public(), key(2).public());
    assert_eq!(refused(open.use_for(&b, HOME)), NotUsed::OtherSite(a.clone()));
    drop(open);
    let mut again = kept.open().unwrap();
    assert_eq!(again.site(), Some(&a));
    assert_eq!(refused(again.use_for(&b, HOME)), NotUsed::OtherSite(a.clone()));
    assert!(again.use_for(&a, HOME).is_ok());
}

#[test]
fn another_network_another_start_and_the_end_are_refused() {
    let kept = KeptFile::new(DAY, now());
    let site = PoolSite::new("a.example");
    let mut open = kept.open().unwrap();
    assert_eq!(refused(open.use_for(&site, CAFE)), NotUsed::OtherNetwork);
    assert_eq!(refused(open.use_for(&site, NetworkId::UNKNOWN)), NotUsed::UnknownNetwork);
    assert_eq!(open.site(), None, "it was shown to nobody");
    drop(open);
    let boot = boot_id();
    kept.replace(&boot, "another");
    assert_eq!(refused(kept.open()), NotUsed::OtherBoot);
    kept.replace("another", &boot);
    // The clock begins again at every start, so its times may be ahead.
    let later = KeptFile::new(DAY, now() + Duration::from_secs(3600));
    assert_eq!(refused(later.open()), NotUsed::OtherBoot);
    let over = KeptFile::new(100, now() - Duration::from_secs(90));
    assert_eq!(refused(over.open()), NotUsed::Over);
    // Another address is another certificate, which nobody signed.
    kept.replace("203.0.113.5", "203.0.113.6");
    assert_eq!(refused(kept.open()), NotUsed::Damaged);
}

#[test]
fn it_is_renewed_in_place_when_it_is_due() {
    let kept = KeptFile::new(100, now() - Duration::from_secs(80));
    let site = PoolSite::new("a.example");
    let mut open = kept.open().unwrap();
    open.use_for(&site, HOME).unwrap();
    let asked = open.due().unwrap();
    assert_eq!((asked.address.to_string().as_str(), asked.key), ("198.51.100.1:443", key(1).public()));
    open.renew(certificate(3, DAY, now())).unwrap();
    assert_eq!(open.due(), None);
    drop(open);
    let mut again = kept.open().unwrap();
    assert_eq!(again.use_for(&site, HOME).unwrap().key().public(), key(3).public());
    assert_eq!(refused(again.use_for(&PoolSite::new("b.example"), HOME)), NotUsed::OtherSite(site));
    assert_eq!(std::fs::metadata(kept.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn one_program_uses_it_and_nobody_else_may_read_it() {
    let kept = KeptFile::new(DAY, now());
    let open = kept.open().unwrap();
    assert!(matches!(kept.open(), Err(KeptError::Held(_))));
    drop(open);
    std::fs::set_permissions(kept.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = kept.open().unwrap_err();
    assert!(matches!(error, KeptError::Open(..)) && error.to_string().contains("chmod 600"), "{error}");
    std::fs::set_permissions(kept.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    // A file of a pool is no such file, and no message quotes the key.
    let secret = to_hex(&*key(2).to_seed());
    for bad in ["", "{", "{\"version\":1}", &format!("{{\"version\":2,\"key\":\"{}\"}}", &*secret)] {
        std::fs::write(kept.path(), bad).unwrap();
        let error = kept.open().unwrap_err();
        assert!(matches!(error, KeptError::Format(..)), "{bad}");
        assert!(!error.to_string().contains(&*secret));
    }
    std::fs::remove_file(kept.path()).unwrap();
    assert!(matches!(kept.open(), Err(KeptError::Read(..))));
}
