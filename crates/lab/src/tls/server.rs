//! The servers at one end of the wire.

use super::{FOREIGN, Failure, NAME, PORTS, QUIC, REFUSES, VERIFIER, WRONG_CERTIFICATE, at, identity, quic};
use crate::certified::verifier;
use clap::Args;
use firstflight::credential::asap::{AsapPolicy, GuardDomain, PrivateKey, TrustStore, Trusted};
use firstflight::credential::{
    FastOpenPolicy, KeyRing, PendingLimit, Quarantine, ReplayTable, Scheme, Window,
};
use firstflight::link::{Tun, TunConfig};
use firstflight::verifier::{Config, Issuer, Limits, Rate, Service, StreamLimits};
use firstflight::{Endpoint, ListenConfig, Listener, Server, Stream};
use firstflight_tls::seal::{KeySet, SealKey};
use firstflight_tls::{Acceptor, HTTP_1_1, SealServer, TlsStream};
use serde_json::json;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The file with the record of the seal keys (SvcParamKey 65301).
pub const RECORD: &str = "seal-record";
/// The longest request head, bytes.
const HEAD: usize = 16 << 10;
/// Bytes of an answer's body.
const BODY: usize = 1000;
/// How many first flights may wait.
const PENDING: u32 = 256;

/// The servers' addresses and files.
#[derive(Debug, Args)]
pub struct Serve {
    /// The directory of `files`
    #[arg(long)]
    files: PathBuf,
    /// The address of the kernel's servers
    #[arg(long)]
    ip: IpAddr,
    /// The kernel's address on the TUN device, in a network of 24 bits
    #[arg(long)]
    tun_host: IpAddr,
    /// The engine's address there
    #[arg(long)]
    tun_ip: IpAddr,
}

struct Shared {
    seal: SealServer,
    keys: Arc<KeyRing>,
    /// Of the server that refuses.
    other_keys: Arc<KeyRing>,
    /// How often each request ran, by its path.
    runs: Mutex<HashMap<String, u32>>,
}

/// Runs until standard input ends.
pub fn run(options: &Serve) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let _quic = runtime.block_on(serve(options))?;
    crate::output::line(&"ready")?;
    // The script closes it.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(String::new())
}

async fn serve(options: &Serve) -> Result<quinn::Endpoint, Failure> {
    let shared = Arc::new(Shared::new()?);
    let record = shared.seal.record().ok_or("no seal key")?;
    std::fs::write(options.files.join(RECORD), record.to_bytes())?;
    certify(at(options.ip, VERIFIER)).await?;
    let tun = TunConfig::default().name("ff0".to_owned()).host(vec![(options.tun_host, 24)]);
    let mut config = firstflight::config(vec![options.tun_ip])?;
    config.tcp.set_nodelay(true);
    let engine = Endpoint::new(config, Tun::create(tun)?);
    for port in PORTS {
        let acceptor = shared.acceptor(&options.files, port)?;
        let (by_system, on_tun) = shared.listen(&engine, at(options.ip, port), options.tun_ip)?;
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        let (tls, tun_tls) = (acceptor.clone(), acceptor);
        tokio::spawn(async move {
            loop {
                one.take(by_system.accept().await, &tls);
            }
        });
        tokio::spawn(async move {
            loop {
                other.take(on_tun.accept().await, &tun_tls);
            }
        });
    }
    quic::serve(&options.files, at(options.ip, QUIC))
}

impl Shared {
    fn new() -> Result<Self, Failure> {
        let mut keys = KeySet::new(NAME.parse()?);
        let (mut key, now) = ([0; 32], firstflight::unix_ms() / 1000);
        firstflight::random_bytes(&mut key)?;
        let (id, key) = NonZeroU8::new(7).zip(SealKey::from_bytes(&key)).ok_or("a key")?;
        keys.add(id, key, u32::try_from(now + 86_400)?, now)?;
        let seal = SealServer::builder(keys, super::PORT).first_start(true).build()?;
        let ring = || Ok::<_, Failure>(Arc::new(KeyRing::new(Scheme::Linux, firstflight::random_key()?)));
        Ok(Self { seal, keys: ring()?, other_keys: ring()?, runs: Mutex::default() })
    }

    fn acceptor(&self, files: &Path, port: u16) -> Result<Acceptor, Failure> {
        let prefix = if port == WRONG_CERTIFICATE { "wrong-" } else { "" };
        let [chain, key] = ["chain", "key"].map(|name| files.join(format!("{prefix}{name}.pem")));
        let builder = Acceptor::builder().files(chain, key).alpn([HTTP_1_1]);
        Ok(builder.seal(self.seal.at_port(port)).build()?)
    }

    /// The listeners of a port: by the kernel's TCP and in UDP, and by the engine.
    fn listen(
        &self,
        engine: &Endpoint,
        address: SocketAddr,
        tun_ip: IpAddr,
    ) -> Result<(Server, Listener), Failure> {
        let port = address.port();
        let keys = if port == REFUSES { &self.other_keys } else { &self.keys };
        let server = Server::builder().address(address).keys(Arc::clone(keys)).pending(PENDING);
        let server = server.udp_port(port).asap(policy(port)?).bind()?;
        let mut listen = ListenConfig::new(at(tun_ip, port));
        let pending = Arc::new(PendingLimit::new(PENDING));
        listen.fast_open = Some(FastOpenPolicy::new(Arc::clone(keys), pending));
        listen.asap = Some(policy(port)?);
        Ok((server, engine.listen(listen)?))
    }

    fn take(self: &Arc<Self>, accepted: std::io::Result<Stream>, acceptor: &Acceptor) {
        let (shared, acceptor) = (Arc::clone(self), acceptor.clone());
        tokio::spawn(async move {
            let served = async {
                let mut stream = acceptor.accept(accepted?).await?;
                shared.answer(&mut stream).await
            };
            if let Err(error) = served.await {
                crate::output::complain(&format_args!("{error}"));
            }
        });
    }

    /// Answers a request with what the server knows about it.
    async fn answer(&self, stream: &mut TlsStream<Stream>) -> Result<(), Failure> {
        let (mut head, mut piece) = (Vec::new(), [0; 2048]);
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
            match stream.read(&mut piece).await? {
                0 => return Ok(()),
                count => head.extend_from_slice(&piece[..count]),
            }
        }
        let head = String::from_utf8(head)?;
        let path = head.split(' ').nth(1).ok_or("no path")?.to_owned();
        let runs = {
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let count = runs.entry(path).or_default();
            *count += 1;
            *count
        };
        let sealed = stream.sealed_info().map(
            |info| json!({ "early": info.ran_early, "why": format!("{:?}", info.why), "replayable": info.replayable }),
        );
        let known = json!({
            // It ran before the client's Finished was verified.
            "early": stream.is_early(),
            "early_bytes": stream.early_bytes(),
            "syn_bytes": stream.io().early_bytes(),
            "block": stream.io().accepted_block().is_some(),
            "sealed": sealed,
            "runs": runs,
        });
        let body = format!("{known:<BODY$}");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
        Ok(stream.shutdown().await?)
    }
}

/// Trusts the verifier, as a server that has run for ten minutes. The server that refuses trusts another one.
fn policy(port: u16) -> Result<AsapPolicy, Failure> {
    let key = if port == REFUSES { PrivateKey::from_seed(&[2; 32]) } else { verifier() };
    let trusted = Trusted { own: port != FOREIGN, ..Trusted::new(key.public()) };
    let key = firstflight::random_guard_key()?;
    let guard = ReplayTable::new(key, Window::REQUESTS, 1 << 20, firstflight::unix_ms() - 600_000);
    Ok(AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted])?),
        identities: [identity(port)].into(),
        guard: Arc::new(guard),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(PENDING)),
        relayed: None,
        quarantine: Quarantine::default(),
    })
}

/// Certifies addresses of private networks, as often as they like.
async fn certify(address: SocketAddr) -> Result<(), Failure> {
    let many = Rate { burst: 100_000, per_minute: 100_000 };
    let config = Config::default()
        .issuer(Some(Issuer::new(verifier())))
        .allowed(vec!["10.0.0.0/8".parse()?])
        .limits(Limits::default().v4(many));
    let service = Service::bind(config, &[address], StreamLimits::per_client(64)).await?;
    tokio::spawn(service.run(std::future::pending()));
    Ok(())
}

/// How long an answer is awaited.
pub const PATIENCE: Duration = Duration::from_secs(20);
