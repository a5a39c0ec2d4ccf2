use super::super::fixtures::*;
use super::super::tests::tell;
use super::*;
use firstflight_seal::REJECT;
use firstflight_wire::tcp::Flags;
use serde_json::json;

const FLIGHT: &[u8] = &[0xff, 0x53, 0x11, 3, 2, 0, 1, 2, 3];
const TLS: &[u8] = &[22, 3, 3, 0, 5, 2];

fn sealed(acked: u32, answer: &[u8]) -> Option<Sealed> {
    let scene = Scene::default().client(0, syn(&cookie(&[1; 8]), FLIGHT));
    scene.server(9, syn_ack(acked, &[], answer)).verdict().sealed
}

#[test]
fn what_the_first_bytes_say() {
    let of = |answer, outcome| Some(Sealed { key_id: 3, bytes: 518, answer, outcome });
    let all = FLIGHT.len() as u32;
    assert_eq!(sealed(all, &REJECT), of(FlightAnswer::Reject, Some(Outcome::StaleKey)));
    assert_eq!(sealed(all, TLS), of(FlightAnswer::Tls, None));
    assert_eq!(sealed(0, TLS), of(FlightAnswer::Tls, Some(Outcome::TransportRefused)));
    assert_eq!(sealed(all, b"HTTP/1.1"), of(FlightAnswer::Other, None));
    assert_eq!(sealed(all, &[]), of(FlightAnswer::None, Some(Outcome::Unknown)));
    let plain = Scene::default().client(0, syn(&cookie(&[1; 8]), TLS)).server(9, syn_ack(6, &[], TLS));
    assert_eq!(plain.verdict().sealed, None);
}

#[test]
fn a_flight_behind_a_block_or_the_handshake_is_found() {
    let flight = [&credential(63_250), FLIGHT].concat();
    let scene = Scene::default().client(0, syn(&asap_option(), &flight)).server(9, syn_ack(0, &[], &[]));
    assert_eq!(scene.verdict().sealed.unwrap().key_id, 3);
    let later = Scene::default()
        .client(0, syn(&[], &[]))
        .server(9, syn_ack(0, &[], &[]))
        .client(18, segment(CLIENT, Flags::ACK, CLIENT_ISN + 1, SERVER_ISN + 1, &[], FLIGHT))
        .server(27, reply());
    assert_eq!(later.verdict().sealed.unwrap().answer, FlightAnswer::Other);
}

#[test]
fn it_is_told_in_words_and_as_json() {
    let packets = visit(false, 7, 0, syn(&cookie(&[1; 8]), FLIGHT), syn_ack(9, &[], &REJECT));
    let told = tell(&pcapng(&packets), 10);
    assert_eq!(
        told.records[0]["seal"],
        json!({"key_id": 3, "bytes": 518, "answer": "reject", "outcome": "stale-key"})
    );
    assert!(told.lines[0].contains("REJECT"), "{}", told.lines[0]);
}
