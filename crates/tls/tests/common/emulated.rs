//! Two engines on an emulated path of 100 ms in virtual time, and a server with Fast Open.

use super::{ANSWER, NAME, REQUEST, site};
use firstflight::credential::asap::{
    AsapPolicy, ClientCertificate, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, certify,
};
use firstflight::credential::{
    FastOpenPolicy, KeyRing, PendingLimit, Quarantine, ReplayTable, Scheme, Window,
};
use firstflight::link::{Link, PathConfig, VirtualTime, virtual_time_pair};
use firstflight::record::Published;
use firstflight::wire::asap::CertificateFlags;
use firstflight::{Certified, Client, ConnectConfig, Endpoint, ListenConfig, Listener, Time};
use firstflight_tls::Acceptor;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const RTT: Duration = Duration::from_millis(100);
/// The server's address.
pub(crate) const AT: &str = "10.0.0.2:443";

/// The client's address.
const CLIENT: &str = "10.0.0.1";

/// The verifier that the server trusts as its own.
fn verifier() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

fn identity() -> Identity {
    Identity::name(NAME, 443)
}

/// Takes certificates, as a server that has run for ten minutes.
fn policy(time: &Time, identity: Identity) -> AsapPolicy {
    let trusted = Trusted { own: true, ..Trusted::new(verifier().public()) };
    let (key, began) = (firstflight::random_guard_key().unwrap(), time.unix().as_millis() as u64 - 600_000);
    AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted]).unwrap()),
        identities: [identity].into(),
        guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, 1 << 20, began)),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(16)),
        relayed: None,
        quarantine: Quarantine::default(),
    }
}

/// A certificate for the client. The server is known to execute each request once.
pub(crate) fn certified(time: &Time) -> Certified {
    let (address, key, now) = (CLIENT.parse().unwrap(), PrivateKey::from_seed(&[2; 32]), time.now());
    let (flags, unix) = (CertificateFlags::new(1, true, false).unwrap(), time.unix().as_secs() as u32);
    let body = certify(&verifier(), &key.public(), address, unix, 1800, flags).unwrap();
    let certificate = ClientCertificate::new(body, verifier().public(), address, key, now).unwrap();
    Certified {
        certificate: Arc::new(certificate),
        now,
        identity: identity(),
        known: true,
        once: true,
        mss: Some(1460),
        request_id: None,
    }
}

/// A client by this engine, on a path without other names. With a certificate, of servers that are known to take it.
pub(crate) fn client(engine: &Endpoint, fast_open: bool, certified: Option<&Certified>) -> Client {
    let builder = Client::builder().engine(engine.clone()).fast_open(fast_open);
    let builder = certified.into_iter().fold(builder, |builder, certified| {
        let record = Published::on_ip(certified.mss.unwrap(), &[certified.certificate.verifier().id()]);
        let builder = builder.no_resolver().servers_run_once(certified.once);
        builder.certificate(Arc::clone(&certified.certificate)).record(site(), record.unwrap())
    });
    builder.build().unwrap()
}

/// Both ends of the path.
pub(crate) struct Path {
    pub time: Time,
    pub client: Endpoint,
    server: Endpoint,
    listener: Listener,
}

/// What a link has sent.
pub(crate) type Packets = Arc<Mutex<Vec<Vec<u8>>>>;

/// A link that somebody listens to.
struct Overheard<L>(L, Packets);

impl<L: Link> Link for Overheard<L> {
    fn mtu(&self) -> usize {
        self.0.mtu()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buf)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.1.lock().unwrap().push(packet.to_vec());
        self.0.poll_send(cx, packet)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }
}

impl Path {
    pub(crate) fn new(clock: &VirtualTime) -> Self {
        Self::overheard(clock, NAME).0
    }

    /// The server takes blocks for this name. All that the client sends is overheard.
    pub(crate) fn overheard(clock: &VirtualTime, name: &str) -> (Self, Packets) {
        let path = PathConfig::with_delay(RTT / 2);
        let (a, b) = virtual_time_pair(path.clone(), path, 1, clock).unwrap();
        let time = Time::from(clock.clone());
        let packets = Packets::default();
        let endpoint = |address: &str, link, packets| {
            let config = firstflight::config(vec![address.parse().unwrap()]).unwrap();
            Endpoint::in_time(config, Overheard(link, packets), &time)
        };
        let client = endpoint(CLIENT, a, Arc::clone(&packets));
        let server = endpoint("10.0.0.2", b, Packets::default());
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(AT.parse().unwrap());
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        listen.asap = Some(policy(&time, Identity::name(name, 443)));
        let listener = server.listen(listen).unwrap();
        (Self { time, client, server, listener }, packets)
    }

    /// Answers requests in a task. Returns the client's end.
    pub(crate) fn serve(self, acceptor: Acceptor) -> (Time, Endpoint, ConnectConfig) {
        let Self { time, client, server, listener } = self;
        tokio::spawn(async move {
            while let Ok(stream) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = [0; REQUEST.len()];
                    if stream.read_exact(&mut request).await.is_ok() && request == REQUEST {
                        let _ = stream.write_all(ANSWER).await;
                        let _ = stream.shutdown().await;
                    }
                });
            }
            drop(server);
        });
        (time, client, ConnectConfig::default().fast_open(true))
    }
}
