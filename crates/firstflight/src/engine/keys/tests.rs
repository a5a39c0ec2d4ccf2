#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::credential::{CookieKey, CookieKeys, FastOpenPolicy, Fingerprint, PendingLimit, Scheme};
use crate::{Config, ListenConfig};
use std::cell::Cell;

/// Returns the same ring for an hour at a time, and counts how often it was asked.
struct Hourly {
    ring: Arc<KeyRing>,
    primary: Fingerprint,
    asked: Cell<u32>,
}

const HOUR: u64 = 3_600_000;

fn hourly() -> Hourly {
    let keys = CookieKeys::new(CookieKey::from_bytes([1; 16]));
    let ring = Arc::new(keys.ring(Scheme::Linux));
    Hourly { ring, primary: keys.primary.fingerprint(), asked: Cell::new(0) }
}

impl KeySource for Hourly {
    fn keys_at(&self, clock: &Clock) -> Result<Current, ClockError> {
        self.asked.set(self.asked.get() + 1);
        if clock.unix_ms == 0 {
            return Err(ClockError::Unset);
        }
        let next_change = Some((clock.unix_ms / HOUR + 1) * HOUR);
        Ok(Current { ring: Arc::clone(&self.ring), primary: self.primary, next_change })
    }
}

fn listening() -> (Arc<Shared>, ListenerId) {
    let shared = Shared::new(
        Config::new(vec!["10.0.0.1".parse().unwrap()], [1; 32]),
        false,
        crate::time::Time::system(),
    );
    let keys = CookieKeys::new(CookieKey::from_bytes([0; 16])).ring(Scheme::Linux);
    let mut config = ListenConfig::new("10.0.0.1:80".parse().unwrap());
    config.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(1))));
    let id = shared.lock().stack.listen(config).unwrap();
    (shared, id)
}

fn handle(shared: &Arc<Shared>, id: ListenerId) -> KeyHandle {
    KeyHandle::new(vec![(Arc::downgrade(shared), id)])
}

fn at(unix_ms: u64) -> Clock {
    Clock { mono: Instant::ZERO, unix_ms, uncertainty: Duration::ZERO }
}

#[test]
fn keys_are_installed_when_they_change_and_when_the_clock_is_set_back() {
    let (shared, id) = listening();
    let mut follower = Follower::new(vec![handle(&shared, id)]);
    let source = hourly();
    let steps = [(5 * HOUR + 1, 1), (6 * HOUR - 1, 1), (6 * HOUR, 2), (6 * HOUR + 5, 2), (4 * HOUR, 3)];
    for (unix_ms, asked) in steps {
        assert!(follower.look(&source, &at(unix_ms)));
        assert_eq!(source.asked.get(), asked, "{unix_ms}");
        // The listener also holds the ring.
        assert_eq!(Arc::strong_count(&source.ring), 2);
    }
    follower.forget();
    assert!(follower.look(&source, &at(4 * HOUR)));
    assert_eq!(source.asked.get(), 4);
}

#[test]
fn without_a_clock_the_keys_stay() {
    let (shared, id) = listening();
    let mut follower = Follower::new(vec![handle(&shared, id)]);
    let source = hourly();
    assert!(follower.look(&source, &at(0)));
    assert_eq!((Arc::strong_count(&source.ring), follower.warning.last.is_over()), (1, false));
    assert!(follower.look(&source, &at(HOUR)));
    assert_eq!((Arc::strong_count(&source.ring), follower.warning.last.is_over()), (2, true));
    // The clock is lost, but the ring stays.
    assert!(follower.look(&source, &at(0)));
    assert_eq!(Arc::strong_count(&source.ring), 2);
}

#[test]
fn following_ends_with_the_last_listener_and_keeps_no_endpoint_alive() {
    let (shared, id) = listening();
    let handle = handle(&shared, id);
    let mut follower = Follower::new(vec![handle.clone()]);
    let source = hourly();
    assert!(follower.look(&source, &at(HOUR)));
    shared.lock().stack.unlisten(id, Instant::ZERO);
    assert!(!follower.look(&source, &at(HOUR)));
    assert!(!handle.set(Arc::clone(&source.ring)));
    assert_eq!(Arc::strong_count(&shared), 1);
    drop(shared);
    assert!(!handle.set(source.ring));
}

/// A gauge has the fingerprint of the key that is in use.
#[test]
fn a_rotation_shows_in_a_gauge() {
    let (shared, id) = listening();
    let mut follower = Follower::new(vec![handle(&shared, id)]);
    let first = hourly();
    let next = Hourly { primary: CookieKey::from_bytes([2; 16]).fingerprint(), ..hourly() };
    crate::metrics::recorded(|render| {
        let shows = |primary: Fingerprint, value: u8| {
            let line = format!("firstflight_cookie_key{{fingerprint=\"{primary}\"}} {value}\n");
            assert!(render().contains(&line), "{}", render());
        };
        assert!(follower.look(&first, &at(HOUR)));
        shows(first.primary, 1);
        follower.forget();
        assert!(follower.look(&first, &at(HOUR)));
        shows(first.primary, 1);
        follower.forget();
        assert!(follower.look(&next, &at(HOUR)));
        shows(first.primary, 0);
        shows(next.primary, 1);
    });
}
