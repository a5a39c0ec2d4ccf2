//! Two stores of one client.

use super::super::learnt::MOST;
use super::*;
use crate::identity::Identity;
use crate::store::Permission;

const NETWORK: NetworkId = NetworkId([1; 16]);
const FORM: FastOpenForm = FastOpenForm::Standard;

fn server() -> IpAddr {
    [192, 0, 2, 1].into()
}

fn cookie(n: u8) -> Cookie {
    Cookie::new(&[n; 8]).unwrap()
}

fn at(s: u64) -> Instant {
    Instant::from_secs(s)
}

fn pair() -> [CredentialStore; 2] {
    [(); 2].map(|()| CredentialStore::new(16).telling())
}

/// Each store repeats what the other one learnt. Returns how many records there were.
fn settle([a, b]: &mut [CredentialStore; 2]) -> usize {
    let mut records = 0;
    while let Some(learnt) = a.poll_learnt() {
        records += 1;
        b.repeat(learnt);
    }
    while let Some(learnt) = b.poll_learnt() {
        records += 1;
        a.repeat(learnt);
    }
    assert!(a.poll_learnt().is_none(), "what was repeated is not told again");
    records
}

/// A visit with the cookie of `store`. The server's answer carries `fresh`. Returns the cookie that was shown.
fn visit(store: &mut CredentialStore, fresh: Option<u8>, now: Instant) -> Option<Cookie> {
    let used = store.take_cookie(NETWORK, server())?;
    let fresh = fresh.map(|n| (cookie(n), FORM));
    store.note_syn_ack(NETWORK, server(), Some(1460), Some(now), &used, CookieAnswer::Accepted, fresh, now);
    store.learn_visit(NETWORK, server(), Duration::from_millis(9), Duration::ZERO, now);
    Some(used.cookie)
}

#[test]
fn a_plain_cookie_is_known_to_both_and_visits_tell_nothing_more() {
    let mut stores = pair();
    stores[0].learn_cookie(NETWORK, server(), FORM, cookie(1), at(1));
    settle(&mut stores);
    for n in 0..10 {
        for store in &mut stores {
            assert_eq!(visit(store, None, at(2)), Some(cookie(1)), "{n}");
        }
        let records = settle(&mut stores);
        assert!(n == 0 || records == 0, "{records}");
    }
}

#[test]
fn a_cookie_for_one_use_is_shown_once() {
    let mut stores = pair();
    stores[0].learn_cookie(NETWORK, server(), FORM, cookie(1), at(1));
    settle(&mut stores);
    assert_eq!(visit(&mut stores[0], Some(2), at(2)), Some(cookie(1)));
    settle(&mut stores);
    assert_eq!(visit(&mut stores[1], Some(9), at(3)), None, "it was used, and the next is the other store's");
    stores[1].learn_cookie(NETWORK, server(), FORM, cookie(3), at(4));
    settle(&mut stores);
    let shown = [0, 1].map(|n: usize| visit(&mut stores[n], Some(4 + n as u8), at(5)));
    assert_eq!(shown, [Some(cookie(2)), Some(cookie(3))]);
    settle(&mut stores);
    let shown = [0, 1].map(|n: usize| visit(&mut stores[n], Some(6 + n as u8), at(6)));
    assert_eq!(shown, [Some(cookie(4)), Some(cookie(5))]);
}

#[test]
fn a_refused_cookie_is_replaced_in_both() {
    let mut stores = pair();
    stores[0].learn_cookie(NETWORK, server(), FORM, cookie(1), at(1));
    settle(&mut stores);
    let used = stores[1].take_cookie(NETWORK, server()).unwrap();
    stores[1].note_answer(NETWORK, server(), &used, CookieAnswer::Refused, Some((cookie(2), FORM)), at(2));
    settle(&mut stores);
    for store in &mut stores {
        assert_eq!(store.take_cookie(NETWORK, server()).map(|held| held.cookie), Some(cookie(2)));
    }
}

#[test]
fn failures_and_the_end_of_failures_are_known_to_both() {
    let mut stores = pair();
    stores[1].note_failure(NETWORK, server(), at(1));
    settle(&mut stores);
    for store in &stores {
        assert_eq!(store.permission(NETWORK, server(), at(2)), Permission::Nothing);
    }
    stores[0].note_success(NETWORK, server());
    settle(&mut stores);
    for store in &stores {
        assert_eq!(store.permission(NETWORK, server(), at(2)), Permission::Everything);
    }
}

/// One store's first flights get through while another's SYN is lost: the path takes first flights.
#[test]
fn a_loss_beside_accepted_first_flights_of_the_other_store_is_no_failure() {
    let mut stores = pair();
    stores[0].learn_cookie(NETWORK, server(), FORM, cookie(1), at(1));
    settle(&mut stores);
    let ms = Duration::from_millis;
    for n in 0..10 {
        visit(&mut stores[0], None, at(2) + ms(10) * n);
    }
    assert!(settle(&mut stores) >= 2);
    stores[1].note_lost(NETWORK, server(), Some(at(2)), at(2) + ms(100));
    assert_eq!(stores[1].permission(NETWORK, server(), at(3)), Permission::Everything);
}

#[test]
fn sizes_times_and_asap_are_known_to_both() {
    let mut stores = pair();
    let [a, b] = &mut stores;
    a.learn_mss(NETWORK, server(), 1400);
    b.learn_path_mss(NETWORK, server(), 1200, at(1));
    a.learn_first_rtt(NETWORK, server(), Duration::from_millis(20), Duration::ZERO, at(1));
    let identity = Identity::from_digest([3; 32]);
    b.note_asap(NETWORK, server(), &identity, true, at(1));
    a.note_mismatch(NETWORK, server(), [198, 51, 100, 1].into(), at(1));
    settle(&mut stores);
    for store in &mut stores {
        let timeout = store.syn_timeout(NETWORK, server(), at(2));
        assert!(timeout < Duration::from_secs(1), "{timeout:?}");
        assert_eq!(store.path_mss(NETWORK, server(), at(2)), Some(1200));
        assert_eq!(store.speaks_asap(NETWORK, server(), &identity, at(2)), Some(true));
        assert!(store.is_mismatch(NETWORK, server(), [198, 51, 100, 1].into(), at(2)));
        assert_eq!(store.lookup(NETWORK, server()).unwrap().mss, Some(1400));
    }
}

#[test]
fn records_are_bounded() {
    let mut store = CredentialStore::new(16).telling();
    for n in 0..2 * MOST {
        store.learn_path_mss(NETWORK, server(), 1000 + (n % 100) as u16, at(1));
    }
    assert_eq!(std::iter::from_fn(|| store.poll_learnt()).count(), MOST);
}
