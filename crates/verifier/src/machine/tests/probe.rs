//! Probes from another address.

use super::*;

/// Probes go only to a proved address, count for the same limits as certificates, and are never sent for a
/// connection.
#[test]
fn a_probe_comes_from_elsewhere_and_only_behind_a_challenge() {
    let source = "192.0.2.9:4434".parse().unwrap();
    let mut bench = Bench::new(Config { probe_from: vec![source], ..plain() });
    let (id, nonce) = (TransactionId([1; 8]), [2; 8]);
    let first = ProbeRequest::new(id, None, nonce).to_bytes();
    let Some(Message::Challenge(challenge)) = bench.datagram(CLIENT, &first) else { panic!() };
    assert_eq!(challenge.seen, CLIENT.parse().unwrap());
    let second = ProbeRequest::new(id, Some(challenge.challenge), nonce).to_bytes();
    let from = |bench: &mut Bench, from: &str, bytes: &[u8]| {
        bench.verifier.handle_datagram(&bench.clock, from.parse().unwrap(), bytes, &mut bench.rng)
    };
    let Some(Answer::Probe(probe)) = from(&mut bench, CLIENT, &second) else { panic!() };
    assert_eq!(Message::parse(&probe), Ok(Message::Probe(Probe { transaction: id, nonce })));
    // The request comes from another address, has another nonce, or comes over a connection.
    let Some(Answer::Reply(_)) = from(&mut bench, "198.51.100.7:40001", &second) else { panic!() };
    let other = ProbeRequest::new(id, Some(challenge.challenge), [3; 8]).to_bytes();
    let Some(Answer::Reply(_)) = from(&mut bench, CLIENT, &other) else { panic!() };
    let client = CLIENT.parse().unwrap();
    assert!(bench.verifier.handle_stream(&bench.clock, client, &second, &mut bench.rng).is_none());
    assert_eq!((bench.counters().probes, bench.counters().challenges), (1, 3));
    // There is no source address of the other family.
    let v6 = "[2001:db8::1]:40000";
    let Some(Message::Challenge(challenge)) = bench.datagram(v6, &first) else { panic!() };
    let second = ProbeRequest::new(id, Some(challenge.challenge), nonce).to_bytes();
    let Some(Message::Refused(refused)) = bench.datagram(v6, &second) else { panic!() };
    assert_eq!(refused.reason, Reason::NoProbe);
    // At most as often as its network may ask.
    let mut bench = Bench::new(Config { probe_from: vec![source], limits: Limits::default(), ..plain() });
    let Some(Message::Challenge(challenge)) = bench.datagram(CLIENT, &first) else { panic!() };
    let second = ProbeRequest::new(id, Some(challenge.challenge), nonce).to_bytes();
    for _ in 0..1000 {
        bench.datagram(CLIENT, &second);
    }
    let burst = u64::from(Limits::default().v4.burst);
    assert_eq!((bench.counters().probes, bench.counters().refused_in_all()), (burst, 1000 - burst));
    assert!(Config { probe_from: vec![source; 2], ..plain() }.validate().is_err());
}
