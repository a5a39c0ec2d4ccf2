#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn tcp(host: &str, port: u16) -> StorePlace {
    StorePlace::Tcp(host.to_owned(), port)
}

#[test]
fn a_password_is_found_where_it_does_not_count_too() {
    for url in ["redis://u:p@a", "redis://a?password=p", "redis+unix:///x?db=1&Pass=p"] {
        assert!(has_password(url), "{url}");
    }
    for url in ["redis://a", "redis+unix:///x?db=3", "redis+sentinel://a/password"] {
        assert!(!has_password(url), "{url}");
    }
}

#[test]
fn addresses_of_one_server() {
    for (url, place, tls, db) in [
        ("redis://10.1.0.1", tcp("10.1.0.1", 6379), false, 0),
        ("rediss://store.example:6380/2", tcp("store.example", 6380), true, 2),
        ("redis://[2001:db8::1]:7000", tcp("2001:db8::1", 7000), false, 0),
        ("rediss://[::1]/1", tcp("::1", 6379), true, 1),
        ("redis+unix:///run/redis.sock", StorePlace::Unix("/run/redis.sock".into()), false, 0),
        ("unix:///run/redis.sock?db=3", StorePlace::Unix("/run/redis.sock".into()), false, 3),
    ] {
        let address = Address::parse(url).unwrap();
        let found = (address.target, address.tls, address.login.db());
        assert_eq!(found, (Target::One(place), tls, db), "{url}");
    }
}

#[test]
fn addresses_of_sentinels() {
    let address = Address::parse("rediss+sentinel://u:p@10.0.0.1,[::1],s.example:5000/farm/2").unwrap();
    let places = vec![tcp("10.0.0.1", 26379), tcp("::1", 26379), tcp("s.example", 5000)];
    assert_eq!(address.target, Target::Sentinel(places, "farm".to_owned()));
    assert!(address.tls && address.has_password());
    assert_eq!((address.login.username(), address.login.db()), (Some("u"), 2));
    let many = format!("redis+sentinel://{}/farm", vec!["h"; 65].join(","));
    for wrong in ["redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel://h,,h/farm", &many] {
        assert!(Address::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn addresses_of_a_cluster() {
    let address = Address::parse("redis+cluster://u:p@10.0.0.1:7000,[::1]/").unwrap();
    assert_eq!(address.target, Target::Cluster(vec![tcp("10.0.0.1", 7000), tcp("::1", 6379)]));
    assert!(!address.tls && address.has_password());
    assert!(Address::parse("rediss+cluster://h").unwrap().tls);
    for wrong in ["redis+cluster://", "redis+cluster://h/1", "redis+cluster://h?db=1"] {
        assert!(Address::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_password_is_found_and_not_repeated() {
    for url in ["redis://:hunter2@host", "rediss://farm:hunter2@host:1/2", "unix:///s?pass=hunter2"] {
        assert!(has_password(url), "{url}");
    }
    assert!(!has_password("redis://farm@host") && !has_password("nonsense"));
    for wrong in [
        "redis://:hunter2@host:port",
        "rediss://:hunter2@host#insecure",
        "redis://:hunter2@host/base",
        "http://:hunter2@host",
        ":hunter2@host",
        "redis://:hunter2@",
        "redis+sentinel://:hunter2@host:port/farm",
        "redis+sentinel://:hunter2@host",
    ] {
        let error = Address::parse(wrong).err().unwrap();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
