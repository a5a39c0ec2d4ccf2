//! Captures with known requests.

use super::{RequestCounts, count};
use crate::capture::Capture;
use crate::fixtures::{ends, packet, pcap, pcapng};
use firstflight_wire::tcp::{Flags, Header};
use firstflight_wire::{Instant, SeqNum};
use serde_json::Value;
use std::io::Cursor;
use std::net::SocketAddr;
use std::time::Duration;

const RTT: u64 = 100;
const SILENCE: Duration = Duration::from_millis(10);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A connection as its client sees it. `place` is where it is captured: 0 at the client, 1 at the server.
struct Chat {
    ends: (SocketAddr, SocketAddr),
    place: u64,
    seqs: [u32; 2],
    packets: Vec<(Instant, Vec<u8>)>,
}

impl Chat {
    fn new(port: u16, place: u64) -> Self {
        Self { ends: ends(false, port), place, seqs: [u32::MAX - 9, 70_000], packets: Vec::new() }
    }

    /// A segment that leaves the client, or arrives there, at `ms`.
    fn segment(mut self, ms: u64, client: bool, flags: Flags, data: &[u8]) -> Self {
        let away = self.place * RTT / 2;
        let at = if client { ms + away } else { ms - away };
        let (own, peer) = if client { (0, 1) } else { (1, 0) };
        let seq = self.seqs[own];
        let ack = if flags.contains(Flags::ACK) { self.seqs[peer] } else { 0 };
        let bytes = segment(flags, seq, ack, data);
        self.seqs[own] = seq.wrapping_add(data.len() as u32 + u32::from(flags.contains(Flags::SYN)));
        let (src, dst) = if client { self.ends } else { (self.ends.1, self.ends.0) };
        self.packets.push((Instant::from_millis(1_000_000 + at), packet(src, dst, &bytes)));
        self
    }

    fn client(self, ms: u64, data: &[u8]) -> Self {
        self.segment(ms, true, Flags::ACK | Flags::PSH, data)
    }

    fn server(self, ms: u64, data: &[u8]) -> Self {
        self.segment(ms, false, Flags::ACK | Flags::PSH, data)
    }

    /// The handshake from 1000 ms on.
    fn open(self) -> Self {
        self.segment(1000, true, Flags::SYN, b"")
            .segment(1000 + RTT, false, Flags::SYN | Flags::ACK, b"")
            .segment(1000 + RTT, true, Flags::ACK, b"")
    }

    /// Sends the last segment again.
    fn again(mut self, later: u64) -> Self {
        let (at, bytes) = self.packets.last().unwrap().clone();
        self.packets.push((at + Duration::from_millis(later), bytes));
        self
    }

    fn lose_last(mut self) -> Self {
        self.packets.pop();
        self
    }

    fn counted(self) -> Value {
        stats(self.packets)
    }
}

fn segment(flags: Flags, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    let (seq, ack) = (SeqNum::new(seq), SeqNum::new(ack));
    let header = Header { src_port: 1, dst_port: 2, seq, ack, flags, window: 1000, urgent: 0 };
    let mut bytes = vec![0; 60];
    let length = header.emit(&[], &mut bytes).unwrap();
    bytes.truncate(length);
    bytes.extend_from_slice(data);
    bytes
}

fn stats(mut packets: Vec<(Instant, Vec<u8>)>) -> Value {
    packets.sort_by_key(|(at, _)| *at);
    stats_of(&pcapng(&packets), 100)
}

fn stats_of(file: &[u8], limit: usize) -> Value {
    let counted = count(limit, Capture::open(Cursor::new(file)).unwrap(), SILENCE);
    let text = counted.tally.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(counted.tally.svg().ends_with("</svg>\n"));
    serde_json::to_value(counted.record()).unwrap()
}

fn number(record: &Value, name: &str) -> u64 {
    record[name].as_u64().unwrap_or_else(|| panic!("{name} in {record}"))
}

fn near(record: &Value, name: &str, expected: f64) {
    let found = record[name].as_f64().unwrap_or_else(|| panic!("{name} in {record}"));
    assert!((found - expected).abs() < 1e-5, "{name}: {found}, not {expected}");
}

fn at(record: &Value, percentile: usize, name: &str) -> f64 {
    record["percentiles"][percentile][name].as_f64().unwrap()
}

#[test]
fn the_place_of_the_capture_does_not_matter() {
    for place in 0..=1 {
        let chat = Chat::new(40_000, place).open();
        // The browser had opened the connection before it needed it.
        let chat = chat.client(1200, GET).server(1380, b"HTTP/1.1 200 OK\r\n\r\n").server(1400, &[b'x'; 900]);
        let chat = chat.client(3000, GET).server(3100, b"HTTP/1.1 304 Not Modified\r\n\r\n");
        let record = chat.counted();
        assert_eq!((number(&record, "requests_cold"), number(&record, "requests_warm")), (1, 1), "{record}");
        assert_eq!((number(&record, "requests_http"), number(&record, "requests_timed")), (2, 2));
        near(&record, "new_connection_share", 0.5);
        // Cold: 100 + 200 ms. Warm: 100 ms.
        near(&record, "handshake_share_cold", 1.0 / 3.0);
        near(&record, "handshake_share_all", 0.25);
        let times = [
            at(&record, 50, "cold_ms"),
            at(&record, 50, "cold_without_handshake_ms"),
            at(&record, 0, "all_ms"),
        ];
        for (found, expected) in times.into_iter().zip([300.0, 200.0, 100.0]) {
            assert!((found / expected - 1.0_f64).abs() < 0.006, "{found}, not {expected}, at {place}");
        }
        let server = &record["servers"][0];
        assert_eq!(server["server"], "10.9.0.2:80");
        near(server, "handshake_share_all", 0.25);
    }
}

#[test]
fn a_repeated_syn_is_part_of_the_handshake() {
    let mut chat = Chat::new(40_000, 0).segment(1000, true, Flags::SYN, b"").again(1000).again(3000);
    chat.seqs[0] = u32::MAX - 8;
    let chat = chat.segment(5100, false, Flags::SYN | Flags::ACK, b"").segment(5100, true, Flags::ACK, b"");
    let record = chat.client(5100, GET).server(5200, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!((number(&record, "syn_repeated"), number(&record, "opened")), (1, 1));
    near(&record, "syn_wait_ms", 4000.0);
    near(&record, "handshake_share_cold", 4100.0 / 4200.0);
}

#[test]
fn connections_without_beginning_are_not_timed() {
    let chat = Chat::new(40_000, 0).client(1000, GET).server(1100, b"HTTP/1.1 200 OK\r\n\r\n");
    let record = chat.client(2000, GET).server(2100, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!((number(&record, "begun_before"), number(&record, "requests_unknown")), (1, 1), "{record}");
    assert_eq!((number(&record, "requests_cold"), number(&record, "requests_warm")), (0, 1));
    assert_eq!((number(&record, "requests_timed"), &record["handshake_share_all"]), (0, &Value::Null));
    // The server's segment comes first: the client is the end that asks.
    let chat = Chat::new(40_000, 0).server(900, b"the end of a body");
    let record = chat.client(1000, GET).server(1100, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!(
        (number(&record, "requests_http"), &record["servers"][0]["server"]),
        (1, &"10.9.0.2:80".into())
    );
    // Only the SYN is missing: it is a new connection.
    let chat = Chat::new(40_000, 0).segment(1000, true, Flags::SYN, b"").lose_last();
    let chat = chat.segment(1100, false, Flags::SYN | Flags::ACK, b"").segment(1100, true, Flags::ACK, b"");
    let record = chat.client(1100, GET).server(1200, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!((number(&record, "requests_cold"), number(&record, "requests_timed")), (1, 0));
    assert_eq!((number(&record, "begun_before"), number(&record, "not_opened")), (0, 1));
}

#[test]
fn connections_that_never_open_have_no_requests() {
    let refused = Chat::new(40_000, 0).segment(1000, true, Flags::SYN, b"").segment(
        1100,
        false,
        Flags::RST | Flags::ACK,
        b"",
    );
    let silent = Chat::new(40_001, 0).segment(1000, true, Flags::SYN, b"").again(1000);
    let record = stats([refused.packets, silent.packets].concat());
    assert_eq!((number(&record, "connections"), number(&record, "not_opened")), (2, 2));
    assert_eq!((number(&record, "requests_cold"), number(&record, "syn_repeated")), (0, 1));
}

#[test]
fn what_is_sent_or_captured_twice_counts_once() {
    let chat = Chat::new(40_000, 0).open().client(1100, GET).again(300);
    let chat = chat.server(1500, b"HTTP/1.1 200 OK\r\n\r\n").again(200).again(201);
    let record = chat.counted();
    assert_eq!((number(&record, "requests_http"), number(&record, "with_gaps")), (1, 0));
    // Until the first copy of the last byte.
    near(&record, "handshake_share_cold", 100.0 / 500.0);
}

#[test]
fn data_that_the_capture_lacks_is_reported() {
    let chat = Chat::new(40_000, 0).open().client(1100, GET).server(1200, b"HTTP/1.1 200 OK\r\n\r\n");
    let record = chat.server(1210, &[1; 500]).lose_last().server(1300, &[1; 500]).counted();
    assert_eq!((number(&record, "with_gaps"), number(&record, "requests_timed")), (1, 1));
    near(&record, "handshake_share_cold", 100.0 / 300.0);
}

#[test]
fn requests_before_the_answer_are_counted_and_not_timed() {
    let twice = [GET, GET].concat();
    let chat = Chat::new(40_000, 0).open().client(1100, &twice).client(1110, GET);
    let chat = chat.server(1300, &[b'x'; 1000]).client(2000, GET).server(2100, &[b'x'; 10]);
    let record = chat.counted();
    assert_eq!((number(&record, "requests_cold"), number(&record, "requests_warm")), (1, 3), "{record}");
    assert_eq!((number(&record, "requests_pipelined"), number(&record, "requests_timed")), (3, 1));
    assert_eq!(number(&record, "requests_unanswered"), 0);
}

fn tls(kind: u8, length: u16) -> Vec<u8> {
    let mut bytes = vec![kind, 3, 3];
    bytes.extend(length.to_be_bytes());
    bytes.resize(5 + usize::from(length), 0xaa);
    bytes
}

#[test]
fn bursts_after_silence_are_requests_of_tls() {
    for place in 0..=1 {
        let chat = Chat::new(40_000, place).open().client(1100, &tls(22, 500)).server(1220, &tls(22, 900));
        // Finished and request in one segment.
        let end = [tls(20, 1), tls(23, 53), tls(23, 300)].concat();
        let chat = chat.client(1221, &end).server(1400, &tls(23, 900));
        // HTTP/2's small answers during a response are no requests.
        let chat = chat.client(1401, &tls(23, 35)).server(1521, &tls(23, 900)).client(1522, &tls(23, 35));
        let chat = chat.client(1700, &tls(23, 200)).server(1850, &tls(23, 900));
        // The client closes.
        let record = chat.client(5000, &tls(21, 19)).counted();
        assert_eq!((number(&record, "requests_cold"), number(&record, "requests_warm")), (1, 1), "{record}");
        assert_eq!(number(&record, "requests_tls"), 2);
        // 100 ms of TCP, 121 of TLS, 300 of the exchange; then 150.
        near(&record, "handshake_share_cold", 100.0 / 521.0);
        near(&record, "tls_share_cold", 121.0 / 521.0);
        near(&record, "handshake_share_all", 100.0 / 671.0);
    }
}

#[test]
fn a_request_in_an_accepted_syn_waits_for_no_handshake() {
    let chat = Chat::new(40_000, 0).segment(1000, true, Flags::SYN, GET);
    let chat = chat.segment(1100, false, Flags::SYN | Flags::ACK, b"").segment(1100, true, Flags::ACK, b"");
    let record = chat.server(1150, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!((number(&record, "requests_cold"), number(&record, "requests_in_syn")), (1, 1), "{record}");
    near(&record, "handshake_share_cold", 0.0);
    assert!((at(&record, 50, "all_ms") / 150.0 - 1.0).abs() < 0.006);
    // Refused: the SYN-ACK acknowledges the SYN alone, and the request goes again.
    let mut chat = Chat::new(40_000, 0).segment(1000, true, Flags::SYN, GET);
    chat.seqs[0] = chat.seqs[0].wrapping_sub(GET.len() as u32);
    let chat = chat.segment(1100, false, Flags::SYN | Flags::ACK, b"").client(1100, GET);
    let record = chat.server(1200, b"HTTP/1.1 200 OK\r\n\r\n").counted();
    assert_eq!((number(&record, "requests_cold"), number(&record, "requests_in_syn")), (1, 0), "{record}");
    near(&record, "handshake_share_cold", 0.5);
}

#[test]
fn ports_are_used_again_and_memory_is_bounded() {
    let visit = |port, later: u64, isn: u32| {
        let mut chat = Chat::new(port, 0);
        chat.seqs[0] = isn;
        let chat = chat.open().client(1100, GET).server(1200, b"HTTP/1.1 200 OK\r\n\r\n");
        let moved = chat.packets.into_iter().map(move |(at, bytes)| (at + Duration::from_secs(later), bytes));
        moved.collect::<Vec<_>>()
    };
    let record = stats([visit(40_000, 0, 1), visit(40_000, 100, 900_000)].concat());
    assert_eq!((number(&record, "connections"), number(&record, "requests_cold")), (2, 2));
    let all: Vec<_> = (0..50).flat_map(|n| visit(41_000 + n, u64::from(n), 1)).collect();
    let record = stats_of(&pcapng(&all), 3);
    assert_eq!((number(&record, "connections"), number(&record, "requests_timed")), (50, 50));
    near(&record, "handshake_share_cold", 0.5);
}

#[test]
fn ipv6_and_tags_of_vlans() {
    let mut chat = Chat::new(40_000, 0);
    chat.ends = ends(true, 40_000);
    let chat = chat.open().client(1100, GET).server(1200, b"HTTP/1.1 200 OK\r\n\r\n");
    let tagged = chat.packets.iter().map(|(at, bytes)| {
        let head = [&[2; 12][..], &[0x81, 0, 0, 7, 0x86, 0xdd]].concat();
        (u32::try_from(at.as_micros() - 1_000_000_000).unwrap(), [head, bytes.clone()].concat())
    });
    let record = stats_of(&pcap(false, 1, &tagged.collect::<Vec<_>>()), 9);
    assert_eq!((number(&record, "ipv6"), number(&record, "requests_timed")), (1, 1), "{record}");
    near(&record, "handshake_share_cold", 0.5);
}

/// Whatever is in the file, the program does not panic.
#[test]
fn damaged_captures_are_counted_as_far_as_they_go() {
    let chat = Chat::new(40_000, 0).open().client(1100, &tls(22, 500)).client(1200, GET);
    let file = pcapng(&chat.packets);
    for at in (0..file.len()).step_by(3) {
        let mut broken = file.clone();
        broken[at] ^= 0x41;
        if let Ok(capture) = Capture::open(Cursor::new(&broken)) {
            count(10, capture, SILENCE);
        }
    }
    let cut = &file[..file.len() - 3];
    let RequestCounts { missing, tally } = count(10, Capture::open(Cursor::new(cut)).unwrap(), SILENCE);
    assert!(missing.damage.is_some() && tally.segments == 4);
}
