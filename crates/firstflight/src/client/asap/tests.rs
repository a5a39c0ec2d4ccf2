//! Tests of what a client knows of servers that publish.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use firstflight_credential::Outcome;
use firstflight_verifier::IssuerAddress;
use firstflight_wire::asap::VerifierId;

fn published() -> Published {
    let key = firstflight_credential::asap::PrivateKey::from_seed(&[1; 32]);
    Published::in_udp(9, 1200, &[key.public().id()]).unwrap()
}

/// A network's resolver says what it likes.
#[tokio::test]
async fn a_record_found_on_one_network_is_not_used_on_another() {
    let settings = Settings { no_records: true, ..Settings::default() };
    let kernel = Kernel::default();
    let asap = Asap::new(settings, None, None, true, &kernel, None);
    let server: Authority = "www.example.com:80".parse().unwrap();
    let move_to = |n| {
        kernel.move_to(NetworkId([n; 16]));
        asap.move_to(NetworkId([n; 16]));
    };
    move_to(1);
    asap.question(&server).answer(Some(Some(published())));
    assert!(asap.records.known(&server).is_some());
    move_to(2);
    assert!(asap.records.known(&server).is_none(), "the other network's record is used");
    // It is known again where it was found.
    move_to(1);
    assert!(asap.records.known(&server).is_some());
}

/// The next process has the record at once, as long as it counts, on the same network.
#[test]
fn a_record_outlives_the_process_on_its_network() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let server: Authority = "www.example.com:80".parse().unwrap();
    let start = |n| {
        let kernel = Kernel::on(NetworkId([n; 16]));
        assert!(kernel.use_cache(CredentialCache::open(&path).unwrap()));
        let settings = Settings { no_records: true, ..Settings::default() };
        let asap = Asap::new(settings, None, None, true, &kernel, None);
        (kernel, asap)
    };
    let (kernel, asap) = start(1);
    let mut short = published();
    short.ttl = 600;
    asap.question(&server).answer(Some(Some(short.clone())));
    kernel.memory().records().0.set_losses(NetworkId([1; 16]), |_| 2);
    kernel.save();
    let (kernel, asap) = start(1);
    let lost: Vec<_> = kernel.memory().records().0.iter().map(|(_, known)| known.lost).collect();
    assert_eq!(lost, [2]);
    let known = asap.records.known(&server).unwrap();
    assert_eq!((&known.bytes, known.udp_port), (&short.bytes, Some(9)));
    assert!((590..=600).contains(&known.ttl), "{}", known.ttl);
    let (_kernel, asap) = start(2);
    assert!(asap.records.known(&server).is_none(), "the other network's record is used");
}

/// A program can say why it goes without a certificate.
#[tokio::test]
async fn why_a_server_gets_no_certificate_is_known() {
    let key = |seed| firstflight_credential::asap::PrivateKey::from_seed(&[seed; 32]).public();
    let client = |trusts: &[VerifierId]| {
        let server: Authority = "www.example.com:80".parse().unwrap();
        let record = Published::in_udp(9, 1200, trusts).unwrap();
        let own = IssuerAddress::new("127.0.0.1:9".parse().unwrap(), key(1));
        let builder = crate::Client::builder().network(NetworkId([1; 16])).verifier(own).no_resolver();
        (builder.record(server.clone(), record).build().unwrap(), server)
    };
    let mismatch = Outcome::Handshake(Reason::AddressMismatch);
    let (trusted, server) = client(&[key(2).id(), key(1).id()]);
    assert_eq!(trusted.uncertified(&server, Outcome::Accepted), None);
    assert_eq!(trusted.uncertified(&server, mismatch), Some(Uncertified::AddressMismatch));
    let (stranger, server) = client(&[key(2).id()]);
    let why = stranger.uncertified(&server, Outcome::Accepted).unwrap();
    let said = format!("does not trust verifier {}, but {}", key(1).id(), key(2).id());
    assert_eq!(why.to_string(), said);
    // Nothing is published, as far as is known.
    assert_eq!(stranger.uncertified(&"other.example:80".parse().unwrap(), Outcome::Accepted), None);
    assert_eq!(crate::Client::new().uncertified(&server, mismatch), None);
}

/// Who waits for a lookup that tells nothing new is later than without.
#[tokio::test]
async fn only_servers_of_which_nothing_is_known_are_looked_up_ahead() {
    let key = firstflight_credential::asap::PrivateKey::from_seed(&[1; 32]).public();
    let resolver = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let [one, two] = ["127.0.0.1:9", "127.0.0.2:9"].map(|at| at.parse().unwrap());
    let inside = InsideLookups::new(resolver.local_addr().unwrap(), [one, two]).unwrap();
    let own = IssuerAddress::new(one, key);
    let builder = crate::Client::builder().network(NetworkId([1; 16])).verifier(own).inside_lookups(inside);
    let [known, unknown]: [Authority; 2] =
        ["known.example:80", "unknown.example:80"].map(|server| server.parse().unwrap());
    let client = builder.record(known.clone(), published()).build().unwrap();
    client.prepare_for(&[known, unknown], Duration::from_millis(500)).await;
    let (mut asked, mut datagram) = (Vec::new(), [0; 1500]);
    while let Ok(length) = resolver.try_recv(&mut datagram) {
        asked.push(String::from_utf8_lossy(&datagram[..length]).into_owned());
    }
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|question| question.contains("unknown")), "{asked:?}");
}
