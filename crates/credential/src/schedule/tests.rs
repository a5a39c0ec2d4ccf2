use super::*;
use crate::cookie_key::CookieKey;
use crate::flight::Flow;
use crate::key::Check;
use proptest::prelude::*;

const FLOW: Flow = Flow {
    client: core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)),
    server: core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 168, 0, 1)),
};
const HOUR: u64 = 3_600_000;
/// 2027-01-16 00:00 UTC, a multiple of 12 hours and of a day.
const TURN: u64 = 20_834 * 24 * HOUR;
const LEAD: u64 = 300_000;

fn secret(id: &str, byte: u8) -> FarmSecret {
    FarmSecret::new(id, &[byte; 32]).unwrap()
}

fn schedule(period_ms: u64, lead_ms: u64) -> Schedule {
    let [period, lead] = [period_ms, lead_ms].map(Duration::from_millis);
    Schedule::new(FarmSecrets::new(secret("a", 1)), Scheme::Linux, period, lead).unwrap()
}

fn clock(unix_ms: u64) -> Clock {
    Clock { mono: firstflight_wire::Instant::ZERO, unix_ms, uncertainty: Duration::ZERO }
}

/// Whether a member whose clock shows `there` accepts a cookie that a member granted when its clock showed
/// `here`.
fn accepted(schedule: &Schedule, here: u64, there: u64) -> bool {
    let [grants, checks] = [here, there].map(|at| schedule.keys_at(&clock(at)).unwrap().ring);
    checks.check(&FLOW, &grants.grant(&FLOW)) != Check::No
}

#[test]
fn the_backup_is_the_last_key_and_before_a_turn_the_coming_one() {
    let schedule = schedule(24 * HOUR, LEAD);
    let key = |index| secret("a", 1).cookie_key(index);
    let pair = |primary, backup| CookieKeys::new(key(primary)).with_backup(key(backup));
    let (i, next) = (20_833, 20_834);
    assert_eq!(schedule.index_at(TURN - 1), i);
    let rules = [
        (TURN - 24 * HOUR, pair(i, i - 1), TURN - LEAD),
        (TURN - LEAD - 1, pair(i, i - 1), TURN - LEAD),
        (TURN - LEAD, pair(i, next), TURN),
        (TURN - 1, pair(i, next), TURN),
        (TURN, pair(next, i), TURN + 24 * HOUR - LEAD),
    ];
    for (at, keys, next_change) in rules {
        assert_eq!(schedule.cookie_keys_at(at), keys, "{at}");
        assert_eq!(schedule.next_change(at), Some(next_change), "{at}");
        let current = schedule.keys_at(&clock(at)).unwrap();
        assert_eq!((current.primary, current.next_change), (keys.primary.fingerprint(), Some(next_change)));
    }
}

#[test]
fn two_secrets_are_accepted_and_the_first_one_grants() {
    let [a, b] = [secret("a", 1), secret("b", 2)];
    let with = |current: &FarmSecret, other: Option<&FarmSecret>| {
        let secrets = FarmSecrets { current: current.clone(), other: other.cloned() };
        Schedule::new(secrets, Scheme::Linux, Schedule::DEFAULT_PERIOD, Schedule::DEFAULT_LEAD).unwrap()
    };
    // The steps of a replacement. Configurations of neighbouring steps accept each other's cookies.
    let steps = [with(&a, None), with(&a, Some(&b)), with(&b, Some(&a)), with(&b, None)];
    for at in [TURN - LEAD - 1, TURN - LEAD, TURN - 1, TURN] {
        let ring = |schedule: &Schedule| schedule.keys_at(&clock(at)).unwrap().ring;
        let check = |granter: usize, checker: usize| {
            ring(&steps[checker]).check(&FLOW, &ring(&steps[granter]).grant(&FLOW))
        };
        assert_eq!(check(0, 1), Check::Primary);
        assert_eq!([check(1, 2), check(2, 1)], [Check::Backup; 2]);
        assert_eq!([check(2, 3), check(3, 2)], [Check::Primary; 2]);
        assert_eq!([check(0, 3), check(3, 0)], [Check::No; 2]);
        // A kernel gets one key of each secret.
        let keys = steps[2].cookie_keys_at(at);
        let index = steps[2].index_at(at);
        assert_eq!((&keys.primary, keys.backups.first()), (&b.cookie_key(index), Some(&a.cookie_key(index))));
        assert_eq!(keys.backups.len(), 3);
    }
}

#[test]
fn a_clock_that_is_not_good_enough_gives_no_keys() {
    let schedule = schedule(24 * HOUR, LEAD);
    let limit = schedule.max_skew();
    assert_eq!(limit, Duration::from_millis(LEAD / 2));
    for unix_ms in [0, 1_577_836_799_999] {
        assert_eq!(schedule.keys_at(&clock(unix_ms)).unwrap_err(), ClockError::Unset);
    }
    let uncertain = |uncertainty| schedule.keys_at(&Clock { uncertainty, ..clock(TURN) });
    assert!(uncertain(limit).is_ok());
    let uncertainty = limit + Duration::from_nanos(1);
    assert_eq!(uncertain(uncertainty).unwrap_err(), ClockError::Uncertain { uncertainty, max_skew: limit });
    assert!(uncertain(Duration::MAX).is_err());
}

#[test]
fn fixed_keys_need_no_clock() {
    let keys = CookieKeys::new(CookieKey::from_bytes([7; 16]));
    let fixed = crate::Fixed::new(&keys, Scheme::Linux);
    let current = fixed.keys_at(&Clock { uncertainty: Duration::MAX, ..clock(0) }).unwrap();
    assert_eq!((current.primary, current.next_change), (keys.primary.fingerprint(), None));
    assert_eq!(current.ring.check(&FLOW, &keys.ring(Scheme::Linux).grant(&FLOW)), Check::Primary);
}

#[test]
fn what_cannot_be_scheduled_is_refused() {
    let make =
        |period, lead| Schedule::new(FarmSecrets::new(secret("a", 1)), Scheme::Linux, period, lead).map(drop);
    let half_a_day = Duration::from_secs(12 * 3600);
    let ms = Duration::from_millis(1);
    assert_eq!(make(half_a_day, half_a_day / 2), Ok(()));
    assert_eq!(make(half_a_day - ms, ms), Err(ScheduleError::PeriodTooShort { period: half_a_day - ms }));
    assert_eq!(make(half_a_day + ms, ms), Err(ScheduleError::PeriodNotSeconds { period: half_a_day + ms }));
    let lead = half_a_day / 2 + ms;
    assert_eq!(make(half_a_day, lead), Err(ScheduleError::LeadTooLong { lead, period: half_a_day }));
}

#[test]
fn the_end_of_time_is_no_panic() {
    let forever = Duration::from_secs(u64::MAX);
    let slow = Schedule::new(FarmSecrets::new(secret("a", 1)), Scheme::Linux, forever, forever / 2).unwrap();
    for schedule in [slow, schedule(12 * HOUR, 0)] {
        for at in [0, 1, TURN, u64::MAX - 1, u64::MAX] {
            let _ = (schedule.cookie_keys_at(at), schedule.next_change(at), schedule.next_turn(at));
        }
    }
}

/// A schedule with a random period and lead, a time (near a turn in half of the cases), and the difference of
/// another clock, at most the lead.
fn farms() -> impl Strategy<Value = (Schedule, u64, i64)> {
    let times = (12 * 3600_u64..90 * 24 * 3600).prop_map(|seconds| seconds * 1000);
    (times, 0u64..=LEAD, -1000i64..=1000).prop_flat_map(|(period, lead, share)| {
        let turn = (TURN / period + 1) * period;
        let near = turn - 2 * LEAD..=turn + 2 * LEAD;
        let at = prop_oneof![near, TURN..TURN + 4 * period];
        at.prop_map(move |at| (schedule(period, lead), at, lead as i64 * share / 1000))
    })
}

proptest! {
    #[test]
    fn what_one_member_grants_every_other_accepts((schedule, at, skew) in farms()) {
        prop_assert!(accepted(&schedule, at, at.saturating_add_signed(skew)));
    }

    /// The bound is tight: around a turn, a member whose clock is off by more than the lead does not accept
    /// the cookie.
    #[test]
    fn a_clock_beyond_the_bound_can_refuse(period in 43_200u64..1_000_000, lead in 0u64..=LEAD) {
        let schedule = schedule(period * 1000, lead);
        let turn = schedule.next_turn(TURN).unwrap();
        prop_assert!(accepted(&schedule, turn, turn - lead.max(1)) || lead == 0);
        prop_assert!(!accepted(&schedule, turn, turn - lead - 1));
    }

    #[test]
    fn a_cookie_lives_one_to_two_periods_less_the_lead((schedule, at, skew) in farms(), share in 0u64..=1000) {
        let (period, lead) = (schedule.period().as_millis() as u64, schedule.lead().as_millis() as u64);
        let other = |after: u64| at.saturating_add(after).saturating_add_signed(skew);
        // On the clock of the member that granted it …
        prop_assert!(accepted(&schedule, at, at + (period - lead - 1) * share / 1000));
        prop_assert!(!accepted(&schedule, at, at + 2 * period - lead));
        // … and of another one.
        if skew >= 0 || share > 0 {
            prop_assert!(accepted(&schedule, at, other((period - 2 * lead - 1) * share / 1000)));
        }
        prop_assert!(!accepted(&schedule, at, other(2 * period)));
    }

    #[test]
    fn keys_change_when_they_said_and_not_before((schedule, at, _) in farms()) {
        let change = schedule.next_change(at).unwrap();
        prop_assert!(change > at);
        prop_assert_eq!(schedule.cookie_keys_at(change - 1), schedule.cookie_keys_at(at));
        prop_assert_ne!(schedule.cookie_keys_at(change), schedule.cookie_keys_at(at));
    }

    #[test]
    fn the_times_of_a_key_are_those_at_which_it_is_in_use((schedule, at, _) in farms()) {
        let index = schedule.index_at(at);
        let times = schedule.times_of(index);
        let key = secret("a", 1).cookie_key(index).fingerprint();
        let grants = |at| schedule.cookie_keys_at(at).primary.fingerprint() == key;
        let accepts = |at| {
            let keys = schedule.cookie_keys_at(at);
            grants(at) || keys.backups.iter().any(|backup| backup.fingerprint() == key)
        };
        prop_assert!((times.grants_from..times.grants_until).contains(&at));
        prop_assert!(grants(times.grants_from) && !grants(times.grants_from - 1));
        prop_assert!(grants(times.grants_until - 1) && !grants(times.grants_until));
        prop_assert!(accepts(times.accepted_from) && !accepts(times.accepted_from - 1));
        prop_assert!(accepts(times.accepted_until - 1) && !accepts(times.accepted_until));
    }
}
