#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// The second of [`AT`].
fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_777)
}

fn later() -> SystemTime {
    at() + COARSE * 2
}

/// Those of a file that was modified at [`AT`]. Its tag is strong from `settled` on.
fn validators(settled: SystemTime) -> Validators {
    Validators::new("a,b", settled, Some(at()))
}

fn fields(list: &[(HeaderName, &str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in list {
        fields.append(name, HeaderValue::from_str(value).unwrap());
    }
    fields
}

#[test]
fn conditions_have_the_order_of_rfc_9110() {
    use ConditionVerdict::{Failed, NotModified, Send};
    let (yes, no, weak) = ("\"a,b\"", "\"b\"", "W/\"a,b\"");
    for (list, wanted) in [
        (&[][..], Send),
        (&[(IF_MATCH, yes)], Send),
        (&[(IF_MATCH, no)], Failed),
        (&[(IF_MATCH, weak)], Failed),
        (&[(IF_MATCH, "*")], Send),
        (&[(IF_MATCH, "\"x\" ,, W/\"y\",\"a,b\"")], Send),
        (&[(IF_MATCH, no), (IF_MATCH, yes)], Send),
        (&[(IF_MATCH, "a,b")], Failed),
        (&[(IF_NONE_MATCH, yes)], NotModified),
        (&[(IF_NONE_MATCH, weak)], NotModified),
        (&[(IF_NONE_MATCH, no)], Send),
        (&[(IF_NONE_MATCH, "*")], NotModified),
        (&[(IF_NONE_MATCH, "\"x\", \"a,b\"")], NotModified),
        // A tag of one is not a part of another.
        (&[(IF_NONE_MATCH, "\"x\"a,b\"")], Send),
        (&[(IF_NONE_MATCH, "\"a,b")], Send),
        (&[(IF_MODIFIED_SINCE, AT)], NotModified),
        (&[(IF_MODIFIED_SINCE, AFTER)], NotModified),
        (&[(IF_MODIFIED_SINCE, BEFORE)], Send),
        (&[(IF_MODIFIED_SINCE, "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified),
        (&[(IF_MODIFIED_SINCE, "Sun Nov  6 08:49:37 1994")], NotModified),
        (&[(IF_MODIFIED_SINCE, "yesterday")], Send),
        (&[(IF_MODIFIED_SINCE, AT), (IF_MODIFIED_SINCE, AT)], Send),
        (&[(IF_UNMODIFIED_SINCE, AT)], Send),
        (&[(IF_UNMODIFIED_SINCE, AFTER)], Send),
        (&[(IF_UNMODIFIED_SINCE, BEFORE)], Failed),
        (&[(IF_UNMODIFIED_SINCE, "yesterday")], Send),
        // Tags come before dates.
        (&[(IF_MATCH, yes), (IF_UNMODIFIED_SINCE, BEFORE)], Send),
        (&[(IF_MATCH, no), (IF_UNMODIFIED_SINCE, AFTER)], Failed),
        (&[(IF_NONE_MATCH, no), (IF_MODIFIED_SINCE, AFTER)], Send),
        (&[(IF_NONE_MATCH, yes), (IF_MODIFIED_SINCE, BEFORE)], NotModified),
        // What must hold comes before what is not needed.
        (&[(IF_MATCH, no), (IF_NONE_MATCH, yes)], Failed),
        (&[(IF_MATCH, yes), (IF_NONE_MATCH, yes)], NotModified),
        (&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_NONE_MATCH, yes)], Failed),
        (&[(IF_UNMODIFIED_SINCE, AT), (IF_MODIFIED_SINCE, AT)], NotModified),
    ] {
        assert_eq!(judge(&fields(list), &validators(at()), later()), wanted, "{list:?}");
    }
    // A weak tag matches nothing strongly.
    assert_eq!(judge(&fields(&[(IF_MATCH, yes)]), &validators(later()), later()), Failed);
    assert_eq!(judge(&fields(&[(IF_NONE_MATCH, yes)]), &validators(later()), later()), NotModified);
}

#[test]
fn a_range_is_of_the_file_that_the_client_has() {
    for (list, wanted) in [
        (&[][..], true),
        (&[(IF_RANGE, "\"a,b\"")], true),
        (&[(IF_RANGE, "\"b\"")], false),
        (&[(IF_RANGE, "W/\"a,b\"")], false),
        (&[(IF_RANGE, AT)], true),
        (&[(IF_RANGE, AFTER)], false),
        (&[(IF_RANGE, BEFORE)], false),
        (&[(IF_RANGE, "*")], false),
        (&[(IF_RANGE, "")], false),
        (&[(IF_RANGE, AT), (IF_RANGE, AT)], false),
    ] {
        assert_eq!(range_applies(&fields(list), &validators(at()), later()), wanted, "{list:?}");
    }
    let soon = at() + SECOND / 2;
    for field in ["\"a,b\"", AT] {
        assert!(!range_applies(&fields(&[(IF_RANGE, field)]), &validators(soon), soon), "{field}");
    }
}

#[test]
fn validators_change_with_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    let of = |now: SystemTime| Validators::of(&std::fs::metadata(&path).unwrap(), now);
    let later = || SystemTime::now() + COARSE * 2;
    std::fs::write(&path, "one").unwrap();
    let one = of(later());
    let tag = one.tag(later()).to_str().unwrap().to_owned();
    // It was written just now, and can be written again within the resolution of its times.
    let before = SystemTime::now() - Duration::from_secs(1);
    assert_eq!(*one.tag(before), format!("W/{tag}"));
    // As many bytes, and the old time.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    std::thread::sleep(Duration::from_millis(25));
    std::fs::write(&path, "two").unwrap();
    file.set_modified(modified).unwrap();
    let two = of(later());
    assert_eq!(two.modified(), one.modified());
    assert_ne!(*two.tag(later()), tag);
    // A time in the future or before 1970.
    let now = later();
    file.set_modified(now + Duration::from_secs(1_000_000)).unwrap();
    assert_eq!(*of(now).modified().unwrap(), fmt_http_date(now));
    file.set_modified(UNIX_EPOCH - Duration::from_secs(5)).unwrap();
    assert!(of(now).modified().is_none());
}
