//! Whole captures. One of them has real connections of the engine.

use super::capture::Capture;
use super::explained::{Explained, explain_within};
use super::fixtures::*;
use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight::link::{PathConfig, PcapTap, Tapped, VirtualTime, virtual_time_pair};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, Time, block_on_virtual};
use firstflight_wire::Instant;
use firstflight_wire::icmp::IcmpErrorKind;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DATA: &[u8] = b"request";
const ALL: u32 = DATA.len() as u32;

pub(crate) struct Told {
    pub lines: Vec<String>,
    pub records: Vec<Value>,
    pub rest: Explained,
}

pub(crate) fn tell(file: &[u8], limit: usize) -> Told {
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    let rest = explain_within(limit, Capture::open(file).unwrap(), |report| {
        lines.push(report.to_string());
        records.push(serde_json::to_value(report.record()).unwrap());
    });
    Told { lines, records, rest }
}

impl Told {
    pub(crate) fn column(&self, name: &str) -> Vec<&Value> {
        self.records.iter().map(|record| &record[name]).collect()
    }

    pub(crate) fn summary(&self) -> Value {
        serde_json::to_value(self.rest.record()).unwrap()
    }

    pub(crate) fn hint(&self) -> String {
        self.rest.summary.hint().unwrap_or_default()
    }
}

pub(crate) type Packets = Vec<(Instant, Vec<u8>)>;

fn first_visit(port: u16, start_ms: u64) -> Packets {
    visit(false, port, start_ms, syn(&request(), &[]), syn_ack(0, &cookie(&COOKIE), &[]))
}

fn next_visit(port: u16, start_ms: u64) -> Packets {
    visit(false, port, start_ms, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]))
}

fn plain_visit(port: u16, start_ms: u64) -> Packets {
    visit(true, port, start_ms, syn(&[], &[]), syn_ack(0, &[], &[]))
}

#[test]
fn three_visits_as_people_read_them() {
    let file = pcapng(&[plain_visit(3, 5000), first_visit(1, 5200), next_visit(2, 6000)].concat());
    let told = tell(&file, 100);
    assert_eq!(
        told.lines,
        [
            "    0.000 s  [fd09::1]:3 → [fd09::2]:80  handshake (not-requested)\n             \
             first byte after 2.00 RTT (100.0 ms)",
            "    0.200 s  10.9.0.1:1 → 10.9.0.2:80  handshake (no-credential)\n             \
             in the SYN: a cookie request; cookie 0102030405060708 granted; first byte after 2.00 RTT (100.0 ms)",
            "    1.000 s  10.9.0.1:2 → 10.9.0.2:80  accepted\n             \
             in the SYN: 7 bytes, cookie 0102030405060708; all acknowledged; first byte after 2.00 RTT (100.0 ms)",
        ]
    );
    assert_eq!(
        told.rest.summary.to_string(),
        "3 connections, 2 asked for Fast Open, 1 accepted\n  \
         1 accepted: the first flight was accepted\n  \
         1 not-requested: the application did not ask for it\n  \
         1 no-credential: the client has no credential for this server yet, and asks for one"
    );
    assert!(told.rest.missing.is_nothing());
}

#[test]
fn a_visit_as_programs_read_it() {
    let told = tell(&pcapng(&next_visit(2, 6000)), 100);
    let expected = json!({
        "start_unix_ms": 6000.0, "client": "10.9.0.1:2", "server": "10.9.0.2:80", "udp": null,
        "outcome": "accepted", "reason": null, "option": "cookie", "form": "34",
        "cookie": "0102030405060708", "granted": null, "syn_bytes": 7, "acked_bytes": 7,
        "syn_retransmits": 0, "asap": null, "seal": null, "rtt_ms": 50.0, "first_byte_ms": 100.0, "first_byte_rtts": 2.0, "notes": [],
    });
    assert_eq!(told.records, [expected]);
    let expected = json!({
        "connections": 1, "asked": 1, "probed": 0, "certified": 0, "accepted": 1, "outcomes": {"accepted": 1},
        "began_before": 0, "translated": 0, "hint": null, "damage": null,
    });
    assert_eq!(told.summary(), expected);
}

#[test]
fn old_connections_make_room_and_are_told() {
    let visits: Packets = (1..=50).flat_map(|n| first_visit(n, u64::from(n) * 1000)).collect();
    let told = tell(&pcapng(&visits), 3);
    let clients: Vec<_> = (1..=50).map(|n| format!("10.9.0.1:{n}")).collect();
    assert_eq!(told.column("client"), clients.iter().collect::<Vec<_>>());
    assert_eq!(told.summary()["outcomes"], json!({"no-credential": 50}));
}

#[test]
fn a_port_used_again_is_told_twice() {
    // With another sequence number, the second SYN is not a repetition of the first one.
    let again = visit(false, 1, 9000, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]));
    let again: Packets = again
        .into_iter()
        .map(|(at, mut packet)| {
            let from_client = packet[12..16] == [10, 9, 0, 1];
            let field = if from_client { 24 } else { 28 };
            let seq = u32::from_be_bytes(packet[field..field + 4].try_into().unwrap());
            packet[field..field + 4].copy_from_slice(&seq.wrapping_add(500_000).to_be_bytes());
            (at, packet)
        })
        .collect();
    let told = tell(&pcapng(&[first_visit(1, 1000), again].concat()), 100);
    assert_eq!(told.column("outcome"), ["handshake", "accepted"]);
}

#[test]
fn connections_that_began_before_are_only_counted() {
    let late: Packets = [first_visit(1, 0).split_off(2), next_visit(2, 10)].concat();
    let told = tell(&pcapng(&late), 100);
    assert_eq!(told.column("client"), ["10.9.0.1:2"]);
    assert_eq!(told.summary()["began_before"], 1);
    assert!(told.rest.summary.to_string().contains("1 more connection began before the capture"));
}

#[test]
fn an_icmp_error_finds_its_connection() {
    let mut packets = next_visit(2, 0);
    packets.truncate(1);
    let (client, server) = ends(false, 2);
    let message = icmp_error(IcmpErrorKind::AdminProhibited, server, client, &packets[0].1);
    packets.push((Instant::from_millis(9), message));
    let told = tell(&pcapng(&packets), 100);
    assert_eq!(told.column("reason"), ["unknown"]);
    assert_eq!(told.records[0]["notes"][0]["note"], "icmp-error");
    assert!(told.lines[0].contains("ICMP error: administratively prohibited"), "{}", told.lines[0]);
}

#[test]
fn a_refused_visit_is_not_said_to_have_no_answer() {
    let (client, server) = ends(false, 2);
    let mut packets = next_visit(2, 0);
    packets.truncate(1);
    packets.push((Instant::from_millis(9), packet(server, client, &rst(CLIENT.other()))));
    let told = tell(&pcapng(&packets), 100);
    assert_eq!(told.column("reason"), ["unknown"]);
    let all = format!("{}\n{}", told.lines[0], told.rest.summary);
    assert!(all.contains("refused by RST") && !all.contains("no answer"), "{all}");
}

#[test]
fn link_types_that_cannot_be_read_are_named() {
    let told = tell(&pcap(false, 105, &[(1, vec![0; 64])]), 100);
    assert_eq!(told.rest.missing.unread.map(|link| link.0), Some(105));
    assert_eq!(told.summary()["connections"], 0);
}

#[test]
fn hints_name_what_goes_wrong_every_time() {
    let twice = |one: &dyn Fn(u16, u64) -> Packets| tell(&pcapng(&[one(1, 0), one(2, 5000)].concat()), 100);
    assert_eq!(twice(&first_visit).hint(), "");
    assert_eq!(twice(&next_visit).hint(), "");
    assert!(twice(&plain_visit).hint().contains("no connection asked"));
    let answered = |option: Vec<u8>, data: &'static [u8], grant: Vec<u8>| {
        move |port, start| visit(false, port, start, syn(&option, data), syn_ack(0, &grant, &[]))
    };
    let ungranted = twice(&answered(request(), &[], vec![]));
    assert!(
        ungranted.hint().contains("10.9.0.2 granted no cookie to any of 2 requests"),
        "{}",
        ungranted.hint()
    );
    let stale = twice(&answered(cookie(&COOKIE), DATA, cookie(&FRESH)));
    assert!(stale.hint().contains("10.9.0.2 recognised none of 2 cookies"), "{}", stale.hint());
    let ignored = twice(&answered(cookie(&COOKIE), DATA, vec![]));
    assert!(ignored.hint().contains("took the data of none of 2 SYNs"), "{}", ignored.hint());
    let timed_out = |port, start| {
        let (client, server) = ends(false, port);
        let plain = visit(false, port, start + 1000, syn(&[], &[]), syn_ack(0, &[], &[]));
        let lost = packet(client, server, &syn(&cookie(&COOKIE), DATA));
        [vec![(Instant::from_millis(start), lost)], plain].concat()
    };
    let told = twice(&timed_out);
    assert!(told.hint().contains("all 2 SYNs with Fast Open to 10.9.0.2 got no answer"), "{}", told.hint());
    assert!(told.rest.summary.to_string().ends_with(&told.hint()));
    // One failure is an accident, and one success is enough.
    assert_eq!(tell(&pcapng(&timed_out(1, 0)), 100).hint(), "");
    assert_eq!(
        tell(&pcapng(&[timed_out(1, 0), timed_out(2, 5000), next_visit(3, 9000)].concat()), 100).hint(),
        ""
    );
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records two visits with Fast Open at both ends. Returns the client's and the server's capture.
async fn record_two_visits(virtual_time: &VirtualTime) -> [Vec<u8>; 2] {
    let path = PathConfig::with_delay(Duration::from_millis(5));
    let (near, far) = virtual_time_pair(path.clone(), path, 1, virtual_time).unwrap();
    let time = Time::from(virtual_time.clone());
    let files = [Shared::default(), Shared::default()];
    let [client_tap, server_tap] = [0, 1].map(|n: usize| {
        let clock = virtual_time.clone();
        PcapTap::with_clock(files[n].clone(), "test", &["end"], move || clock.unix()).unwrap()
    });
    let config = |ip: &str| firstflight::config(vec![ip.parse().unwrap()]).unwrap();
    let client = Endpoint::in_time(config("10.0.0.1"), Tapped::new(near, client_tap.clone(), 0), &time);
    let server = Endpoint::in_time(config("10.0.0.2"), Tapped::new(far, server_tap.clone(), 0), &time);
    let at = SocketAddr::from(([10, 0, 0, 2], 80));
    let mut listen = ListenConfig::new(at);
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
    let listener = server.listen(listen).unwrap();
    let fast = ConnectConfig::default().fast_open(true);
    for _ in 0..2 {
        let (stream, served) =
            tokio::join!(client.connect(at, FirstFlight::safely_replayable(DATA), &fast), listener.accept());
        let (mut stream, mut served) = (stream.unwrap(), served.unwrap());
        served.read_exact(&mut [0; DATA.len()]).await.unwrap();
        served.write_all(b"response").await.unwrap();
        served.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }
    client_tap.flush().unwrap();
    server_tap.flush().unwrap();
    files.map(|file| file.0.lock().unwrap().clone())
}

#[test]
fn both_ends_captures_of_the_engine_tell_the_same() {
    let time = VirtualTime::new(Duration::from_secs(1));
    for file in block_on_virtual(&time, record_two_visits(&time)).unwrap() {
        let told = tell(&file, 100);
        assert_eq!(told.column("outcome"), ["handshake", "accepted"]);
        assert_eq!(told.column("reason"), [&json!("no-credential"), &Value::Null]);
        assert_eq!(told.column("syn_bytes"), [0, 7]);
        assert_eq!(told.column("acked_bytes"), [0, 7]);
        assert_eq!(told.records[0]["granted"], told.records[1]["cookie"]);
        assert!(told.records.iter().all(|record| record["first_byte_rtts"].is_f64()));
    }
}
