//! A certificate authority, and a client.
#![allow(clippy::unwrap_used, dead_code, reason = "tests")]

use firstflight::Client;
use firstflight::credential::NetworkId;
use firstflight_tls::rustls::RootCertStore;
use firstflight_tls::{Acceptor, AcceptorBuilder, Connector};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A client that knows its network. Finding that out takes time, and what was learnt before is forgotten then.
pub(crate) fn client() -> Client {
    Client::builder().network(NetworkId([1; 16])).build().unwrap()
}

pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    pub(crate) fn connector(&self, alpn: &[&[u8]]) -> Connector {
        Connector::builder().roots(self.roots()).alpn(alpn.iter().copied()).build().unwrap()
    }

    pub(crate) fn acceptor(&self, name: &str, alpn: &[&[u8]]) -> Acceptor {
        self.server(name, alpn).build().unwrap()
    }

    pub(crate) fn server(&self, name: &str, alpn: &[&[u8]]) -> AcceptorBuilder {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let chain = vec![params.signed_by(&key, &self.0).unwrap().der().clone()];
        let key = key.serialize_der().try_into().unwrap();
        Acceptor::builder().certificate(chain, key).alpn(alpn.iter().copied())
    }
}
