//! Answers of a name server in this process.

use super::*;
use hickory_resolver::proto::rr::rdata::HTTPS;
use hickory_resolver::proto::rr::rdata::svcb::{Mandatory, SVCB, SvcParamKey, SvcParamValue, Unknown};
use hickory_resolver::proto::rr::{RData, Record};
use tokio::net::TcpListener;

const KEY: u16 = 65301;
const NAME: &str = "www.example.com.";

fn record(ttl: u32, value: &[u8], mandatory: bool) -> Record {
    let mut params = vec![(KEY.into(), SvcParamValue::Unknown(Unknown(value.to_vec())))];
    if mandatory {
        params.insert(0, (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(vec![KEY.into()]))));
    }
    let https = SVCB::new(1, Name::root(), params);
    Record::from_rdata(Name::from_ascii(NAME).unwrap(), ttl, RData::HTTPS(HTTPS(https)))
}

/// What a server makes of a query.
type Make = fn(&mut Message);

fn answer(query: &[u8], make: Make) -> Vec<u8> {
    let query = Message::from_vec(query).unwrap();
    assert!(query.metadata.authentic_data && query.metadata.recursion_desired);
    let mut answer = query.clone().into_response();
    answer.metadata.authentic_data = false;
    make(&mut answer);
    answer.to_vec().unwrap()
}

/// A server that sends these answers to one query in UDP, and one by TCP.
async fn serve(udp: &'static [Make], tcp: Option<Make>) -> Names {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        let (count, client) = socket.recv_from(&mut buffer).await.unwrap();
        for make in udp {
            socket.send_to(&answer(&buffer[..count], *make), client).await.unwrap();
        }
        let Some(make) = tcp else { return };
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut query).await.unwrap();
        let answer = answer(&query, make);
        stream.write_all(&[&(answer.len() as u16).to_be_bytes(), &answer[..]].concat()).await.unwrap();
    });
    Names::at(at).unwrap()
}

async fn ask(udp: &'static [Make], tcp: Option<Make>) -> io::Result<Option<Parameter>> {
    serve(udp, tcp).await.trust_ad(true).parameter("www.example.com", 443, KEY).await
}

fn found(message: &mut Message) {
    message.add_answer(record(300, b"value", false));
}

fn validated(message: &mut Message) {
    message.metadata.authentic_data = true;
    message.add_answer(record(300, b"value", true));
}

#[tokio::test]
async fn the_ad_bit_of_a_declared_resolver_counts() {
    let plain = ask(&[found], None).await.unwrap().unwrap();
    assert_eq!(plain, Parameter { value: b"value".to_vec(), ttl: 300, validated: Validated::No });
    let signed = ask(&[validated], None).await.unwrap().unwrap();
    assert_eq!((signed.validated, &signed.value[..]), (Validated::TrustedPath, &b"value"[..]));
    let near = serve(&[validated], None).await;
    assert!(near.are_local());
    let passed_on = near.parameter("www.example.com", 443, KEY).await.unwrap().unwrap();
    assert_eq!(passed_on.validated, Validated::Other);
}

#[tokio::test]
async fn answers_to_other_questions_do_not_end_the_wait() {
    fn other_id(message: &mut Message) {
        validated(message);
        message.metadata.id ^= 1;
    }
    fn other_name(message: &mut Message) {
        validated(message);
        message.queries = vec![Query::query(Name::from_ascii("a.example.").unwrap(), RecordType::HTTPS)];
    }
    let found = ask(&[other_id, other_name, found], None).await.unwrap().unwrap();
    assert_eq!(found.validated, Validated::No);
}

#[tokio::test]
async fn a_long_answer_comes_by_tcp() {
    fn truncated(message: &mut Message) {
        message.metadata.truncation = true;
    }
    let found = ask(&[truncated], Some(validated)).await.unwrap().unwrap();
    assert_eq!(found.validated, Validated::TrustedPath);
}

#[tokio::test]
async fn no_record_is_no_error_and_a_failed_validation_is_one() {
    fn nothing(_: &mut Message) {}
    fn no_name(message: &mut Message) {
        message.metadata.response_code = ResponseCode::NXDomain;
    }
    fn bogus(message: &mut Message) {
        message.metadata.response_code = ResponseCode::ServFail;
    }
    assert_eq!(ask(&[nothing], None).await.unwrap(), None);
    assert_eq!(ask(&[no_name], None).await.unwrap(), None);
    assert_eq!(ask(&[bogus], None).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// Also at a loopback address, where a forwarder may pass on what it got from anywhere.
#[test]
fn only_a_declared_resolver_is_trusted() {
    for server in ["192.0.2.53:53", "127.0.0.11:53", "[::1]:53"] {
        let with = |trust_ad| Servers { addresses: vec![server.parse().unwrap()], trust_ad };
        assert_eq!(with(false).validated(true), Validated::Other, "{server}");
        assert_eq!(with(true).validated(true), Validated::TrustedPath, "{server}");
        assert_eq!(with(true).validated(false), Validated::No, "{server}");
    }
    let near = Servers::of("nameserver 127.0.0.11\noptions ndots:0\n");
    assert_eq!(near.validated(true), Validated::Other);
}

#[test]
fn only_a_stub_of_this_host_is_asked_unnamed() {
    let stub = |text| Servers::of(text).stub();
    let local = |ip: &str| Some(SocketAddr::new(ip.parse().unwrap(), 53));
    assert_eq!(stub("# a\nsearch x\nnameserver 127.0.0.53\noptions edns0\n"), local("127.0.0.53"));
    assert_eq!(stub("nameserver ::1\nnameserver 192.0.2.1\n"), local("::1"));
    assert_eq!(stub("nameserver 192.0.2.1\nnameserver 127.0.0.1\n"), None);
    // As resolv.conf(5).
    assert_eq!(stub(""), local("127.0.0.1"));
}

#[test]
fn resolv_conf_names_servers_and_says_whom_to_trust() {
    let text = "# c\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nsearch a\noptions edns0 trust-ad\nnameserver ::1\n";
    let servers = Servers::of(text);
    let expected: Vec<SocketAddr> = vec!["192.0.2.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()];
    assert_eq!((servers.addresses, servers.trust_ad), (expected, true));
    let none = Servers::of("");
    assert_eq!((none.addresses[0].ip().is_loopback(), none.trust_ad), (true, false));
}
