use super::*;
use std::os::unix::fs::PermissionsExt;

/// Whatever its mode, what is told is what helps.
#[test]
fn a_certificate_is_not_told_to_be_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pem");
    let told = |text: &str, mode| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        private_key(&file).unwrap_err().to_string()
    };
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for mode in [0o644, 0o600] {
        let told = told(certificate, mode);
        assert!(told.contains("has a certificate and no private key"), "{told}");
    }
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(told(&format!("{certificate}{key}"), 0o644).contains("chmod 600"));
    assert!(told("nothing", 0o600).contains("has no private key in PEM"));
}
