#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

const KEY: &str = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";

fn file(rest: &str) -> Result<TrustStore, TrustFileError> {
    parse(&format!("[[verifier]]\nkey = \"{KEY}\"\n{rest}"))
}

#[test]
fn only_the_key_must_be_there() {
    let key: PublicKey = KEY.parse().unwrap();
    assert_eq!(file("").unwrap().get(key.id()), Some(&Trusted::new(key)));
    assert_eq!(parse("").unwrap().iter().count(), 0, "a server may trust nobody");
}

#[test]
fn every_field() {
    let store = file(
        "prefixes = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nlongest = \"2h\"\noldest = \"30m\"\n\
         min_vantage = 3\nown = true\ntimes = 5\nper_second = 9",
    );
    let entry = store.unwrap().iter().next().unwrap().clone();
    assert_eq!((entry.prefixes.len(), entry.longest.as_secs(), entry.oldest.as_secs()), (2, 7200, 1800));
    assert_eq!((entry.min_vantage, entry.own, entry.times, entry.per_second), (3, true, 5, Some(9)));
}

#[test]
fn what_is_wrong_is_said() {
    let said = |rest: &str| file(rest).unwrap_err().to_string();
    assert!(said("prefixes = [\"192.0.2.0/33\"]").contains("prefixes cannot be \"192.0.2.0/33\""));
    assert!(said("longest = \"long\"").contains("longest cannot be"));
    assert!(said("min_vantage = 0").contains("min_vantage cannot be"));
    assert!(said("min_vantages = 1").contains("unknown field"));
    assert!(said(&format!("[[verifier]]\nkey = \"{KEY}\"")).contains("two trusted keys"));
    let unsound = parse(&format!("[[verifier]]\nkey = \"{}\"", "00".repeat(32))).unwrap_err();
    assert!(unsound.to_string().contains("no Ed25519 public key"), "{unsound}");
}

#[tokio::test]
async fn a_changed_file_is_another_store_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trust.toml");
    std::fs::write(&path, format!("[[verifier]]\nkey = \"{KEY}\"")).unwrap();
    let mut file = TrustFile::open(&path).await.unwrap();
    assert!(!file.reload().await.unwrap());
    std::fs::write(&path, "[[verifier").unwrap();
    assert!(file.reload().await.is_err());
    assert_eq!(file.store().iter().count(), 1);
    std::fs::write(&path, "").unwrap();
    // The file might be in the middle of a write.
    assert!(!file.reload().await.unwrap());
    assert!(file.reload().await.unwrap());
    assert_eq!(file.store().iter().count(), 0);
}

const OTHER: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// A file of two verifiers with all limits.
fn limited() -> String {
    let limits = "prefixes = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nlongest = \"1h\"\noldest = \"30m\"\n\
                  min_vantage = 3\nown = false\ntimes = 1\nper_second = 9\n";
    format!("[[verifier]]\nkey = \"{KEY}\"\n{limits}\n[[verifier]]\nkey = \"{OTHER}\"\n{limits}")
}

/// A directory with a trust file.
struct TrustDirectory(tempfile::TempDir);

impl TrustDirectory {
    fn new(text: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write(text);
        place
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("trust.toml")
    }
}

/// Regression test: a truncated file trusted more than the complete file, because an entry had lost its limits.
#[tokio::test]
async fn no_cut_of_a_marked_file_admits_more_than_the_whole() {
    let whole = format!("{BEGIN}\n{}{END}\n", limited());
    let place = TrustDirectory::new(&whole);
    let before = TrustFile::open(place.path()).await.unwrap();
    assert_eq!(before.store().iter().count(), 2);
    for cut in 0..whole.len() {
        place.write(&whole[..cut]);
        // When the program starts.
        let started = TrustFile::open(place.path()).await;
        let admitted = started.map_or(0, |file| file.store().iter().count());
        let complete = whole[..cut].trim_end().ends_with(END);
        assert_eq!(admitted, if complete { 2 } else { 0 }, "cut at {cut}");
        // While the program runs, however often the file is read.
        let mut file = before.clone();
        for _ in 0..3 {
            let _ = file.reload().await;
            assert!(Arc::ptr_eq(&file.store(), &before.store()) || complete, "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn no_cut_of_a_file_without_marks_admits_more_while_it_runs() {
    let whole = limited();
    let place = TrustDirectory::new(&whole);
    let before = TrustFile::open(place.path()).await.unwrap();
    let mut refused = 0;
    for cut in 0..whole.len() {
        let mut file = before.clone();
        place.write(&whole[..cut]);
        for _ in 0..3 {
            refused += usize::from(file.reload().await.is_err());
            assert!(!file.store().grants_more_than(&before.store()), "cut at {cut}");
        }
        // The complete file is back before the truncated one was accepted.
        let mut file = before.clone();
        let _ = file.reload().await;
        place.write(&whole);
        assert!(!file.reload().await.unwrap());
        assert!(Arc::ptr_eq(&file.store(), &before.store()));
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn marks_are_the_way_to_admit_more() {
    let place = TrustDirectory::new(&limited());
    let mut file = TrustFile::open(place.path()).await.unwrap();
    let more = format!("[[verifier]]\nkey = \"{KEY}\"\n");
    place.write(&more);
    assert!(!file.reload().await.unwrap());
    for _ in 0..2 {
        assert!(matches!(file.reload().await, Err(TrustFileError::Unmarked)));
    }
    place.write(&format!("{BEGIN}\n{more}{END}\n"));
    assert!(file.reload().await.unwrap());
    assert_eq!(file.store().iter().count(), 1);
    // A file without marks cannot replace one with marks.
    place.write(&more);
    for _ in 0..3 {
        assert!(matches!(file.reload().await, Err(TrustFileError::Unmarked)));
    }
}

#[test]
fn a_mark_in_the_middle_ends_nothing() {
    let entry = |key| format!("[[verifier]]\nkey = \"{key}\"\n");
    assert!(is_marked(&format!("{BEGIN}\n{}{END}", entry(KEY))).unwrap());
    assert!(is_marked(&format!(" {BEGIN} \r\n{}  {END}\r\n\n \n", entry(KEY))).unwrap());
    assert!(!is_marked(&entry(KEY)).unwrap());
    assert!(!is_marked("").unwrap());
    for cut in [
        format!("{BEGIN}\n{}", entry(KEY)),
        format!("{BEGIN}\n{}{END}\n{}", entry(KEY), entry(OTHER)),
        format!("{BEGIN}\n{}{END}\n{}{END}\n", entry(KEY), entry(OTHER)),
        BEGIN.to_owned(),
    ] {
        assert!(matches!(is_marked(&cut), Err(TrustFileError::Cut)), "{cut}");
    }
}
