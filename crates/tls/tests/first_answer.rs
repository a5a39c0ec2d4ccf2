//! How long the server's first answer to a ClientHello with X25519 is, with certificates that are compressed (RFC 8879) and without.
//! `cargo test -p firstflight-tls --test tls first_answer:: -- --nocapture` prints the sizes.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::{NAME, Recorded, safe, site, wire};
use firstflight_tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use firstflight_tls::rustls::pki_types::CertificateDer;
use firstflight_tls::rustls::{ClientConfig, ClientConnection, RootCertStore, version};
use firstflight_tls::{Acceptor, Connector, Hybrid};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CrlDistributionPoint, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    RsaKeySize,
};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A chain, its key in PKCS #8, and the authority that it leads to.
struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
    roots: RootCertStore,
}

fn issuer(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CountryName, "US");
    params.distinguished_name.push(DnType::OrganizationName, "An Authority of the Internet");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// An extension of its OID and DER.
fn extension(oid: &[u64], der: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(oid, der.to_vec())
}

/// As public authorities issue them: an ECDSA key under an intermediate certificate that an RSA key has signed, with the
/// extensions that they add. Two signed certificate timestamps are random bytes, as long as usual.
fn public_chain() -> Chain {
    let root_key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096).unwrap();
    let mut root = issuer("Root Authority 1");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(root, root_key).unwrap();
    let url = b"http://intermediate.authority.example/";
    // One access description: caIssuers and a URL.
    let mut access = vec![0x30, url.len() as u8 + 14, 0x30, url.len() as u8 + 12, 6, 8];
    access.extend([0x2b, 6, 1, 5, 5, 7, 48, 2, 0x86, url.len() as u8]);
    access.extend(url);
    let policies = [0x30, 0x0a, 0x30, 8, 6, 6, 0x67, 0x81, 0x0c, 1, 2, 1];
    let mut between = issuer("Intermediate 7");
    between.custom_extensions =
        vec![extension(&[1, 3, 6, 1, 5, 5, 7, 1, 1], &access), extension(&[2, 5, 29, 32], &policies)];
    between.crl_distribution_points =
        vec![CrlDistributionPoint { uris: vec!["http://root.authority.example/1.crl".into()] }];
    let between_key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let between = CertifiedIssuer::signed_by(between, between_key, &root).unwrap();
    let mut timestamps = vec![0; 246];
    firstflight::random_bytes(&mut timestamps).unwrap();
    timestamps[..5].copy_from_slice(&[4, 0x81, 0xf3, 0, 0xf1]);
    let mut leaf = CertificateParams::new([NAME.to_owned(), "example.com".to_owned()]).unwrap();
    leaf.distinguished_name.push(DnType::CommonName, NAME);
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    leaf.use_authority_key_identifier_extension = true;
    leaf.custom_extensions = vec![
        extension(&[1, 3, 6, 1, 5, 5, 7, 1, 1], &access),
        extension(&[2, 5, 29, 32], &policies),
        extension(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], &timestamps),
    ];
    leaf.crl_distribution_points =
        vec![CrlDistributionPoint { uris: vec!["http://intermediate.authority.example/71.crl".into()] }];
    let key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&key, &between).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    Chain { certificates: vec![leaf.der().clone(), between.der().clone()], key: key.serialize_der(), roots }
}

/// One certificate, signed by the authority itself.
fn short_chain() -> Chain {
    let ca = common::Ca::new();
    let made = ca.certify(NAME);
    Chain { certificates: made.chain(), key: made.key.serialize_der(), roots: ca.roots() }
}

impl Chain {
    fn acceptor(&self) -> Acceptor {
        let key = self.key.clone().try_into().unwrap();
        Acceptor::builder().certificate(self.certificates.clone(), key).build().unwrap()
    }

    fn connector(&self) -> Connector {
        Connector::builder().roots(self.roots.clone()).hybrid(Hybrid::Never).build().unwrap()
    }

    /// A client of rustls alone, which does not take compressed certificates.
    fn stock(&self) -> ClientConnection {
        let kx_groups = vec![aws_lc_rs::kx_group::X25519];
        let provider = CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() };
        let config = ClientConfig::builder_with_provider(Arc::new(provider));
        let config = config.with_protocol_versions(&[&version::TLS13]).unwrap();
        let mut config = config.with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.cert_decompressors = Vec::new();
        ClientConnection::new(Arc::new(config), NAME.try_into().unwrap()).unwrap()
    }
}

fn sent(io: &Recorded) -> usize {
    io.writes.lock().unwrap().iter().map(Vec::len).sum()
}

/// The length of the answer to our client, which verifies it.
async fn with(chain: &Chain) -> usize {
    let (ours, theirs) = wire();
    let (connector, site, acceptor) = (chain.connector(), site(), chain.acceptor());
    let (ours, theirs) =
        tokio::join!(connector.connect_over(ours, &site, safe()), acceptor.accept_over(theirs));
    assert_eq!(ours.unwrap().peer_certificates().unwrap(), chain.certificates);
    sent(theirs.unwrap().io())
}

/// The length of the answer to another client.
async fn without(chain: &Chain) -> usize {
    let (mut ours, theirs) = wire();
    let mut client = chain.stock();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    ours.write_all(&hello).await.unwrap();
    let served = chain.acceptor().accept_over(theirs).await.unwrap();
    let mut answer = vec![0; sent(served.io())];
    ours.read_exact(&mut answer).await.unwrap();
    let mut rest = answer.as_slice();
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(!client.is_handshaking() && client.peer_certificates().unwrap() == chain.certificates);
    answer.len()
}

#[tokio::test]
async fn compressed_certificates_make_the_first_answer_shorter() {
    for (name, chain) in [("one certificate", short_chain()), ("leaf and intermediate", public_chain())] {
        let bytes: usize = chain.certificates.iter().map(|certificate| certificate.len()).sum();
        let (without, with) = (without(&chain).await, with(&chain).await);
        println!("{name}: {bytes} B of certificates, first answer {without} B, compressed {with} B");
        assert!(with < without);
    }
}
