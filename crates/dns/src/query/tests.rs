use super::*;
use crate::fixtures::{ZONE, sealed, zone};
use crate::fragment::{Attempt, Fragment, Fragments};
use core::convert::Infallible;
use proptest::prelude::*;
use rand_core::{TryCryptoRng, TryRng};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

fn label() -> [u8; LABEL] {
    Fragments::split(&sealed(20, 1), Attempt::default(), false).labels().next().unwrap()
}

fn query(label: &[u8; LABEL]) -> FragmentQuery {
    FragmentQuery::new(0x1234, label, zone()).unwrap()
}

/// A query for `label`, as the bytes of RFC 1035 §4.1.
fn by_hand(label: &[u8; LABEL]) -> Vec<u8> {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], &[63], label, ZONE, &[0, 1, 0, 1]].concat()
}

/// Labels in which every octet occurs at every position at least once.
fn all_octets() -> impl Iterator<Item = [u8; LABEL]> {
    (0..=255_u8).map(|shift| core::array::from_fn(|at| shift.wrapping_add(at as u8)))
}

#[test]
fn all_octets_go_and_come_back_as_they_are() {
    for label in all_octets() {
        let query = query(&label);
        assert_eq!(query.as_bytes(), by_hand(&label));
        let question = Question::parse(query.as_bytes()).unwrap();
        assert_eq!(question.position(zone()), Position::Child(&label));
        let answer = question.answer(&[ADDRESS]).unwrap();
        // The question's bytes, and an answer whose name is a pointer to it.
        assert_eq!(answer[12..query.as_bytes().len()], query.as_bytes()[12..]);
        let record = &answer[query.as_bytes().len()..];
        assert_eq!(record, [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 80]);
        assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
    }
}

#[test]
fn the_longest_zone_leaves_room() {
    let longest = [&[63][..], &[b'a'; 63], &[63], &[b'b'; 63], &[61], &[b'c'; 61], &[0]].concat();
    let zone = Zone::new(&longest).unwrap();
    assert_eq!(longest.len(), Zone::MAX);
    let query = FragmentQuery::new(1, &label(), zone).unwrap();
    assert_eq!(query.as_bytes().len(), 12 + 255 + 4);
    let question = Question::parse(query.as_bytes()).unwrap();
    let answer = question.answer(&[ADDRESS; Question::MAX_ADDRESSES]).unwrap();
    assert!(answer.len() <= 512, "{}", answer.len());
    assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
    assert_eq!(question.answer(&[ADDRESS; Question::MAX_ADDRESSES + 1]), Err(MessageError::Encode));
}

#[test]
fn a_resolver_that_changes_the_case_is_answered_as_it_asked() {
    let (label, query) = (label(), query(&label()));
    let mut asked = query.as_bytes().to_vec();
    asked[12..].iter_mut().step_by(2).for_each(|octet| octet.make_ascii_uppercase());
    // Do not change the lengths, type and class, which are not letters here.
    assert_ne!(asked, query.as_bytes());
    let question = Question::parse(&asked).unwrap();
    let Position::Child(changed) = question.position(zone()) else { panic!() };
    assert_eq!(Fragment::parse(changed), Fragment::parse(&label));
    let answer = question.answer(&[ADDRESS]).unwrap();
    assert_eq!(answer[12..asked.len()], asked[12..]);
    assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
}

#[test]
fn flags_of_answers() {
    let question = Question::parse(query(&label()).as_bytes()).unwrap();
    let answer = question.answer(&[ADDRESS]).unwrap();
    // QR, AA, RD; no RA, no error; one question, one answer.
    assert_eq!(answer[..12], [0x12, 0x34, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    // "Checking disabled" is not echoed (RFC 4035 §3.1.6), "recursion desired" is.
    let mut asked = by_hand(&label());
    asked[2..4].copy_from_slice(&[0, 0x10]);
    let answer = Question::parse(&asked).unwrap().answer(&[ADDRESS]).unwrap();
    assert_eq!(answer[2..4], [0x84, 0]);
    let slip = question.slip().unwrap();
    assert_eq!(slip[..12], [0x12, 0x34, 0x87, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(query(&label()).read_answer(&slip), Some(Echo::Truncated));
}

#[test]
fn other_types_get_nothing_and_no_error() {
    let label = label();
    for (ty, class) in [(28_u16, 1), (16, 1), (255, 1), (65, 1), (1, 3)] {
        let mut bytes = by_hand(&label);
        let at = bytes.len() - 4;
        bytes[at..at + 2].copy_from_slice(&ty.to_be_bytes());
        bytes[at + 2..].copy_from_slice(&u16::to_be_bytes(class));
        let question = Question::parse(&bytes).unwrap();
        assert!(!question.asks_for_a());
        let answer = question.answer(&[ADDRESS]).unwrap();
        assert_eq!(answer[2..12], [0x85, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}

/// RFC 6891 §6.1.1 and §6.1.3.
#[test]
fn edns_is_answered_with_edns() {
    let with = |version: u8, flags: u8| {
        let mut bytes = by_hand(&label());
        bytes[11] = 1;
        bytes.extend([0, 0, 41, 16, 0, 0, version, flags, 0, 0, 0]);
        Question::parse(&bytes).unwrap().answer(&[ADDRESS]).unwrap()
    };
    let end = |answer: &[u8]| answer[answer.len() - 11..].to_vec();
    assert_eq!(end(&with(0, 0)), [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(end(&with(0, 0x80)), [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0]);
    assert_eq!(query(&label()).read_answer(&with(0, 0)), Some(Echo::Answered));
    let bad = with(1, 0);
    assert_eq!((bad[3] & 0xf, bad[7]), (0, 0));
    assert_eq!(end(&bad), [0, 0, 41, 0x04, 0xd0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(query(&label()).read_answer(&bad), Some(Echo::Failed(16)));
}

#[test]
fn the_client_tells_what_came_back() {
    let query = query(&label());
    let question = Question::parse(query.as_bytes()).unwrap();
    let good = question.answer(&[ADDRESS]).unwrap();
    let change = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        query.read_answer(&bytes)
    };
    // Messages that do not answer this question: one with another id, and one that is not an answer.
    assert_eq!(change(0, 0x13), None);
    assert_eq!(change(2, 0x05), None);
    assert_eq!(query.read_answer(&good[..11]), None);
    for (code, failed) in [(1, 1), (2, 2), (3, 3), (5, 5)] {
        assert_eq!(change(3, code), Some(Echo::Failed(failed)));
    }
    // A changed octet of the name, a label that was cut, another type.
    let at = 12 + 1 + 40;
    assert_eq!(change(at, good[at] ^ 0x80), Some(Echo::Mangled));
    assert_eq!(change(12 + 64 + 12, 28), Some(Echo::Mangled));
    let empty = question.answer(&[]).unwrap();
    assert_eq!(query.read_answer(&empty), Some(Echo::Empty));
    for (echo, meaning) in [
        (Echo::Answered, Meaning::Carried),
        (Echo::Truncated, Meaning::Carried),
        (Echo::Empty, Meaning::NoZone),
        (Echo::Failed(3), Meaning::NoZone),
        (Echo::Failed(2), Meaning::Lost),
        (Echo::Failed(1), Meaning::Refused),
        (Echo::Failed(5), Meaning::Refused),
        (Echo::Mangled, Meaning::Refused),
    ] {
        assert_eq!(echo.meaning(), meaning, "{echo:?}");
    }
}

#[test]
fn a_refusal_without_a_question_is_a_refusal() {
    let header = [0x12, 0x34, 0x81, 0x85, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(query(&label()).read_answer(&header), Some(Echo::Failed(5)));
    let header = [0x12, 0x34, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(query(&label()).read_answer(&header), Some(Echo::Mangled));
}

#[test]
fn what_is_no_question_is_none() {
    let good = by_hand(&label());
    let change = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Question::parse(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(change(2, 0x81), MessageError::NotAQuery);
    assert_eq!(change(2, 0x29), MessageError::NotAQuery);
    assert_eq!(change(5, 0), MessageError::Malformed);
    assert_eq!(change(5, 2), MessageError::Malformed);
    assert_eq!(change(12, 0xc0), MessageError::Malformed);
    assert_eq!(change(12, 64), MessageError::Malformed);
    for len in 0..good.len() {
        assert!(Question::parse(&good[..len]).is_err(), "{len}");
    }
}

/// Repeats each value three times.
struct Stutters(u32);

impl TryRng for Stutters {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0 += 1;
        Ok((self.0 / 3) << 16)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("not asked for")
    }

    fn try_fill_bytes(&mut self, _out: &mut [u8]) -> Result<(), Infallible> {
        panic!("not asked for")
    }
}

impl TryCryptoRng for Stutters {}

#[test]
fn questions_of_one_first_flight_are_told_apart() {
    let fragments = Fragments::split(&sealed(20, 1), Attempt::default(), true);
    let queries = FragmentQuery::all(&fragments, zone(), &mut Stutters(0)).unwrap();
    assert_eq!(queries.len(), fragments.as_slice().len());
    for (at, asked) in queries.iter().enumerate() {
        let answer = Question::parse(asked.as_bytes()).unwrap().answer(&[ADDRESS]).unwrap();
        for (other, query) in queries.iter().enumerate() {
            assert_eq!(query.read_answer(&answer), (at == other).then_some(Echo::Answered));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), query_like: bool) {
        if query_like && bytes.len() > 12 {
            bytes[2] &= 0x07;
            bytes[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
            bytes[12] &= 0x3f;
        }
        if let Ok(question) = Question::parse(&bytes) {
            let answer = question.answer(&[ADDRESS]).unwrap();
            let end = 12 + question.name().len() + 4;
            prop_assert_eq!(&answer[12..end], &bytes[12..end]);
            prop_assert_eq!(&answer[..2], &bytes[..2]);
        }
        let _ = query(&label()).read_answer(&bytes);
        if bytes.len() > 2 {
            bytes[..2].copy_from_slice(&[0x12, 0x34]);
            bytes[2] |= 0x80;
            let _ = query(&label()).read_answer(&bytes);
        }
    }
}
