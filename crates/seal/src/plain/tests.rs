use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_read_is_written(bytes in proptest::collection::vec(any::<u8>(), 0..300), hello in 0u16..80, request in 0u16..80) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(38) {
            *place &= 3;
        }
        if let Some(place) = bytes.get_mut(39..41) {
            place.copy_from_slice(&hello.to_be_bytes());
        }
        let at = 41 + usize::from(hello);
        if let Some(place) = bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&request.to_be_bytes());
        }
        if let Some(rest) = bytes.get_mut(at + 2 + usize::from(request)..) {
            rest.fill(0);
        }
        if let Ok(inner) = Inner::parse(&bytes) {
            prop_assert_eq!(&**inner.emit(bytes.len()).unwrap(), &bytes);
        }
    }
}

#[test]
fn a_plaintext_that_breaks_a_rule_is_not_written() {
    let inner = Inner {
        rid: Rid([1; 16]),
        bind: Bind::NONE,
        t_ms: 1,
        flags: Flags::default(),
        hello: b"h",
        request: b"r",
    };
    assert!(inner.emit(inner.len()).is_some() && inner.emit(inner.len() - 1).is_none());
    assert!(Inner { t_ms: 1 << 48, ..inner }.emit(99).is_none());
    let flags = Flags { complete: true, replayable: false };
    assert!(Inner { request: b"", flags, ..inner }.emit(99).is_none());
    let shown = format!("{inner:?}");
    assert!(!shown.contains("rid") && shown.contains("request_len: 1"));
}
