//! Tests of what is recorded, and of the lines that are drawn from it.

use super::label::{LabelPart, label};
use super::picture::{Arrow, arrows};
use super::record::{Log, PacketPlace, TimelineHop};
use firstflight::link::VirtualTime;
use firstflight::{Time, block_on_virtual};
use firstflight_wire::SeqNum;
use firstflight_wire::ip::{self, Ecn, Protocol};
use firstflight_wire::tcp::{Flags, Header};
use std::time::Duration;

const RTT: Duration = Duration::from_millis(100);
/// A client's port.
const PORT: u16 = 40_000;

/// A segment between the client's `port` and the server.
fn packet(from: PacketPlace, port: u16, flags: Flags, data: &[u8]) -> Vec<u8> {
    let (client, server) = (super::super::CLIENT, super::super::COOKIES.ip());
    let of_client = from == PacketPlace::Client;
    let (src, dst) = if of_client { (client, server) } else { (server, client) };
    let (src_port, dst_port) = if of_client { (port, 80) } else { (80, port) };
    let (seq, ack) = (SeqNum::new(1), SeqNum::new(1));
    let mut segment = vec![0; 20];
    Header { src_port, dst_port, seq, ack, flags, window: 1000, urgent: 0 }.emit(&[], &mut segment).unwrap();
    segment.extend_from_slice(data);
    let (protocol, ecn) = (Protocol::Tcp, Ecn::NotEct);
    let header =
        ip::Header { src, dst, protocol, hop_limit: 64, ecn, dont_fragment: true, identification: 0 };
    let mut bytes = vec![0; header.len()];
    header.emit(segment.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(&segment);
    bytes
}

fn hop(from: PacketPlace, sent: f64, arrived: Option<f64>, parts: &[LabelPart]) -> TimelineHop {
    let to = if from == PacketPlace::Client { PacketPlace::Server } else { PacketPlace::Client };
    TimelineHop { from, to, sent, arrived, parts: parts.to_vec() }
}

/// Records what `visit` sends in virtual time.
fn recorded(visit: impl AsyncFnOnce(&Log, &Time)) -> Vec<TimelineHop> {
    let virtual_time = VirtualTime::new(Duration::ZERO);
    let time = Time::from(virtual_time.clone());
    let log = Log::new(time.clone(), RTT);
    block_on_virtual(&virtual_time, async {
        visit(&log, &time).await;
        log.end()
    })
    .unwrap()
}

#[test]
fn a_packet_that_arrives_has_both_times_and_one_that_does_not_is_lost() {
    let syn = packet(PacketPlace::Client, PORT, Flags::SYN, b"");
    let answers = [b"a", b"b"].map(|data| packet(PacketPlace::Server, PORT, Flags::SYN | Flags::ACK, data));
    let hops = recorded(async |log, time| {
        time.sleep(RTT).await;
        log.begin(true);
        log.sent(PacketPlace::Client, &syn);
        time.sleep(RTT / 2).await;
        log.arrived(&syn);
        for answer in &answers {
            log.sent(PacketPlace::Server, answer);
        }
        time.sleep(RTT / 2).await;
        log.arrived(&answers[1]);
        // Still on its way when the visit ends.
        log.sent(PacketPlace::Client, &packet(PacketPlace::Client, PORT, Flags::ACK, b""));
        time.sleep(RTT / 4).await;
    });
    let answer = [LabelPart::SynAck, LabelPart::Response];
    let expected = [
        hop(PacketPlace::Client, 0.0, Some(0.5), &[LabelPart::Syn]),
        hop(PacketPlace::Server, 0.5, None, &answer),
        hop(PacketPlace::Server, 0.5, Some(1.0), &answer),
    ];
    assert_eq!(hops, expected);
}

#[test]
fn of_two_equal_packets_the_one_arrives_that_had_the_time_to() {
    let syn = packet(PacketPlace::Client, PORT, Flags::SYN, b"");
    let hops = recorded(async |log, time| {
        log.begin(true);
        log.sent(PacketPlace::Client, &syn);
        time.sleep(RTT).await;
        log.sent(PacketPlace::Client, &syn);
        time.sleep(RTT / 4).await;
        log.sent(PacketPlace::Client, &syn);
        time.sleep(RTT / 4).await;
        log.arrived(&syn);
        time.sleep(RTT / 4).await;
        log.arrived(&syn);
    });
    let told: Vec<_> = hops.iter().map(|hop| (hop.sent, hop.arrived)).collect();
    assert_eq!(told, [(0.0, None), (1.0, Some(1.5)), (1.25, Some(1.75))]);
}

/// The last packets of a connection are sent when the next visit has begun.
#[test]
fn packets_of_an_earlier_visit_are_not_drawn() {
    let hops = recorded(async |log, time| {
        log.begin(false);
        log.sent(PacketPlace::Client, &packet(PacketPlace::Client, PORT, Flags::SYN, b""));
        assert_eq!(log.end(), []);
        log.begin(true);
        log.sent(PacketPlace::Server, &packet(PacketPlace::Server, PORT, Flags::FIN | Flags::ACK, b""));
        log.sent(PacketPlace::Client, &packet(PacketPlace::Client, PORT + 1, Flags::SYN, b""));
        time.sleep(RTT).await;
    });
    assert_eq!(hops, [hop(PacketPlace::Client, 0.0, None, &[LabelPart::Syn])]);
}

#[test]
fn a_long_response_does_not_grow_the_record_without_a_bound() {
    let hops = recorded(async |log, time| {
        log.begin(true);
        for _ in 0..5000 {
            log.sent(PacketPlace::Server, &packet(PacketPlace::Server, PORT, Flags::ACK, b"data"));
        }
        time.sleep(RTT).await;
    });
    assert_eq!(hops.len(), 1000);
}

#[test]
fn packets_that_travel_together_share_a_line_and_a_label() {
    let hops = [
        hop(PacketPlace::Client, 0.0, Some(0.5), &[LabelPart::Syn]),
        hop(PacketPlace::Server, 0.5, Some(1.0), &[LabelPart::SynAck]),
        hop(PacketPlace::Server, 0.501, Some(1.001), &[LabelPart::Response]),
        hop(PacketPlace::Server, 0.502, None, &[LabelPart::Response]),
        hop(PacketPlace::Server, 0.502, Some(1.002), &[LabelPart::Response]),
        hop(PacketPlace::Server, 1.5, Some(2.0), &[LabelPart::Response]),
        hop(PacketPlace::Client, 2.0, Some(2.5), &[LabelPart::Ack]),
    ];
    let drawn: Vec<_> =
        arrows(&hops, 2.0).into_iter().map(|Arrow { arrived, parts, .. }| (arrived, label(parts))).collect();
    let expected = [
        (Some(0.5), "SYN"),
        (Some(1.0), "SYN-ACK + response ×2"),
        (None, "response"),
        (Some(2.0), "response"),
    ];
    assert_eq!(drawn, expected.map(|(arrived, label)| (arrived, label.to_owned())));
}
