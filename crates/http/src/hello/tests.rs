use super::*;
use proptest::prelude::*;

#[test]
fn a_hello_ends_where_its_last_record_ends() {
    let whole = sample("WWW.example.com");
    let expected = FirstRead::Hello { length: whole.len(), name: Some("www.example.com".into()) };
    assert_eq!(look(&whole), expected);
    let early = [whole.clone(), record(20, &[1]), record(23, b"early data")].concat();
    assert_eq!(look(&early), expected, "only the hello may pass");
    for length in 0..whole.len() {
        assert_eq!(look(&whole[..length]), FirstRead::More, "{length} bytes");
    }
}

/// Servers take both for the same name, so routes must, too.
#[test]
fn a_name_with_a_dot_at_its_end_is_the_same_name() {
    let named = |name: &str| match look(&sample(name)) {
        FirstRead::Hello { name, .. } => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(named("A.example."), Some("a.example".into()));
    assert_eq!(named("."), None);
}

#[test]
fn a_hello_may_be_in_several_records() {
    let message = message("a.example");
    for at in 1..message.len() {
        let (one, two) = message.split_at(at);
        let whole = [record(HANDSHAKE, one), record(HANDSHAKE, two)].concat();
        let expected = FirstRead::Hello { length: whole.len(), name: Some("a.example".into()) };
        assert_eq!(look(&[whole, record(23, b"early")].concat()), expected);
    }
}

#[test]
fn what_is_no_hello_is_something_else() {
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", &[22, 3, 1, 0, 0], &[22, 2], &[22, 3, 1, 0, 1, 2]]
    {
        assert_eq!(look(other), FirstRead::Other, "{other:?}");
    }
    let two = [message("a.example"), vec![1]].concat();
    assert_eq!(look(&record(HANDSHAKE, &two)), FirstRead::Other, "bytes behind the hello in its record");
    let mut endless = vec![CLIENT_HELLO, 0xff, 0xff, 0xff];
    endless.resize(1 << 14, 0);
    assert_eq!(look(&record(HANDSHAKE, &endless)), FirstRead::Other, "too long");
}

#[test]
fn damaged_hellos_do_not_panic() {
    let whole = sample("www.example.com");
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let looked = look(&damaged);
            if let FirstRead::Hello { length, .. } = looked {
                assert!(length <= damaged.len());
            }
        }
    }
}

/// A ClientHello with a body of `len` bytes, in records of at most `most` bytes.
fn of_length(len: usize, most: usize) -> Vec<u8> {
    let length = (len as u32).to_be_bytes();
    let message = [&[CLIENT_HELLO], &length[1..], &vec![7; len]].concat();
    message.chunks(most).flat_map(|part| record(HANDSHAKE, part)).collect()
}

#[test]
fn a_hello_is_whole_or_unfinished_whatever_its_size() {
    let sizes = [(240, 1 << 14), (1800, 1 << 14), (1800, 500), (5, 1), (20_000, 16_000)];
    for (len, most) in sizes {
        let whole = of_length(len, most);
        let is_whole =
            |bytes: &[u8]| matches!(look(bytes), FirstRead::Hello { length, .. } if length == whole.len());
        assert!(is_whole(&whole));
        for cut in 0..whole.len() {
            assert_eq!(look(&whole[..cut]), FirstRead::More, "{cut} of {}", whole.len());
        }
        // Early data, and whatever else follows.
        assert!(is_whole(&[&whole[..], &[23, 3, 3, 0, 9]].concat()));
    }
}

#[test]
fn what_is_damaged_is_no_hello() {
    let whole = of_length(100, 1000);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    for (wrong, what) in [
        (with(0, 23), "application data"),
        (with(1, 2), "SSL 2"),
        (with(2, 9), "an unknown version"),
        (with(5, 2), "a ServerHello"),
        (with(8, 99), "another message in the same record"),
        (vec![22, 3, 1, 0xff, 0xff, 1], "a record that is too long"),
        (vec![22, 3, 1, 0x40, 0, 1, 0xff, 0, 0], "a ClientHello that is too long"),
    ] {
        assert_eq!(look(&wrong), FirstRead::Other, "{what}");
    }
    let half = [&of_length(100, 60)[..65], &[23, 3, 3, 0, 1, 0]].concat();
    assert_eq!(look(&half), FirstRead::Other, "application data in the middle");
    assert_eq!(look(&[]), FirstRead::More);
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer_and_a_hello_is_within_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [&[22, 3, 1, 0][..], &bytes].concat();
        if let FirstRead::Hello { length, .. } = look(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }
}
