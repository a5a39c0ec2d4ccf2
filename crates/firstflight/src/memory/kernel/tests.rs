use super::*;

const AGO: Duration = Duration::from_millis(100);
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[test]
fn the_delay_follows_the_round_trip_time() {
    let ms = Duration::from_millis;
    assert_eq!(race_delay(ms(1), ms(0)), ms(50));
    assert_eq!(race_delay(ms(100), ms(10)), ms(200));
    assert_eq!(race_delay(ms(100), ms(50)), ms(300));
    assert_eq!(race_delay(ms(600), ms(0)), ms(1000));
    assert_eq!(Memory::new(NetworkId::UNKNOWN).race_delay(SERVER), None);
}

#[test]
fn the_wait_for_a_lost_answer_is_no_round_trip_time() {
    let ms = Duration::from_millis;
    assert!(is_exact(0, false, ms(20)) && is_exact(0, true, ms(1500)));
    // The SYN was lost, or its answer.
    assert!(is_exact(1, true, ms(20)) && !is_exact(1, true, ms(1020)));
    assert!(!is_exact(1, false, ms(20)));
}

#[test]
fn one_lost_race_is_no_failure_and_two_are() {
    let mut memory = Memory::new(NetworkId([1; 16]));
    memory.lost_race(SERVER, AGO);
    // This one was under way at the same time.
    memory.lost_race(SERVER, AGO);
    assert_eq!(memory.permission(SERVER), Permission::Everything);
    memory.lost_race(SERVER, Duration::ZERO);
    assert_ne!(memory.permission(SERVER), Permission::Everything);
    // It belongs to the network.
    memory.move_to(NetworkId([2; 16]));
    assert_eq!(memory.permission(SERVER), Permission::Everything);
    memory.lost_race(SERVER, AGO);
    assert_eq!(memory.permission(SERVER), Permission::Everything);
}

#[test]
fn an_accepted_first_flight_ends_the_count() {
    let mut memory = Memory::new(NetworkId([1; 16]));
    memory.lost_race(SERVER, AGO);
    memory.accepted(SERVER, AGO * 2);
    memory.lost_race(SERVER, Duration::ZERO);
    assert_eq!(memory.permission(SERVER), Permission::Everything);
}

/// The server was overloaded, and lost one first flight of several.
#[test]
fn a_lost_race_does_not_count_if_a_later_first_flight_was_accepted() {
    let mut memory = Memory::new(NetworkId([1; 16]));
    for _ in 0..5 {
        memory.accepted(SERVER, AGO);
        memory.lost_race(SERVER, AGO * 3);
    }
    assert_eq!(memory.permission(SERVER), Permission::Everything);
    // These left later than each that was accepted.
    memory.lost_race(SERVER, Duration::ZERO);
    memory.lost_race(SERVER, Duration::ZERO);
    assert_ne!(memory.permission(SERVER), Permission::Everything);
}

#[test]
fn a_closed_port_is_known_until_it_answers() {
    let mut memory = Memory::new(NetworkId([1; 16]));
    let [port, other] = [80, 81].map(|port| SocketAddr::new(SERVER, port));
    memory.note_closed(port);
    assert!(memory.was_closed(port) && !memory.was_closed(other));
    memory.move_to(NetworkId([2; 16]));
    assert!(!memory.was_closed(port), "known on another network");
    memory.move_to(NetworkId([1; 16]));
    memory.raced(port, &[]);
    assert!(!memory.was_closed(port));
}

#[test]
fn memory_is_bounded() {
    let mut memory = Memory::new(NetworkId::UNKNOWN);
    for n in 0..=SERVERS as u32 {
        memory.lost_race(std::net::Ipv4Addr::from_bits(n).into(), AGO);
    }
    assert_eq!(memory.servers.len(), SERVERS);
}
