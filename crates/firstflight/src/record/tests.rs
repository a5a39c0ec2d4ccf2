//! Records from a name server in this process, over the loopback device.

use super::*;
use hickory_resolver::proto::op::{Message, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::svcb::{EchConfigList, Mandatory, Unknown};
use hickory_resolver::proto::rr::rdata::{A, AAAA, HTTPS};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::slice::from_ref;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NAME: &str = "www.example.com.";
const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

type Params = Vec<(SvcParamKey, SvcParamValue)>;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// A service parameter with this UDP port.
fn value(udp_port: u16) -> Vec<u8> {
    let udp = UdpService { port: NonZeroU16::new(udp_port).unwrap(), dns_path: None };
    let ids = [[1, 2, 3, 4], [5, 6, 7, 8]];
    let param = ServiceParam::new(true, Some(udp), 1400, VerifierIds::new(&ids).unwrap(), false).unwrap();
    let mut bytes = [0; ServiceParam::MAX_LEN];
    let len = param.emit(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn published_with(udp_port: u16) -> Published {
    let verifiers = vec![VerifierId([1, 2, 3, 4]), VerifierId([5, 6, 7, 8])];
    Published {
        on_ip: true,
        udp_port: Some(udp_port),
        mss: 1400,
        verifiers,
        bytes: value(udp_port),
        ttl: 60,
        names_verifiers: false,
    }
}

fn unknown(key: u16, bytes: Vec<u8>) -> (SvcParamKey, SvcParamValue) {
    (key.into(), SvcParamValue::Unknown(Unknown(bytes)))
}

fn mandatory(keys: &[u16]) -> (SvcParamKey, SvcParamValue) {
    let keys = keys.iter().map(|key| SvcParamKey::from(*key)).collect();
    (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(keys)))
}

fn port(port: u16) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Port, SvcParamValue::Port(port))
}

/// A record of `owner`.
fn https(owner: &str, priority: u16, target: &str, params: Params) -> Record {
    let record = SVCB::new(priority, name(target), params);
    Record::from_rdata(name(owner), 60, RData::HTTPS(HTTPS(record)))
}

/// A record of [`NAME`] that has only the parameter.
fn plain(priority: u16, udp_port: u16) -> Record {
    https(NAME, priority, ".", vec![unknown(KEY, value(udp_port))])
}

/// What the records mean to a client of port 80, after they were encoded in a message and decoded.
fn read(records: &[Record]) -> Option<Published> {
    let mut message = Message::query();
    message.add_answers(records.to_vec());
    let message = Message::from_vec(&message.to_vec().unwrap()).unwrap();
    assert_eq!(message.answers.len(), records.len());
    published(&message.answers, NAME, 80)
}

#[test]
fn a_record_is_read() {
    assert_eq!(read(&[plain(1, 8080)]), Some(published_with(8080)));
    assert_eq!(read(&[]), None);
    let address = Record::from_rdata(name(NAME), 60, RData::A(A(V4)));
    assert_eq!(read(from_ref(&address)), None);
    assert_eq!(read(&[address, plain(1, 8080)]), Some(published_with(8080)));
}

#[test]
fn of_several_records_the_smallest_priority_counts() {
    let records = [plain(3, 3000), plain(1, 1000), plain(2, 2000)];
    assert_eq!(read(&records), Some(published_with(1000)));
    let silent = https(NAME, 1, ".", Vec::new());
    assert_eq!(read(&[plain(3, 3000), silent, plain(2, 2000)]), Some(published_with(2000)));
}

#[test]
fn an_alias_counts_for_all() {
    let alias = https(NAME, 0, "elsewhere.example.", Vec::new());
    assert_eq!(read(from_ref(&alias)), None);
    assert_eq!(read(&[plain(1, 8080), alias]), None);
    // Parameters of an alias are ignored.
    assert_eq!(read(&[plain(0, 8080)]), None);
}

#[test]
fn other_parameters_are_passed_over() {
    let beside =
        vec![port(80), unknown(KEY - 1, vec![1]), unknown(KEY, value(8080)), unknown(KEY + 1, vec![])];
    assert_eq!(read(&[https(NAME, 1, ".", beside)]), Some(published_with(8080)));
    assert_eq!(read(&[https(NAME, 1, ".", vec![unknown(KEY - 1, value(8080))])]), None);
}

#[test]
fn a_record_names_verifiers_unless_it_hides_the_name() {
    let ech = || (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![0; 8])));
    let named = |params: Params| read(&[https(NAME, 1, ".", params)]).unwrap().names_verifiers;
    let names = || unknown(VerifiersParam::KEY, vec![1]);
    assert!(named(vec![unknown(KEY, value(1)), names()]) && !named(vec![unknown(KEY, value(1))]));
    assert!(named(vec![mandatory(&[VerifiersParam::KEY]), unknown(KEY, value(1)), names()]), "it is known");
    assert!(!named(vec![ech(), unknown(KEY, value(1)), names()]));
}

#[test]
fn a_record_with_something_mandatory_that_is_unknown_is_none() {
    let with = |keys: &[u16]| https(NAME, 1, ".", vec![mandatory(keys), port(80), unknown(KEY, value(8080))]);
    assert_eq!(read(&[with(&[3, KEY])]), Some(published_with(8080)));
    assert_eq!(read(&[with(&[KEY, KEY + 1])]), None);
    assert_eq!(read(&[with(&[KEY + 1]), plain(2, 2000)]), Some(published_with(2000)));
}

#[test]
fn a_garbage_parameter_says_nothing() {
    let version = [&[2], &value(8080)[1..]].concat();
    let behind = [&value(8080)[..], &[0]].concat();
    let cut = value(8080)[..9].to_vec();
    for garbage in [Vec::new(), vec![0xff; 40], version, behind, cut] {
        let record = https(NAME, 1, ".", vec![unknown(KEY, garbage.clone())]);
        assert_eq!(read(from_ref(&record)), None, "{garbage:02x?}");
        assert_eq!(read(&[record, plain(2, 2000)]), Some(published_with(2000)), "{garbage:02x?}");
    }
}

#[test]
fn a_record_about_another_server_is_none_of_this_ones() {
    let record =
        |owner, target, port_of| https(owner, 1, target, vec![port(port_of), unknown(KEY, value(8080))]);
    assert_eq!(read(&[record(NAME, "WWW.example.com.", 80)]), Some(published_with(8080)));
    assert_eq!(read(&[record("edge.example.net.", "edge.example.net.", 80)]), Some(published_with(8080)));
    assert_eq!(read(&[record(NAME, "elsewhere.example.", 80)]), None);
    assert_eq!(read(&[record(NAME, ".", 81)]), None);
}

/// How much later a late answer comes.
const LATE: Duration = Duration::from_millis(200);

/// How the HTTPS question is answered. The address questions are always answered, except with `Nothing`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerWay {
    /// With the record.
    Record,
    /// With no record.
    None,
    /// With the error that the name does not exist.
    NoName,
    /// With a server failure.
    Failure,
    /// With the truncation flag; the full answer comes over TCP.
    Truncated,
    /// With the record, after a forged answer that has a wrong transaction id.
    AfterWrongTransaction,
    /// With the record, after an answer to another question.
    AfterWrongQuestion,
    /// With half a message, also over TCP.
    Half,
    /// Without any record of the name, not even its addresses.
    Nothing,
    /// No answer at all: some middleboxes drop questions for a type that they do not know.
    Silent,
    /// With the record. The answer to the question for this type comes later.
    Late(RecordType),
}

impl AnswerWay {
    /// The datagrams that answer this query.
    fn datagrams(self, query: &Message, owner: &str) -> Vec<Vec<u8>> {
        let question = query.queries.first().unwrap();
        if question.query_type() != RecordType::HTTPS {
            return vec![self.address(query)];
        }
        let record = |udp_port| https(owner, 1, ".", vec![unknown(KEY, value(udp_port))]);
        let right = response(query, &[record(8080)]);
        // This answer must never be accepted.
        let mut forged = response(query, &[record(6666)]);
        match self {
            Self::Record | Self::Late(_) => vec![right.to_vec().unwrap()],
            Self::Silent => Vec::new(),
            Self::None | Self::Nothing => vec![response(query, &[]).to_vec().unwrap()],
            Self::NoName | Self::Failure => {
                let mut answer = response(query, &[]);
                answer.metadata.response_code =
                    if self == Self::NoName { ResponseCode::NXDomain } else { ResponseCode::ServFail };
                vec![answer.to_vec().unwrap()]
            }
            Self::Truncated => {
                let mut answer = response(query, &[]);
                answer.metadata.truncation = true;
                vec![answer.to_vec().unwrap()]
            }
            Self::AfterWrongTransaction => {
                forged.metadata.id ^= 1;
                vec![forged.to_vec().unwrap(), right.to_vec().unwrap()]
            }
            Self::AfterWrongQuestion => {
                forged.queries = vec![Query::query(name("forged.example."), RecordType::HTTPS)];
                vec![forged.to_vec().unwrap(), right.to_vec().unwrap()]
            }
            Self::Half => {
                let whole = right.to_vec().unwrap();
                vec![whole[..whole.len() - 5].to_vec()]
            }
        }
    }

    fn address(self, query: &Message) -> Vec<u8> {
        let data = match query.queries.first().unwrap().query_type() {
            RecordType::A => RData::A(A(V4)),
            _ => RData::AAAA(AAAA(V6)),
        };
        let record = Record::from_rdata(name(NAME), 60, data);
        let records = if self == Self::Nothing { &[][..] } else { &[record] };
        response(query, records).to_vec().unwrap()
    }

    /// The message that answers the query over TCP.
    fn over_tcp(self, query: &Message, owner: &str) -> Vec<u8> {
        let way = if self == Self::Truncated { Self::Record } else { self };
        way.datagrams(query, owner).pop().unwrap()
    }
}

fn response(query: &Message, records: &[Record]) -> Message {
    let mut message = Message::response(query.metadata.id, query.metadata.op_code);
    message.add_queries(query.queries.clone());
    message.add_answers(records.to_vec());
    message
}

/// A name server that answers in one way until it is dropped. It has records only of the service `owner`.
struct Answerer {
    at: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Answerer {
    async fn start(way: AnswerWay, owner: &'static str) -> Self {
        // The UDP and TCP ports must be equal. The system chooses one, which may be in use for the other protocol.
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let at = udp.local_addr().unwrap();
        let check = move |query: &Message| {
            let asked = query.queries.first().unwrap();
            let expected = if asked.query_type() == RecordType::HTTPS { owner } else { NAME };
            assert_eq!(asked.name(), &name(expected));
        };
        let over_udp = tokio::spawn(async move {
            let udp = Arc::new(udp);
            let mut bytes = [0; 4096];
            while let Ok((len, client)) = udp.recv_from(&mut bytes).await {
                let query = Message::from_vec(&bytes[..len]).unwrap();
                check(&query);
                let late = matches!(way, AnswerWay::Late(kind) if kind == query.queries[0].query_type());
                let (udp, datagrams) = (Arc::clone(&udp), way.datagrams(&query, owner));
                tokio::spawn(async move {
                    sleep(if late { LATE } else { Duration::ZERO }).await;
                    for datagram in datagrams {
                        udp.send_to(&datagram, client).await.unwrap();
                    }
                });
            }
        });
        let over_tcp = tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                while let Ok(len) = stream.read_u16().await {
                    let mut bytes = vec![0; usize::from(len)];
                    stream.read_exact(&mut bytes).await.unwrap();
                    let query = Message::from_vec(&bytes).unwrap();
                    check(&query);
                    let answer = way.over_tcp(&query, owner);
                    stream.write_u16(answer.len() as u16).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        });
        Self { at, tasks: [over_udp, over_tcp] }
    }
}

/// Looks the name up with a server that answers in this way.
async fn look_up(way: AnswerWay, port: u16) -> io::Result<(Vec<IpAddr>, Option<Published>)> {
    let owner = if port == 80 { NAME } else { "_8080._https.www.example.com." };
    let server = Answerer::start(way, owner).await;
    let mut names = Names::at(server.at).unwrap();
    if way != AnswerWay::Silent {
        // Long enough for a busy machine.
        names.patience = Duration::from_secs(60);
    }
    names.look_up("www.example.com", port).await
}

/// Like `look_up`, for a name that has addresses. Returns what is published.
async fn found(way: AnswerWay, port: u16) -> Option<Published> {
    let (addresses, published) = look_up(way, port).await.unwrap();
    assert_eq!(addresses, [IpAddr::from(V6), IpAddr::from(V4)]);
    published
}

#[tokio::test]
async fn addresses_and_record_are_found_at_once() {
    assert_eq!(found(AnswerWay::Record, 80).await, Some(published_with(8080)));
    // Another port is a prefix of the name.
    assert_eq!(found(AnswerWay::Record, 8080).await, Some(published_with(8080)));
}

#[tokio::test]
async fn addresses_of_a_family_that_come_later_are_not_lost() {
    for late in [RecordType::A, RecordType::AAAA] {
        let server = Answerer::start(AnswerWay::Late(late), NAME).await;
        let names = Names::at(server.at).unwrap();
        let [v4, v6] = [IpAddr::from(V4), IpAddr::from(V6)];
        assert_eq!(names.all_addresses("www.example.com", true).await.unwrap(), [v4, v6]);
        assert_eq!(names.all_addresses("www.example.com", false).await.unwrap(), [v6, v4]);
    }
}

#[tokio::test]
async fn without_a_record_there_are_addresses_all_the_same() {
    for way in [AnswerWay::None, AnswerWay::NoName, AnswerWay::Failure, AnswerWay::Half, AnswerWay::Silent] {
        assert_eq!(found(way, 80).await, None);
    }
}

#[tokio::test]
async fn a_name_without_address_is_an_error() {
    let error = look_up(AnswerWay::Nothing, 80).await.unwrap_err();
    assert!(error.to_string().contains("no records found"), "{error}");
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_over_tcp() {
    assert_eq!(found(AnswerWay::Truncated, 80).await, Some(published_with(8080)));
}

#[tokio::test]
async fn answers_to_other_questions_are_not_believed() {
    assert_eq!(found(AnswerWay::AfterWrongTransaction, 80).await, Some(published_with(8080)));
    assert_eq!(found(AnswerWay::AfterWrongQuestion, 80).await, Some(published_with(8080)));
}
