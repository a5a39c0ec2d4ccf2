//! The life of a gateway on loopback: start, reload, end.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "gateway/names.rs"]
mod names;
#[path = "gateway/once.rs"]
mod once;
#[path = "gateway/root.rs"]
mod root;

use firstflight_gateway::{Config, Gateway, GatewayError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// A backend that answers every request with this text.
async fn backend(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                let mut bytes = Vec::new();
                while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    if bytes.ends_with(b"\r\n\r\n") {
                        bytes.clear();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    at
}

/// A listener for each name, before this backend.
fn config(listeners: &[(&str, SocketAddr)], backend: SocketAddr) -> Config {
    let mut text = "[gateway]\nadmin = \"127.0.0.1:0\"\nlog = \"off\"\n".to_owned();
    for (name, at) in listeners {
        text += &format!(
            "[[listener]]\nname = \"{name}\"\naddress = [\"{at}\"]\nmode = \"http\"\nservice = \"s\"\nudp_port = 0\n"
        );
    }
    text += &format!("[[service]]\nname = \"s\"\nbackend = [\"{backend}\"]\n");
    Config::parse(&text).unwrap()
}

async fn ask(stream: &mut TcpStream, length: usize) -> String {
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// An address whose port nobody uses, TCP and UDP. The port is below the range that the system assigns to clients, so that it
/// stays free until it is used. No other test gets it soon.
async fn free() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let at = SocketAddr::from(([127, 0, 0, 1], 20_000 + (number % 12_000) as u16));
        if UdpSocket::bind(at).await.is_ok() && TcpListener::bind(at).await.is_ok() {
            return at;
        }
    }
}

#[tokio::test]
async fn a_reload_takes_effect_on_open_connections_and_a_failed_one_does_not() {
    let (one, two) = (backend("one").await, backend("two").await);
    let web = free().await;
    let mut gateway = Gateway::start(config(&[("web", web)], one), std::io::sink()).await.unwrap();
    assert_eq!(gateway.addresses("web"), [web]);
    let mut client = TcpStream::connect(web).await.unwrap();
    assert_eq!(ask(&mut client, 3).await, "one");

    // A port that is taken: nothing changes, also not what could have.
    let listeners = [("web", web), ("taken", one)];
    let error = gateway.reload(config(&listeners, two)).await.unwrap_err();
    assert!(matches!(error, GatewayError::Bind(..)), "{error}");
    assert_eq!(ask(&mut client, 3).await, "one");
    // Sockets stay as they are.
    let error = gateway.reload(config(&[("web", free().await)], two)).await.unwrap_err();
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Mistake, "{error}");

    let other = free().await;
    gateway.reload(config(&[("web", web), ("other", other)], two)).await.unwrap();
    assert_eq!(ask(&mut client, 3).await, "two");
    assert_eq!(ask(&mut TcpStream::connect(other).await.unwrap(), 3).await, "two");

    // A listener that is gone ends its connections.
    let mut kept = TcpStream::connect(other).await.unwrap();
    assert_eq!(ask(&mut kept, 3).await, "two");
    gateway.reload(config(&[("web", web)], two)).await.unwrap();
    assert_eq!(kept.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(gateway.addresses("other").is_empty());
    assert_eq!(ask(&mut client, 3).await, "two");
    gateway.drain().await;
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(TcpStream::connect(web).await.is_err());
}

#[tokio::test]
async fn the_admin_address_says_whether_it_is_ready() {
    let web = free().await;
    let gateway = Gateway::start(config(&[("web", web)], backend("x").await), std::io::sink()).await.unwrap();
    let mut admin = TcpStream::connect(gateway.admin_address().unwrap()).await.unwrap();
    // Nobody has asked the backend.
    assert_eq!(ask(&mut admin, 38).await, "ready\ns: 0 of 1 backends up, 1 unknown");
}

/// Files of a certificate that is valid from and to these years.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.write(2000, 4000);
        files
    }

    fn write(&self, begins: i32, ends: i32) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params =
            rcgen::CertificateParams::new(["localhost".to_owned(), "front.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(begins, 1, 1);
        params.not_after = rcgen::date_time_ymd(ends, 1, 1);
        std::fs::write(self.path("chain"), params.self_signed(&key).unwrap().pem()).unwrap();
        self.write_key(&key.serialize_pem());
    }

    fn write_key(&self, text: &str) {
        self.write_secret("key", text);
    }

    fn write_secret(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// A configuration with the certificate, and with these lines for the process.
    fn config(&self, gateway: &str) -> String {
        format!(
            "[gateway]\n{gateway}\n[[listener]]\nname = \"web\"\naddress = [\"127.0.0.1:0\"]\nmode = \"http\"\n\
             service = \"s\"\nudp_port = 0\n[[listener.tls.certificate]]\nchain = {:?}\nkey = {:?}\n\
             [[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:1\"]\n",
            self.path("chain"),
            self.path("key"),
        )
    }

    async fn check(&self, config: &str) -> (Vec<String>, Vec<String>) {
        let path = self.path("gateway.toml");
        std::fs::write(&path, config).unwrap();
        let found = firstflight_gateway::check(&path).await;
        (found.errors.iter().map(ToString::to_string).collect(), found.warnings)
    }
}

/// A reload said that it was done, although the next start would fail.
#[tokio::test]
async fn a_reload_with_a_key_that_is_not_right_is_refused() {
    let files = Files::new();
    let config = || Config::parse(&files.config("log = \"off\"")).unwrap();
    let mut gateway = Gateway::start(config(), std::io::sink()).await.unwrap();
    gateway.reload(config()).await.unwrap();
    files.write_key("");
    let error = gateway.reload(config()).await.unwrap_err();
    assert!(error.to_string().ends_with("key has no private key in PEM"), "{error}");
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Mistake);
    std::fs::remove_file(files.path("key")).unwrap();
    let error = gateway.reload(config()).await.unwrap_err();
    assert!(error.to_string().contains("key cannot be read: "), "{error}");
    files.write(2000, 4000);
    gateway.reload(config()).await.unwrap();
    let trust = files.path("trust");
    let with_trust = || {
        let text = files.config("").replace("udp_port = 0", &format!("trust = {trust:?}"));
        Config::parse(&text).unwrap()
    };
    std::fs::write(&trust, "# begin\n# end\n").unwrap();
    let mut gateway = Gateway::start(with_trust(), std::io::sink()).await.unwrap();
    std::fs::write(&trust, "# begin\n").unwrap();
    let error = gateway.reload(with_trust()).await.unwrap_err();
    assert!(error.to_string().contains("trust"), "{error}");
}

/// The line by which the log names the verifier, and a certificate from the listener's port by this key.
#[tokio::test]
async fn a_listener_is_its_own_verifier_and_takes_a_new_key_by_a_reload() {
    use firstflight::credential::asap::PrivateKey;
    use firstflight::verifier::{IssuerAddress, Patience, VerifierKeys, Wanted, obtain};
    let files = Files::new();
    let (path, log) = (files.path("verifier.key"), files.path("log"));
    let write = |seed: u8, retired: &[u8]| {
        let key = |seed: u8| PrivateKey::from_seed(&[seed; 32]);
        let _ = std::fs::remove_file(&path);
        let retired = retired.iter().map(|seed| key(*seed).public()).collect();
        VerifierKeys { key: key(seed), retired }.create(path.as_ref()).unwrap();
        key(seed).public()
    };
    let at = free().await;
    let config = || {
        let verifier = format!("[listener.verifier]\nkey = {path:?}\nallow = [\"127.0.0.0/8\"]\n");
        let listener = |name: &str, at: SocketAddr| {
            format!(
                "[[listener]]\nname = \"{name}\"\naddress = [\"{at}\"]\nmode = \"tcp\"\nservice = \"s\"\n{verifier}"
            )
        };
        let other = SocketAddr::from(([127, 0, 0, 2], at.port()));
        let service = "[[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:9\"]\n";
        let text =
            "[gateway]\nlog = \"text\"\n".to_owned() + &listener("a", at) + &listener("b", other) + service;
        Config::parse(&text).unwrap()
    };
    let first = write(1, &[]);
    let sink = std::fs::File::create(&log).unwrap();
    let mut gateway = Gateway::start(config(), sink).await.unwrap();
    let ask = async |key, ip: [u8; 4]| {
        let from = IssuerAddress::new(SocketAddr::from((ip, at.port())), key);
        let wanted = Wanted { key: PrivateKey::from_seed(&[7; 32]), wished: 3600, old: None };
        let patience =
            Patience { first: Duration::from_millis(200), sends: 8, stream: Duration::from_secs(5) };
        obtain(&from, wanted, &patience).await
    };
    ask(first, [127, 0, 0, 1]).await.unwrap();
    ask(first, [127, 0, 0, 2]).await.unwrap();
    // A file that is not right changes nothing.
    std::fs::write(&path, "key 00").unwrap();
    let error = gateway.reload(config()).await.unwrap_err();
    assert!(error.to_string().contains("verifier.key"), "{error}");
    let second = write(2, &[1]);
    ask(first, [127, 0, 0, 1]).await.unwrap();
    gateway.reload(config()).await.unwrap();
    ask(second, [127, 0, 0, 1]).await.unwrap();
    ask(second, [127, 0, 0, 2]).await.unwrap();
    assert!(ask(first, [127, 0, 0, 1]).await.is_err());
    gateway.drain().await;
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains(&format!("a is verifier {}, key {first}", first.id())), "{said}");
}

#[tokio::test]
async fn a_check_finds_what_is_not_right() {
    let files = Files::new();
    assert_eq!(files.check(&files.config("")).await, (vec![], vec![]));
    assert_eq!(files.check(&format!("\u{feff}{}", files.config(""))).await, (vec![], vec![]));
    files.write(2000, 2001);
    let (errors, warnings) = files.check(&files.config("")).await;
    assert!(errors.is_empty() && warnings.len() == 1, "{errors:?} {warnings:?}");
    assert!(warnings[0].contains("chain ended at 2001-01-01T00:00:00Z"), "{warnings:?}");
    let pair = format!("chain = {:?}\nkey = {:?}", files.path("chain"), files.path("key"));
    let client = format!("[service.tls]\nname = \"localhost\"\nca = {:?}\n{pair}\n", files.path("chain"));
    let (_, warnings) = files.check(&(files.config("") + &client)).await;
    assert!(warnings.len() == 2 && warnings[0].starts_with("service s: "), "{warnings:?}");
    files.write(3000, 4000);
    let (_, warnings) = files.check(&files.config("")).await;
    assert!(warnings[0].contains("is not valid before 3000-01-01"), "{warnings:?}");
    // All that is wrong is told at once.
    files.write_key("");
    let (errors, _) = files.check(&files.config("user = \"nobody-of-this-name\"")).await;
    assert!(errors[0].contains("there is no user \"nobody-of-this-name\""), "{errors:?}");
    assert!(errors[1].ends_with("key has no private key in PEM"), "{errors:?}");
    let (errors, _) = files.check("").await;
    assert!(errors[0].contains("has no [[listener]]"), "{errors:?}");
}

/// The note of a member that owes its store nothing is read by the start, too.
#[tokio::test]
async fn a_check_looks_at_the_state_of_the_store() {
    let files = Files::new();
    files.write_secret("farm", &"01".repeat(48));
    let config = |state: &std::path::Path| {
        let store = format!(
            "[store]\nredis = \"redis://127.0.0.1:1\"\nkeys = {:?}\nstate = {state:?}\n",
            files.path("farm")
        );
        let web = files.config("").replace("udp_port = 0", "replays = \"no-duplicates\"");
        store + &web
    };
    let state = files.path("owed");
    assert_eq!(files.check(&config(&state)).await, (vec![], vec![]));
    assert!(!state.exists() && !files.path("owed.lock").exists(), "the check has changed something");
    std::fs::write(&state, "something else\n").unwrap();
    let (errors, _) = files.check(&config(&state)).await;
    assert!(
        errors.len() == 1 && errors[0].contains("owed: it is damaged, or it is not a state file"),
        "{errors:?}"
    );
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "something else\n");
    let (errors, _) = files.check(&config(std::path::Path::new("/nonexistent/owed"))).await;
    assert!(errors.len() == 1 && errors[0].contains("/nonexistent/owed: No such file"), "{errors:?}");
}

/// What is sealed for a name without a certificate is not taken, and what waits for a certificate is not early.
#[tokio::test]
async fn a_check_says_what_is_sealed_in_vain() {
    use firstflight_tls::seal::{KeyFile, SealKey};
    let files = Files::new();
    let ends = (firstflight::unix_ms() / 1000 + 3600) as u32;
    let key = SealKey::from_bytes(&[1; 32]).unwrap();
    KeyFile::new("front.example".parse().unwrap(), key, ends).create(&files.path("seal")).unwrap();
    let config = |tls: &str, names: &str| {
        let seal = format!(
            "{tls}\n[listener.seal]\nkeys = [{:?}]\nnames = [{names}]\nport = 443\n",
            files.path("seal")
        );
        let tls = format!(
            "[listener.tls]\ncertificate = [{{ chain = {:?}, key = {:?} }}]\n",
            files.path("chain"),
            files.path("key")
        );
        let text = files.config("");
        let (begin, rest) = text.split_once("[[listener.tls.certificate]]").unwrap();
        let (_, service) = rest.split_once("[[service]]").unwrap();
        format!("{begin}{tls}{seal}[[service]]{service}")
    };
    assert_eq!(files.check(&config("", "\"localhost\"")).await, (vec![], vec![]));
    let (errors, warnings) = files.check(&config("", "\"localhost\", \"other.example\"")).await;
    assert!(errors.is_empty() && warnings.len() == 1, "{errors:?} {warnings:?}");
    assert!(
        warnings[0].starts_with("listener web: seal: no certificate is for other.example"),
        "{warnings:?}"
    );
    let asks = format!("client_ca = {:?}", files.path("chain"));
    let (errors, warnings) = files.check(&config(&asks, "\"localhost\"")).await;
    assert!(errors.is_empty() && warnings.len() == 1, "{errors:?} {warnings:?}");
    assert!(warnings[0].contains("with client_ca every sealed request waits"), "{warnings:?}");
}

/// A lock that stays makes people think that a process is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_no_lock() {
    let (files, taken) = (Files::new(), backend("none").await);
    let state = files.path("serials");
    let text = format!(
        "[one_time]\nstate = {state:?}\n{}",
        files
            .config("log = \"off\"")
            .replace("127.0.0.1:0", &taken.to_string())
            .replace("udp_port = 0", "one_time = true")
    );
    let error = Gateway::start(Config::parse(&text).unwrap(), std::io::sink()).await.err().unwrap();
    assert!(matches!(error, GatewayError::Bind(..)), "{error}");
    assert!(!files.path("serials.lock").exists());
}

#[tokio::test]
async fn a_gateway_that_lives_is_known_from_one_that_does_not() {
    let files = Files::new();
    let path = files.path("gateway.toml");
    std::fs::write(&path, files.config("")).unwrap();
    let error = firstflight_gateway::is_alive(&path).await.unwrap_err();
    assert!(error.to_string().contains("has no gateway.admin"), "{error}");
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Mistake);
    // What listens at all addresses is asked at one of them.
    let asked =
        |port: u16| std::fs::write(&path, files.config(&format!("admin = \"0.0.0.0:{port}\""))).unwrap();
    let other = backend("none").await;
    asked(other.port());
    firstflight_gateway::is_alive(&path).await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    asked(silent.local_addr().unwrap().port());
    drop(silent);
    let error = firstflight_gateway::is_alive(&path).await.unwrap_err();
    assert!(error.to_string().contains("does not answer at 127.0.0.1:"), "{error}");
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Failure);
}
