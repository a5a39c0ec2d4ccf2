//! How a member reaches its store: TLS, certificates of both sides, IPv6, and a user whose password comes from a file.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod questions;
mod server;

use firstflight::SharedStore;
use firstflight::credential::{JobRequest, JobResult};
use firstflight_redis::{Access, AccessError, ConnectError, Options, RedisStore};
use questions::{ACCEPTED, REPEATED};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use server::Redis;
use server::tap::Tap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const SECRET: &str = "hunter2-and-more";

fn guard(id: u8) -> JobRequest {
    JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms: 0,
        unix_ms: None,
        checked: true,
    }
}

fn with(access: Access) -> Options {
    Options { within: Duration::from_secs(10), access, ..Options::default() }
}

/// An authority, and what it signed.
struct Authority {
    files: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Different authorities with one name would differ in their signatures only.
        params.distinguished_name.push(DnType::CommonName, files.path().display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(files.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { files, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key`, for these names and IP addresses.
    fn sign(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, file);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let (chain, secret) = (self.file(&format!("{file}.pem")), self.file(&format!("{file}.key")));
        fs::write(&chain, signed.pem()).unwrap();
        write_secret(&secret, &key.serialize_pem());
        (chain, secret)
    }

    fn access(&self) -> Access {
        Access { authorities: Some(self.file("ca.pem")), ..Access::default() }
    }

    /// A Redis with a certificate for these names. Returns its port for TLS, too.
    fn redis(&self, names: &[&str], more: &[&str]) -> Option<(Redis, u16)> {
        if !server::process::has_tls() {
            println!("skipped: this server was built without TLS");
            return None;
        }
        let (chain, key) = self.sign("server", names);
        let (ca, port) = (self.file("ca.pem"), server::process::free_port());
        let (chain, key, ca) =
            (chain.display().to_string(), key.display().to_string(), ca.display().to_string());
        let port_text = port.to_string();
        let mut options = vec!["--tls-port", &port_text, "--bind", "127.0.0.1", "-::1"];
        options.extend(["--tls-cert-file", &chain, "--tls-key-file", &key, "--tls-ca-cert-file", &ca]);
        options.extend(more);
        Redis::start(&options).map(|redis| (redis, port))
    }
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// What the library logs in this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn the_certificate_is_checked_by_name_and_by_authority() {
    let authority = Authority::new();
    let Some((redis, port)) = authority.redis(&["localhost", "::1"], &["--tls-auth-clients", "no"]) else {
        return;
    };
    let by = |host: &str| format!("rediss://{host}:{port}");
    for (id, host) in [(1, "localhost"), (2, "[::1]")] {
        let store = RedisStore::connect(&by(host), with(authority.access())).await.unwrap();
        assert_eq!(store.ask(guard(id)).await, ACCEPTED, "{host}");
        assert_eq!(store.ask(guard(id)).await, REPEATED, "{host}");
    }
    let other = Authority::new();
    let wrong_name = (by("127.0.0.1"), authority.access(), "certificate not valid for name");
    for (url, access, expected) in [
        wrong_name,
        (by("localhost"), other.access(), "UnknownIssuer"),
        // The operating system does not know this authority either.
        (by("localhost"), Access::default(), "UnknownIssuer"),
    ] {
        let log = Log::default();
        let listening = log.listen();
        let store = RedisStore::connect(&url, with(access)).await.unwrap();
        drop(listening);
        assert!(!store.is_connected(), "{url}");
        assert!(log.text().contains(expected), "{}", log.text());
    }
    drop(redis);
}

#[tokio::test]
async fn a_store_that_asks_for_a_certificate_gets_it() {
    let authority = Authority::new();
    let Some((_redis, port)) = authority.redis(&["localhost"], &["--tls-auth-clients", "yes"]) else {
        return;
    };
    let url = format!("rediss://localhost:{port}");
    let without = RedisStore::connect(&url, with(authority.access())).await.unwrap();
    assert!(!without.is_connected());
    let certificate = Some(authority.sign("member", &["member"]));
    let access = Access { certificate, ..authority.access() };
    let store = RedisStore::connect(&url, with(access)).await.unwrap();
    assert_eq!(store.ask(guard(1)).await, ACCEPTED);
}

/// The connection is recorded between member and store, once in clear and once with TLS.
#[tokio::test]
async fn nothing_of_a_question_can_be_read_on_the_way() {
    let authority = Authority::new();
    let port = server::process::free_port().to_string();
    let more = ["--port", &*port, "--tls-auth-clients", "no", "--requirepass", SECRET];
    let Some((_redis, tls_port)) = authority.redis(&["localhost"], &more) else { return };
    let login = authority.file("login");
    write_secret(&login, &format!("password {SECRET}\n"));
    let plain_port = port.parse().unwrap();
    for (scheme, port, readable) in [("redis", plain_port, true), ("rediss", tls_port, false)] {
        let tap = Tap::start(port);
        let access = Access { login: Some(login.clone()), ..authority.access() };
        let url = format!("{scheme}://localhost:{}", tap.port);
        let store = RedisStore::connect(&url, with(access)).await.unwrap();
        assert_eq!(store.ask(guard(u8::from(readable))).await, ACCEPTED);
        let seen = tap.seen();
        for text in [SECRET, "firstflight:", "MULTI", "run_id:"] {
            assert_eq!(seen.windows(text.len()).any(|part| part == text.as_bytes()), readable, "{text}");
        }
    }
}

/// The password changes while the member runs. It is read again for the next connection.
#[tokio::test]
async fn user_and_password_come_from_a_file_that_is_read_again() {
    fn user(password: &str) -> [&str; 9] {
        ["--user", "farm", "on", password, "+@all", "~firstflight:*", "--user", "default", "off"]
    }
    let Some(mut redis) = Redis::start(&user(&format!(">{SECRET}"))) else { return };
    let files = tempfile::tempdir().unwrap();
    let login = files.path().join("login");
    write_secret(&login, &format!("user farm\npassword {SECRET}\n"));
    let options = || with(Access { login: Some(login.clone()), ..Access::default() });
    let log = Log::default();
    let _listening = log.listen();
    let store = RedisStore::connect(&redis.url(), options()).await.unwrap();
    assert_eq!(store.ask(guard(1)).await, ACCEPTED);

    redis.set_options(&user(">another-0ne"));
    redis.restart();
    assert!(store.ask(guard(2)).await.is_err());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!store.is_connected(), "the file still has the old password");
    write_secret(&login, "user farm\npassword another-0ne\n");
    while !store.is_connected() {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.ask(guard(3)).await.unwrap(), JobResult::Accept);

    write_secret(&login, "user farm\npassword wr0ng\n");
    let wrong = RedisStore::connect(&redis.url(), options()).await.unwrap_err();
    assert!(matches!(wrong, ConnectError::Refused(_)), "{wrong}");
    let all = format!("{} {store:?} {wrong} {wrong:?}", log.text());
    assert!(all.contains("the shared store is lost"), "the log is empty: {all}");
    for secret in [SECRET, "another-0ne", "wr0ng"] {
        assert!(!all.contains(secret), "{all}");
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = tempfile::tempdir().unwrap();
    let login = files.path().join("login");
    let access = || Access { login: Some(login.clone()), ..Access::default() };
    let refused = async |url: &str, access| match RedisStore::connect(url, with(access)).await {
        Err(ConnectError::Access(error)) => error,
        other => unreachable!("{other:?}"),
    };
    assert!(matches!(refused(&redis.url(), access()).await, AccessError::Unreadable(..)));
    write_secret(&login, &format!("{SECRET}\n"));
    let error = refused(&redis.url(), access()).await;
    assert!(matches!(error, AccessError::Login(_)) && !format!("{error} {error:?}").contains(SECRET));
    write_secret(&login, &format!("password {SECRET}\n"));
    fs::set_permissions(&login, Permissions::from_mode(0o644)).unwrap();
    let error = refused(&redis.url(), access()).await.to_string();
    assert!(error.contains("0644") && error.contains("login"), "{error}");

    // The files for TLS are read before anything is sent.
    let listener = std::net::TcpListener::bind("localhost:0").unwrap();
    let url = format!("rediss://localhost:{}", listener.local_addr().unwrap().port());
    let empty = files.path().join("empty");
    write_secret(&empty, "");
    let access = Access { authorities: Some(empty.clone()), ..Access::default() };
    assert!(matches!(refused(&url, access).await, AccessError::NoCertificate(_)));
    let authority = Authority::new();
    let (chain, _) = authority.sign("member", &["member"]);
    for (key, is_key) in [(empty, false), (authority.sign("other", &["other"]).1, true)] {
        let access = Access { certificate: Some((chain.clone(), key)), ..authority.access() };
        let error = refused(&url, access).await;
        assert!(
            matches!((&error, is_key), (AccessError::NoKey(_), false) | (AccessError::Tls(_), true)),
            "{error}"
        );
    }
}
