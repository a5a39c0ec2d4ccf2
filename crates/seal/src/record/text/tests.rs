use super::*;
use crate::Entry;
use std::num::NonZeroU8;

fn record() -> Record {
    let entry = Entry::x25519(NonZeroU8::MIN, &[7; 32], 1_900_000_000);
    Record::new(vec![entry], "public.example".parse().unwrap()).unwrap()
}

#[test]
fn a_record_is_read_as_it_is_written_and_in_a_zone() {
    let text = record().to_zone_text();
    let bare = text.replace('"', "");
    let line = format!("www 300 IN HTTPS 1 . key65300=\"\\001\" {text} ; c\n");
    for text in [text + "\n", bare, line] {
        assert_eq!(Record::in_zone_text(&text).unwrap(), record(), "{text}");
    }
    assert_eq!(presented("\"a\\\"b\\065\" c").unwrap(), b"a\"bA");
}

#[cfg(feature = "files")]
#[test]
fn a_file_has_a_record_or_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let fault = |path: &std::path::Path| Record::in_zone_file(path).unwrap_err().to_string();
    assert!(fault(&path).starts_with("cannot be read: "));
    std::fs::write(&path, record().to_zone_text()).unwrap();
    assert_eq!(Record::in_zone_file(&path).unwrap(), record());
    std::fs::write(&path, "nothing").unwrap();
    assert_eq!(fault(&path), RecordTextError::None.to_string());
    std::fs::write(&path, " ".repeat(LONGEST) + &record().to_zone_text()).unwrap();
    assert_eq!(fault(&path), "has more than 65536 bytes");
}

#[test]
fn what_is_no_record_says_why() {
    let fault = |text: &str| Record::in_zone_text(text).unwrap_err();
    let unended = record().to_zone_text();
    let unended = unended.trim_end_matches('"');
    assert_eq!(fault("firstflight seal keys, version 1\n"), RecordTextError::Secret);
    assert_eq!(fault("nothing"), RecordTextError::None);
    assert_eq!(fault(unended), RecordTextError::Presentation);
    assert_eq!(fault("key65301=\"\\999\""), RecordTextError::Presentation);
    assert_eq!(fault("key65301=\"\\001\\000\"").to_string().matches("not valid").count(), 1);
    assert_eq!(fault("key65301=\"\\002\\000\\001\""), RecordTextError::Invalid(RecordError::Version));
}
