//! How often a first flight runs: the gateway's side of one-time cookies.

use super::backend;
use firstflight::link::UdpLink;
use firstflight::{ConnectConfig, Endpoint, FirstFlight};
use firstflight_gateway::{Config, Gateway, GatewayError};
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::AsyncReadExt;
use tokio::net::UdpSocket;

fn config(udp: u16, state: &Path, backend: SocketAddr) -> Config {
    let text = format!(
        "[gateway]\nlog = \"off\"\n[one_time]\nstate = {state:?}\n[[listener]]\nname = \"web\"\n\
         address = [\"127.0.0.1:0\"]\nudp_port = {udp}\nmode = \"http\"\nservice = \"s\"\none_time = true\n\
         replays = \"at-most-once\"\n[[service]]\nname = \"s\"\nbackend = [\"{backend}\"]\n"
    );
    Config::parse(&text).unwrap()
}

/// What became of a first flight by UDP.
async fn visit(client: &Endpoint, (at, udp): (SocketAddr, u16), fast_open: bool) -> &'static str {
    let get = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    // The time of earlier visits is too short on a busy machine.
    let patient = Some(std::time::Duration::from_secs(20));
    let config = ConnectConfig::default().fast_open(fast_open).encapsulation(Some(udp)).syn_timeout(patient);
    let mut stream = client.connect(at, get, &config).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("once"), "{text}");
    stream.outcome().as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cookie_is_good_for_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("serials");
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = config(udp.port(), &state, backend("once").await);
    let gateway = Gateway::start(config.clone(), std::io::sink()).await.unwrap();
    let link = UdpLink::towards(udp).unwrap();
    let client = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let at = (gateway.addresses("web")[0], udp.port());
    for expected in ["handshake", "accepted", "accepted"] {
        assert_eq!(visit(&client, at, true).await, expected);
        // A visit may end before the ACK that makes its cookie valid has arrived. Behind another handshake it has.
        assert_eq!(visit(&client, at, false).await, "handshake");
    }

    // A second process with this file would grant the same serials.
    let error = Gateway::start(config.clone(), std::io::sink()).await.err().unwrap();
    assert!(matches!(error, GatewayError::OneTime(..)), "{error}");
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Failure, "{error}");
    gateway.drain().await;
}

/// Two listeners would remember apart what ran.
#[tokio::test]
async fn listeners_with_one_seal_key_need_one_memory() {
    use firstflight_tls::seal::{KeyFile, SealKey};
    let files = super::Files::new();
    let ends = (firstflight::unix_ms() / 1000 + 3600) as u32;
    let key = SealKey::from_bytes(&[1; 32]).unwrap();
    KeyFile::new("front.example".parse().unwrap(), key, ends).create(&files.path("seal")).unwrap();
    let listener = |name: &str, port: u16| {
        format!(
            "[[listener]]\nname = \"{name}\"\naddress = [\"127.0.0.1:{port}\"]\nmode = \"http\"\nservice = \"s\"\n\
             [listener.tls]\ncertificate = [{{ chain = {:?}, key = {:?} }}]\n[listener.seal]\nkeys = [{:?}]\nport = 443\n",
            files.path("chain"),
            files.path("key"),
            files.path("seal")
        )
    };
    let service = "[[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:9\"]\n";
    let one = listener("one", 8443) + service;
    assert_eq!(files.check(&one).await, (vec![], vec![]));
    let (errors, _) = files.check(&(listener("two", 8444) + &one)).await;
    assert!(
        errors.len() == 1 && errors[0].contains("listener two has keys of front.example, too"),
        "{errors:?}"
    );
    let store = format!("[store]\nredis = \"redis://127.0.0.1\"\nkeys = {:?}\n", files.path("farm"));
    files.write_secret("farm", &"01".repeat(48));
    assert_eq!(files.check(&(store.clone() + &listener("two", 8444) + &one)).await, (vec![], vec![]));
    // Certificates for its name: what one listener refuses for lack of trust must not run at the other.
    for trust in ["t", "u"] {
        let key = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
        files.write_secret(trust, &format!("# begin\n[[verifier]]\nkey = \"{key}\"\n# end\n"));
    }
    let trusting = |listener: &str, trust: &str| {
        listener.replace("mode = ", &format!("trust = {:?}\nmode = ", files.path(trust)))
    };
    for (trust, is_right) in [("t", true), ("u", false)] {
        let two = trusting(&listener("two", 8444), trust) + &trusting(&one, "t");
        let (errors, _) = files.check(&(store.clone() + &two)).await;
        let says = "listener one: seal: listener two takes certificates for front.example:443, too";
        assert_eq!(
            errors.iter().filter(|error| error.contains(says)).count(),
            usize::from(!is_right),
            "{errors:?}"
        );
    }
}
