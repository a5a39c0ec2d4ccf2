#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::asap::PrivateKey;
use alloc::vec;

fn entry(n: u8) -> Trusted {
    Trusted::new(PrivateKey::from_seed(&[n; 32]).public())
}

fn store(entries: impl IntoIterator<Item = Trusted>) -> TrustStore {
    TrustStore::new(entries).unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// For every field, the wider entry admits more, and the narrower one does not.
#[test]
fn what_admits_more_says_so() {
    let hour = Duration::from_secs(3600);
    let wide = [
        (Trusted { longest: hour * 2, ..entry(1) }, Trusted { longest: hour, ..entry(1) }),
        (Trusted { oldest: hour * 2, ..entry(1) }, Trusted { oldest: hour, ..entry(1) }),
        (Trusted { min_vantage: 2, ..entry(1) }, Trusted { min_vantage: 3, ..entry(1) }),
        (entry(1), Trusted { prefixes: nets(&["10.0.0.0/8"]), ..entry(1) }),
        (
            Trusted { prefixes: nets(&["10.0.0.0/8", "2001:db8::/32"]), ..entry(1) },
            Trusted { prefixes: nets(&["10.1.0.0/16", "10.2.0.0/16"]), ..entry(1) },
        ),
    ];
    for (more, less) in wide {
        assert!(store([more.clone()]).admits_more_than(&store([less.clone()])), "{more:?} {less:?}");
        assert!(!store([less]).admits_more_than(&store([more])));
    }
    let others = nets(&["10.1.0.0/16", "2001:db8::/32"]);
    let (one, other) = (nets(&["10.1.0.0/16"]), nets(&["10.2.0.0/16"]));
    let with = |prefixes: &Vec<IpNet>| store([Trusted { prefixes: prefixes.clone(), ..entry(1) }]);
    assert!(with(&one).admits_more_than(&with(&other)) && with(&other).admits_more_than(&with(&one)));
    assert!(with(&others).admits_more_than(&with(&one)) && !with(&one).admits_more_than(&with(&others)));
}

#[test]
fn what_an_entry_allows_before_the_ack_admits_nothing() {
    let free = Trusted { own: true, times: 9, per_second: None, ..entry(1) };
    let bound = Trusted { own: false, times: 1, per_second: Some(1), ..entry(1) };
    let (free, bound) = (store([free]), store([bound]));
    assert!(!free.admits_more_than(&bound));
    assert!(free.grants_more_than(&bound) && !bound.grants_more_than(&free));
}

#[test]
fn another_verifier_admits_more_and_one_less_does_not() {
    let (none, one, both) = (store([]), store([entry(1)]), store([entry(1), entry(2)]));
    assert!(one.admits_more_than(&none) && both.admits_more_than(&one));
    assert!(!none.admits_more_than(&one) && !one.admits_more_than(&both) && !both.admits_more_than(&both));
    assert!(store([entry(2)]).admits_more_than(&one), "another in its place");
}

/// Another key with the same id may have signed certificates that the old key did not.
#[test]
fn another_key_with_the_same_id_admits_more() {
    let mut changed = one_entry();
    changed.entries.values_mut().for_each(|trusted| trusted.key = entry(2).key);
    assert!(changed.admits_more_than(&one_entry()));
}

fn one_entry() -> TrustStore {
    store(vec![entry(1)])
}
