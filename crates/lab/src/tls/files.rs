//! An authority for the tests, and certificates by it.

use super::{Failure, NAME};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use std::path::Path;

/// The extension with timestamps of certificate transparency (RFC 6962 §3.3).
const SIGNED_TIMESTAMPS: [u64; 10] = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// Writes `ca.pem`, `chain.pem` and `key.pem`, and `wrong-chain.pem` and `wrong-key.pem` of another authority. The chains
/// have an intermediate authority, as those of public servers. Random bytes, as in the logs' signatures of public
/// certificates, make the server's so long that both have `chain` bytes.
pub fn write(directory: &Path, chain: usize) -> Result<String, Failure> {
    let (root, made) = make("root", chain)?;
    std::fs::write(directory.join("ca.pem"), root)?;
    let (_, wrong) = make("another root", chain)?;
    for (made, prefix) in [(&made, ""), (&wrong, "wrong-")] {
        std::fs::write(directory.join(format!("{prefix}chain.pem")), &made.chain)?;
        // Readers of key files ask for this mode.
        write_secret(&directory.join(format!("{prefix}key.pem")), &made.key)?;
    }
    Ok(format!("chain {} bytes", made.bytes))
}

/// Bytes of timestamps that every certificate has.
const SHORTEST: u16 = 256;

/// A chain of two certificates and the key of the first one, in PEM.
pub struct MadeChain {
    pub chain: String,
    pub key: String,
    /// Length of both certificates in DER.
    bytes: usize,
}

/// An authority of this name, in PEM, and a chain of this many bytes by it.
pub fn make(name: &str, chain: usize) -> Result<(String, MadeChain), Failure> {
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok::<_, Failure>(params)
    };
    let root = CertifiedIssuer::self_signed(authority(name)?, KeyPair::generate()?)?;
    let issuer = CertifiedIssuer::signed_by(authority("intermediate")?, KeyPair::generate()?, &root)?;
    let key = KeyPair::generate()?;
    let leaf = |filler: u16| {
        let mut params = CertificateParams::new([NAME.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut bytes = vec![0; usize::from(filler)];
        firstflight::random_bytes(&mut bytes)?;
        // An OCTET STRING in DER, whose length has two bytes.
        let [high, low] = filler.to_be_bytes();
        let list = [&[4, 0x82, high, low], bytes.as_slice()].concat();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&SIGNED_TIMESTAMPS, list)];
        Ok::<_, Failure>(params.signed_by(&key, &issuer)?)
    };
    let shortest = leaf(SHORTEST)?.der().len() + issuer.der().len() - usize::from(SHORTEST);
    let filler = u16::try_from(chain.saturating_sub(shortest)).unwrap_or(u16::MAX);
    let leaf = leaf(filler.max(SHORTEST))?;
    let bytes = leaf.der().len() + issuer.der().len();
    let chain = [leaf.pem(), issuer.pem()].concat();
    Ok((root.pem(), MadeChain { chain, key: key.serialize_pem(), bytes }))
}

fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
