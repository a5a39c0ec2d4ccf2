use super::stops::{LONGEST, MAX_STOPS};
use super::*;

const HOME: NetworkId = NetworkId([1; 16]);
const NOW: Instant = Instant::from_secs(1_000_000);
const SERVFAIL: Echo = Echo::Failed(2);
const NXDOMAIN: Echo = Echo::Failed(3);
const REFUSED: Echo = Echo::Failed(5);
/// Names of a first flight in these tests, without spare.
const NAMES: usize = 6;
const MINUTES: Duration = Duration::from_secs(60);

fn zone(name: &[u8]) -> Zone<'_> {
    Zone::new(name).unwrap()
}

const A: &[u8] = b"\x01a\0";
const B: &[u8] = b"\x01b\0";
const C: &[u8] = b"\x01c\0";
const D: &[u8] = b"\x01d\0";

fn resolver() -> IpAddr {
    [127, 0, 0, 53].into()
}

fn at(ms: u64) -> Instant {
    NOW + Duration::from_millis(ms)
}

/// A client at home with one resolver.
#[derive(Default)]
struct Client(Manners);

impl Client {
    fn take(&mut self, name: &[u8], now: Instant) -> Result<FlightId, Restraint> {
        self.0.take(zone(name), HOME, resolver(), now)
    }

    /// A first flight of six names leaves.
    fn leaves(&mut self, name: &[u8], now: Instant) -> FlightId {
        let id = self.take(name, now).unwrap();
        self.0.handle_departure(id, NAMES, 0, now);
        id
    }

    fn answers(&mut self, id: FlightId, echoes: &[Echo], now: Instant) -> Option<Duration> {
        echoes.iter().fold(None, |stopped, echo| stopped.or(self.0.handle_answer(id, *echo, now)))
    }

    /// A first flight that gets these answers after 60 ms, and no others within 5 s.
    fn flies(&mut self, name: &[u8], echoes: &[Echo], now: Instant) -> Option<Duration> {
        let id = self.leaves(name, now);
        let stopped = self.answers(id, echoes, now + Duration::from_millis(60));
        stopped.or_else(|| self.0.handle_end(id, now + Duration::from_secs(5)))
    }

    fn is_stopped(&self, name: &[u8], now: Instant) -> bool {
        self.0.is_stopped(zone(name), HOME, resolver(), now)
    }
}

#[test]
fn four_of_a_zone_in_any_minute() {
    let mut client = Client::default();
    for n in 0..4 {
        assert!(client.take(A, at(n * 1000)).is_ok());
    }
    assert_eq!(client.take(A, at(59_999)), Err(Restraint::Zone));
    assert!(client.take(B, at(59_999)).is_ok());
    assert!(client.take(A, at(60_000)).is_ok());
    assert_eq!(client.take(A, at(60_500)), Err(Restraint::Zone));
}

#[test]
fn twenty_in_any_minute() {
    let mut manners = Manners::new();
    let names: Vec<Vec<u8>> = (0..10).map(|n| vec![1, b'a' + n, 0]).collect();
    let mut taken = Vec::new();
    for ms in (0..600_000).step_by(97) {
        let name = &names[(ms / 97) as usize % 10];
        if manners.take(zone(name), HOME, resolver(), at(ms)).is_ok() {
            taken.push(ms);
        }
    }
    assert_eq!(taken.iter().filter(|ms| **ms < 60_000).count(), PER_CLIENT);
    assert!(taken.windows(PER_CLIENT + 1).all(|run| run[PER_CLIENT] - run[0] >= 60_000));
    assert!(manners.flights.len() <= PER_CLIENT);
}

#[test]
fn a_refused_or_changed_name_stops_its_zone_at_once_for_two_minutes() {
    for echo in [REFUSED, Echo::Mangled, Echo::Failed(1)] {
        let mut client = Client::default();
        let id = client.leaves(A, NOW);
        assert_eq!(client.answers(id, &[Echo::Answered; 5], at(60)), None);
        assert_eq!(client.answers(id, &[echo], at(60)), Some(2 * MINUTES), "{echo:?}");
        assert_eq!(client.take(A, at(60)), Err(Restraint::Stopped));
        // The stop is only for this zone, with this resolver, on this network.
        assert!(!client.is_stopped(B, at(60)));
        let mut take = |network, resolver| client.0.take(zone(A), network, resolver, at(60));
        assert!(take(HOME, [127, 0, 0, 1].into()).is_ok() && take(NetworkId([2; 16]), resolver()).is_ok());
        assert_eq!(client.take(A, at(60) + 2 * MINUTES - Duration::from_millis(1)), Err(Restraint::Stopped));
        assert!(client.take(A, at(60) + 2 * MINUTES).is_ok());
    }
}

#[test]
fn one_servfail_does_not_stop_the_dns_path() {
    let mut client = Client::default();
    for round in 0..100 {
        let now = NOW + MINUTES * round;
        let echoes = [&[SERVFAIL; 1][..], &[Echo::Answered; 5]].concat();
        assert_eq!(client.flies(A, &echoes, now), None);
        // A name that is not answered also counts as lost.
        assert_eq!(client.flies(B, &[Echo::Answered; 5], now), None);
        assert!(!client.is_stopped(A, now + Duration::from_secs(6)));
    }
    assert_eq!(client.0.stops(NOW + 100 * MINUTES).count(), 0);
}

#[test]
fn half_of_the_names_lost_twice_in_a_row_stops_the_zone() {
    for lost in [&[SERVFAIL; 3][..], &[]] {
        let mut client = Client::default();
        let echoes = [lost, &[Echo::Answered; 3]].concat();
        assert_eq!(client.flies(A, &echoes, NOW), None);
        // A first flight that goes well resets the count. One that loses a name neither counts nor resets it.
        assert_eq!(client.flies(A, &[Echo::Answered; 6], at(10_000)), None);
        assert_eq!(client.flies(A, &echoes, at(20_000)), None);
        assert_eq!(client.flies(A, &[Echo::Answered; 5], at(80_000)), None);
        assert_eq!(client.flies(A, &echoes, at(90_000)), Some(2 * MINUTES));
        assert!(client.is_stopped(A, at(95_000)) && !client.is_stopped(B, at(95_000)));
    }
}

#[test]
fn a_limiter_that_drops_is_learnt() {
    // Four first flights at once, of whose names only some are answered, are two strikes: the others left
    // before the stop began.
    let mut client = Client::default();
    let ids = [(); 4].map(|()| client.leaves(A, NOW));
    client.answers(ids[0], &[Echo::Answered; 1], at(60));
    let stopped = ids.map(|id| client.0.handle_end(id, at(5000)));
    assert_eq!(stopped, [None, Some(2 * MINUTES), None, None]);
    assert_eq!(client.take(A, at(5000)), Err(Restraint::Stopped));
    let until: Vec<_> = client.0.stops(at(5000)).map(|stop| (stop.strikes, stop.until)).collect();
    assert_eq!(until, [(2, at(5000) + 2 * MINUTES)]);
}

#[test]
fn a_first_flight_that_the_server_answers_went_well_whatever_the_resolver_says() {
    let mut client = Client::default();
    for n in 0..4 {
        let id = client.leaves(A, at(n * 1000));
        client.0.handle_relayed(id);
        assert_eq!(client.0.handle_end(id, at(n * 1000 + 5000)), None);
    }
    assert_eq!(client.0.stops(at(10_000)).count(), 0);
}

#[test]
fn another_zones_nxdomain_stops_nothing_here() {
    for echo in [NXDOMAIN, Echo::Empty] {
        let mut client = Client::default();
        for name in [B, C, D] {
            assert_eq!(client.flies(name, &[echo], NOW), Some(2 * MINUTES), "{echo:?}");
            assert!(client.is_stopped(name, at(60)));
        }
        assert!(client.take(A, at(60)).is_ok(), "{echo:?}");
    }
}

#[test]
fn three_stopped_zones_stop_the_resolver() {
    let mut client = Client::default();
    client.flies(B, &[REFUSED], at(0));
    client.flies(C, &[REFUSED], at(10_000));
    assert!(!client.is_stopped(A, at(20_000)));
    client.flies(D, &[REFUSED], at(20_000));
    assert_eq!(client.take(A, at(20_060)), Err(Restraint::Resolver));
    assert!(client.0.take(zone(A), HOME, [127, 0, 0, 1].into(), at(20_060)).is_ok());
    // This lasts as long as all three are stopped.
    assert!(client.is_stopped(A, at(60 + 119_999)));
    assert!(client.take(A, at(60 + 120_000)).is_ok());
}

#[test]
fn a_stop_doubles_until_a_first_flight_goes_well() {
    let mut client = Client::default();
    let mut now = NOW;
    for minutes in [2, 4, 8, 16, 32, 60, 60] {
        let pause = client.flies(A, &[REFUSED], now).unwrap();
        assert_eq!(pause, minutes * MINUTES);
        now = now + pause + Duration::from_millis(60);
    }
    // One first flight tries again. No other one may before it has succeeded.
    let trial = client.leaves(A, now);
    assert_eq!(client.take(A, now), Err(Restraint::Stopped));
    client.answers(trial, &[Echo::Answered; 6], now);
    assert!(client.take(A, now).is_ok());
    assert_eq!(client.flies(A, &[REFUSED], now), Some(2 * MINUTES));
    // The trial must succeed: a lost name begins the next pause.
    let now = now + 3 * MINUTES;
    assert_eq!(client.flies(A, &[Echo::Answered; 5], now), Some(4 * MINUTES));
}

#[test]
fn an_answer_to_a_first_flight_from_before_the_stop_changes_nothing() {
    let mut client = Client::default();
    let [earlier, refused] = [(); 2].map(|()| client.leaves(A, NOW));
    assert!(client.answers(refused, &[REFUSED], at(60)).is_some());
    assert_eq!(client.answers(refused, &[REFUSED], at(60)), None);
    assert_eq!(client.answers(earlier, &[Echo::Answered; 6], at(60)), None);
    assert!(client.is_stopped(A, at(61)));
}

#[test]
fn while_names_are_late_no_others_are_asked_for() {
    let mut client = Client::default();
    let first = client.leaves(A, NOW);
    client.answers(first, &[Echo::Answered; 4], at(60));
    // Two names are not answered within twice the time of the others. The resolver may have a limit.
    assert!(client.take(A, at(120)).is_ok());
    assert_eq!(client.take(B, at(121)), Err(Restraint::Unanswered));
    assert!(client.0.take(zone(B), HOME, [127, 0, 0, 1].into(), at(121)).is_ok());
    client.answers(first, &[Echo::Answered; 2], at(400));
    let second = client.leaves(B, at(400));
    // None of its names is answered.
    assert!(client.take(C, at(650)).is_ok());
    assert_eq!(client.take(C, at(651)), Err(Restraint::Unanswered));
    // The server has received the names.
    client.0.handle_relayed(second);
    assert!(client.take(C, at(651)).is_ok());
}

#[test]
fn one_name_may_be_lost_if_there_is_a_spare_one() {
    let mut client = Client::default();
    client.flies(A, &[REFUSED], NOW);
    let now = NOW + 3 * MINUTES;
    let trial = client.take(A, now).unwrap();
    client.0.handle_departure(trial, NAMES + 1, 1, now);
    client.answers(trial, &[Echo::Answered; 6], now);
    assert!(client.take(B, now + Duration::from_secs(1)).is_ok());
    assert_eq!(client.0.handle_end(trial, now + Duration::from_secs(5)), None);
    assert_eq!(client.0.stops(now).count(), 0);
}

#[test]
fn late_names_are_lost_when_the_program_ends() {
    let mut client = Client::default();
    client.leaves(A, NOW);
    client.0.conclude(at(250));
    assert_eq!(client.0.stops(at(250)).count(), 0);
    client.0.conclude(at(251));
    client.0.conclude(at(252));
    let stops: Vec<_> = client.0.stops(at(252)).cloned().collect();
    let [stop] = &stops[..] else { panic!("{stops:?}") };
    assert_eq!((stop.strikes, stop.until), (1, at(251)));
    assert!(!client.is_stopped(A, at(252)));
    // The first flight of the next program is the second consecutive one.
    let mut client = Client::default();
    client.0.restore(stop.clone(), at(1000));
    assert_eq!(client.flies(A, &[], at(1000)), Some(2 * MINUTES));
}

#[test]
fn a_stop_outlives_the_process() {
    let mut client = Client::default();
    client.flies(A, &[REFUSED], NOW);
    client.flies(A, &[REFUSED], NOW + 3 * MINUTES);
    let now = NOW + 5 * MINUTES;
    let stops: Vec<_> = client.0.stops(now).cloned().collect();
    let mut again = Client::default();
    stops.iter().for_each(|stop| again.0.restore(stop.clone(), now));
    assert_eq!(again.take(A, now), Err(Restraint::Stopped));
    let now = at(60) + 7 * MINUTES;
    assert_eq!(again.flies(A, &[REFUSED], now), Some(8 * MINUTES));
    // The stop is forgotten a day after the pause.
    let end = at(120) + 15 * MINUTES;
    assert_eq!(again.0.stops(end + Duration::from_secs(86_399)).count(), 1);
    assert_eq!(again.0.stops(end + Duration::from_secs(86_400)).count(), 0);
    assert_eq!(again.flies(A, &[REFUSED], end + Duration::from_secs(86_400)), Some(2 * MINUTES));
}

#[test]
fn a_remembered_stop_of_all_zones_lasts_an_hour_at_most() {
    let stop = |left| Stop {
        network: HOME,
        resolver: resolver(),
        zone: None,
        cause: Cause::Resolver,
        strikes: 2,
        until: NOW + left,
    };
    let mut client = Client::default();
    client.0.restore(stop(Duration::from_secs(86_000)), NOW);
    assert_eq!(client.take(A, NOW + LONGEST - Duration::from_millis(1)), Err(Restraint::Resolver));
    assert!(client.take(A, NOW + LONGEST).is_ok());
    assert_eq!(client.0.stops(NOW + LONGEST).count(), 0);
}

#[test]
fn the_memory_of_stops_is_bounded() {
    let mut client = Client::default();
    let mut now = NOW;
    for n in 0..2000_u32 {
        let resolver = IpAddr::V4(n.into());
        let id = client.0.take(zone(A), NetworkId::UNKNOWN, resolver, now).unwrap();
        client.0.handle_departure(id, NAMES, 0, now);
        assert!(client.0.handle_answer(id, REFUSED, now).is_some());
        now += Duration::from_secs(20);
    }
    assert_eq!(client.0.stops.len(), MAX_STOPS);
    let last = IpAddr::V4(1999.into());
    assert!(client.0.is_stopped(zone(A), NetworkId::UNKNOWN, last, now));
}

/// If a file has the same stop several times, it counts as one stopped zone.
#[test]
fn a_stop_that_is_restored_several_times_is_one() {
    let mut client = Client::default();
    let stop = |until, strikes| Stop {
        network: HOME,
        resolver: resolver(),
        zone: Some(A.into()),
        cause: Cause::Resolver,
        strikes,
        until,
    };
    for strikes in [2, u32::MAX, 2, 0, 5] {
        client.0.restore(stop(Instant::FAR_FUTURE, strikes), NOW);
    }
    assert!(client.is_stopped(A, NOW) && !client.is_stopped(B, NOW));
    assert_eq!(client.0.stops(NOW).map(|stop| stop.strikes).collect::<Vec<_>>(), [5]);
    // No pause is longer than an hour, whatever the file says.
    assert!(!client.is_stopped(A, NOW + LONGEST));
}
