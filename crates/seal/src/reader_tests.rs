//! What strangers' bytes can do to the readers: all short inputs, and all inputs at a distance of one from a valid one. There is
//! no panic, and what is read is written as it was.

use crate::fixtures::{BOTH, NAME, Parts, name, record, rng};
use crate::flight::{Flight, Intake, ServerAnswer, Step};
use crate::hello::Hello;
use crate::name::HostName;
use crate::plain::{Inner, Rid};
use crate::record::Record;
use firstflight_wire::Instant;

/// Every input of up to `most` bytes, and every one that is `sample` with another byte somewhere, or cut. Returns how many.
fn each(most: usize, sample: &[u8], mut read: impl FnMut(&[u8])) -> usize {
    let mut count = 0;
    for len in 0..=most {
        for number in 0..1_u32 << (8 * len) {
            read(&number.to_be_bytes()[4 - len..]);
            count += 1;
        }
    }
    let mut bytes = sample.to_vec();
    for at in 0..bytes.len() {
        read(&sample[..at]);
        for other in 1..=255 {
            bytes[at] ^= other;
            read(&bytes);
            bytes[at] ^= other;
        }
        count += 256;
    }
    count
}

#[test]
fn a_record_that_is_read_is_written() {
    let sample = record().to_bytes();
    let (mut good, count) = (0, sample.len());
    let all = each(2, &sample, |bytes| {
        if let Ok(record) = Record::parse(bytes) {
            assert_eq!(record.to_bytes(), bytes);
            good += 1;
        }
    });
    // Another key, time or number is as good.
    assert!(good > 32 * 255 && good < all, "{good} of {all}, {count} bytes");
}

#[test]
fn a_plaintext_that_is_read_is_written() {
    let hello = Parts::new(b"GET", BOTH).hello();
    let inner = Inner {
        rid: Rid([9; 16]),
        bind: crate::bind::Bind::NONE,
        t_ms: 5,
        flags: BOTH,
        hello: &hello,
        request: b"GET / HTTP/1.1\r\n\r\n",
    };
    let sample = inner.emit(inner.len() + 20).unwrap();
    let mut good = 0;
    let all = each(2, &sample, |bytes| {
        if let Ok(inner) = Inner::parse(bytes) {
            assert_eq!(**inner.emit(bytes.len()).unwrap(), *bytes);
            good += 1;
        }
    });
    assert!(good > 38 * 255 && good < all, "{good} of {all}");
}

#[test]
fn a_client_hello_of_another_form_is_refused() {
    let sample = Parts::new(b"GET", BOTH).hello();
    let whole = Hello::parse(&sample).unwrap();
    assert_eq!(whole.server_name, name(NAME));
    let mut good = 0;
    let all = each(2, &sample, |bytes| good += usize::from(Hello::parse(bytes).is_ok()));
    assert!(good > 32 * 255 && good < all, "{good} of {all}");
}

/// The first bytes of a connection: at each distance of one from a flight, and at once and byte by byte the same is read.
#[test]
fn a_flight_in_pieces_is_the_same_as_at_once() {
    let sample = Parts::new(b"GET", BOTH).flight(&mut rng(1));
    // Only the head has a form; what follows is opened, or is not.
    let head = &sample.as_bytes()[..60];
    let all = each(2, head, |bytes| {
        let mut whole = bytes.to_vec();
        if bytes.len() == head.len() {
            whole.extend_from_slice(&sample.as_bytes()[head.len()..]);
        }
        let at_once = Intake::new(Instant::ZERO).handle(&whole, |_| true);
        if let (taken, Step::Sealed(flight)) = &at_once {
            assert_eq!(flight.as_bytes(), &whole[..*taken]);
            assert_eq!(Flight::parse(&whole[..*taken]).as_ref(), Some(flight));
        }
        let (mut intake, mut held, mut last) = (Intake::new(Instant::ZERO), Vec::new(), None);
        for byte in whole.iter().take(64) {
            held.push(*byte);
            let (taken, step) = intake.handle(&held, |_| true);
            held.drain(..taken);
            last = Some(step);
            if !matches!(last, Some(Step::More(_))) {
                break;
            }
        }
        // Something that was said early is not taken back.
        if !matches!(last, Some(Step::More(_)) | None) {
            assert_eq!(last.as_ref(), Some(&at_once.1));
        }
        let _ = ServerAnswer::read(bytes);
    });
    assert!(all > 65_000 + head.len() * 255);
}

#[test]
fn a_name_that_is_read_is_written() {
    let sample = NAME.as_bytes();
    let mut good = 0;
    each(3, sample, |bytes| {
        if let Some(name) = HostName::new(bytes) {
            assert_eq!(name.as_str().as_bytes(), bytes.to_ascii_lowercase());
            good += 1;
        }
    });
    assert!(good > 1000);
}
