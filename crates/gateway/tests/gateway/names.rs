//! The gateway as the name server of its zone. What becomes of first flights inside lookups is tested with real clients:
//! `tests/interop/test_gateway_dns.py`.

use super::Files;
use firstflight_daemon::ExitKind;
use firstflight_dns::service::{published_key, secure_rng};
use firstflight_dns::{DnsPathKey, DnsPathKeyFile, RelayKey, create_relay_key};
use firstflight_gateway::{Config, Gateway, GatewayError};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::time::Duration;
use tokio::net::UdpSocket;

const HEAD: &str = "$TTL 60\n@ IN SOA ns host 1 2 3 4 5\n@ IN NS ns\nns IN A 127.0.0.1\n";

struct Site {
    files: Files,
    /// The port of the name server.
    at: SocketAddr,
    public: String,
}

impl Site {
    async fn new() -> Self {
        let files = Files::new();
        let mut rng = secure_rng().unwrap();
        let key =
            DnsPathKeyFile { id: NonZeroU8::MIN, key: DnsPathKey::generate(&mut rng), former: Vec::new() };
        key.create(&files.path("dns-path")).unwrap();
        create_relay_key(&files.path("relay"), 1, &RelayKey::generate(&mut rng)).unwrap();
        std::fs::write(files.path("trust"), "# begin\n# end\n").unwrap();
        std::fs::write(files.path("zone"), format!("{HEAD}www A 192.0.2.1\n")).unwrap();
        std::fs::write(files.path("other"), format!("{HEAD}www A 192.0.2.2\n")).unwrap();
        let at = super::free().await;
        Self { files, at, public: published_key(NonZeroU8::MIN, &key.key.public()) }
    }

    /// The text of a configuration with this zone file.
    fn text(&self, zone: &str) -> String {
        format!(
            "[gateway]\nlog = \"off\"\nadmin = \"127.0.0.1:0\"\n[dns]\nlistener = \"web\"\nlisten = [\"{}\"]\n\
             dns_path_zone = \"f.example.com\"\ndns_path_key = {:?}\n[[dns.zone]]\nfile = {:?}\norigin = \"example.com\"\n\
             [dns.relay]\nlisten = \"127.0.0.1:0\"\nkey = {:?}\n[[listener]]\nname = \"web\"\naddress = [\"127.0.0.1:0\"]\n\
             mode = \"tcp\"\nservice = \"s\"\ntrust = {:?}\n[[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:9\"]\n",
            self.at,
            self.files.path("dns-path"),
            self.files.path(zone),
            self.files.path("relay"),
            self.files.path("trust"),
        )
    }

    fn config(&self, zone: &str) -> Config {
        Config::parse(&self.text(zone)).unwrap()
    }

    /// The address in the answer to a question for `name` and type A. `None` if there is none.
    async fn ask(&self, name: &str) -> Option<Ipv4Addr> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        query.extend([0, 0, 1, 0, 1]);
        socket.send_to(&query, self.at).await.unwrap();
        let mut answer = [0; 512];
        let (len, _) = socket.recv_from(&mut answer).await.unwrap();
        let count = u16::from_be_bytes([answer[6], answer[7]]);
        // The only record follows the question.
        let last = answer[..len].get(query.len() + 12..query.len() + 16)?;
        (count == 1).then(|| Ipv4Addr::from(<[u8; 4]>::try_from(last).unwrap()))
    }

    /// Waits until `www` has this address.
    async fn becomes(&self, address: &str) {
        let address: Ipv4Addr = address.parse().unwrap();
        while self.ask("www.example.com").await != Some(address) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_answers_the_names_of_its_zone() {
    let site = Site::new().await;
    let mut gateway = Gateway::start(site.config("zone"), std::io::sink()).await.unwrap();
    site.becomes("192.0.2.1").await;
    // Below the DNS-path zone nothing fails, and what looks like a fragment has the address of the listener.
    assert_eq!(site.ask("other.f.example.com").await, None);
    assert_eq!(site.ask("ff0x.f.example.com").await, Some(Ipv4Addr::LOCALHOST));

    // Another file of the zone, by a reload.
    gateway.reload(site.config("other")).await.unwrap();
    site.becomes("192.0.2.2").await;
    // Its content, without one.
    std::fs::write(site.files.path("other"), format!("{HEAD}www A 192.0.2.3\n")).unwrap();
    site.becomes("192.0.2.3").await;
    // A mistake changes nothing.
    std::fs::write(site.files.path("zone"), format!("{HEAD}www A\n")).unwrap();
    let error = gateway.reload(site.config("zone")).await.unwrap_err();
    assert!(
        error.to_string().starts_with("dns: the zone file ") && error.to_string().contains(", line 5: "),
        "{error}"
    );
    assert_eq!(error.exit_kind(), ExitKind::Mistake);
    let text = site.text("other");
    let moved = Config::parse(&text.replace(&site.at.to_string(), "127.0.0.1:0")).unwrap();
    let error = gateway.reload(moved).await.unwrap_err();
    assert_eq!(error.to_string(), "dns.listen needs a restart to change");
    let (before, after) = text.split_once("[dns]").unwrap();
    let (_, after) = after.split_once("[[listener]]").unwrap();
    let error =
        gateway.reload(Config::parse(&format!("{before}[[listener]]{after}")).unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), "dns needs a restart to change");
    assert_eq!(site.ask("www.example.com").await, Some(Ipv4Addr::new(192, 0, 2, 3)));

    // While it runs, its port is taken.
    let second = text.replace("127.0.0.1:0\"]\nmode", "127.0.0.2:0\"]\nmode");
    let error = Gateway::start(Config::parse(&second).unwrap(), std::io::sink()).await.err().unwrap();
    assert!(
        matches!(error, GatewayError::Dns(_)) && error.to_string().contains("cannot listen on"),
        "{error}"
    );
    assert_eq!(error.exit_kind(), ExitKind::Failure);
    gateway.drain().await;
    // The port is free again.
    tokio::net::TcpListener::bind(site.at).await.unwrap();
}

#[tokio::test]
async fn a_check_reads_the_files_of_a_name_server() {
    let site = Site::new().await;
    assert_eq!(site.files.check(&site.text("zone")).await, (vec![], vec![]));
    assert!(site.public.starts_with("1:") && site.public.len() == 2 + 64, "{}", site.public);
    let (errors, _) = site.files.check(&site.text("none")).await;
    assert!(errors[0].starts_with("dns: cannot read the zone file "), "{errors:?}");
    std::fs::remove_file(site.files.path("dns-path")).unwrap();
    std::fs::write(site.files.path("relay"), "relay 1 00\n").unwrap();
    let (errors, _) = site.files.check(&site.text("zone")).await;
    assert!(
        errors[0].contains("dns-path cannot be read") && errors[0].contains("firstflight dns keygen"),
        "{errors:?}"
    );
    assert!(errors[1].contains("relay line 1 is none of a key file of this kind"), "{errors:?}");
}

/// A file of starts is locked by the gateway that runs, and a check beside it neither creates nor needs it.
#[tokio::test]
async fn a_check_leaves_the_file_of_starts_alone() {
    let site = Site::new().await;
    let forward = format!(
        "[dns.forward]\nlisten = \"127.0.0.1:0\"\nto = [\"127.0.0.2:9\"]\nkey = {:?}\nfront_id = 0\nstate = {:?}\n[[listener]]",
        site.files.path("relay"),
        site.files.path("boot")
    );
    let text = site.text("zone").replace("[[listener]]", &forward);
    assert_eq!(site.files.check(&text).await, (vec![], vec![]));
    assert!(!site.files.path("boot").exists());
    let mut gateway = Gateway::start(Config::parse(&text).unwrap(), std::io::sink()).await.unwrap();
    let written = std::fs::read_to_string(site.files.path("boot")).unwrap();
    assert_eq!(site.files.check(&text).await, (vec![], vec![]));
    gateway.reload(Config::parse(&text).unwrap()).await.unwrap();
    assert_eq!(std::fs::read_to_string(site.files.path("boot")).unwrap(), written);
    let error = Gateway::start(Config::parse(&text).unwrap(), std::io::sink()).await.err().unwrap();
    assert!(error.to_string().contains("is held by another front"), "{error}");
    assert_eq!(error.exit_kind(), ExitKind::Failure);
    std::fs::write(site.files.path("other"), "no boot").unwrap();
    let (errors, _) = site.files.check(&text.replace("/boot\"", "/other\"")).await;
    assert!(errors[0].contains("is not what a front wrote"), "{errors:?}");
    gateway.drain().await;
}
