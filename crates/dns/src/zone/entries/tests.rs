use super::*;
use proptest::prelude::*;

fn split(text: &str) -> Vec<(usize, String, bool)> {
    let entry = |entry: Result<Entry, _>| {
        let Entry { line, text, indented } = entry.unwrap();
        (line, text, indented)
    };
    Entries::new(text).map(entry).collect()
}

fn fault(text: &str) -> (usize, EntryFault) {
    Entries::new(text).find_map(Result::err).unwrap()
}

#[test]
fn entries_are_lines_unless_parentheses_hold_them_together() {
    let text = "; a comment\n\n$TTL 300 ; five minutes\r\n@\tIN SOA ns ( ; (\n  7 3600\n\n) 900\n   IN NS ns ; \"\n  \nlast";
    let words = |(line, text, indented): (usize, String, bool)| {
        (line, text.split_whitespace().collect::<Vec<_>>().join(" "), indented)
    };
    let found: Vec<_> = split(text).into_iter().map(words).collect();
    let expected = [
        (3, "$TTL 300", false),
        (4, "@ IN SOA ns 7 3600 900", false),
        (8, "IN NS ns", true),
        (10, "last", false),
    ];
    assert_eq!(found, expected.map(|(line, text, indented)| (line, text.to_owned(), indented)));
}

#[test]
fn quoted_strings_are_as_they_are() {
    for (text, expected) in [
        (r#"a "b ; ( c" d"#, r#"a "b ; ( c" d"#),
        // The library itself has different escapes.
        (r#"a "\"\\\034\059\065\x""#, r#"a "\"\\\";Ax""#),
        (r#"a key1="\001;\"x y\\" b"#, r#"a key1="\001\059\"x\032y\\" b"#),
        (r"a\.b \@ \065", r"a\.b \@ \065"),
    ] {
        assert_eq!(split(text)[0].1, expected);
    }
}

#[test]
fn what_cannot_be_split_names_the_line() {
    assert_eq!(fault("a\n\nb (\nc\n(d)\n"), (3, EntryFault::NotClosed));
    assert_eq!(fault("a (\n)\n)"), (3, EntryFault::NotOpened));
    assert_eq!(fault("a\nb \"c\nd\""), (2, EntryFault::Quote));
    for text in ["a\nb\\;c", "a\nb\\", "a\n\"\\200\"", "a\n\"\\1x\"", "a\n\"\\12"] {
        assert_eq!(fault(text), (2, EntryFault::Escape), "{text}");
    }
}

proptest! {
    #[test]
    fn lines_only_grow(text in r#"[a;()"\\ 0-9\n\r]{0,60}"#) {
        let lines = text.matches('\n').count() + 1;
        let mut last = 0;
        for entry in Entries::new(&text) {
            let line = match entry {
                Ok(Entry { line, text, .. }) => {
                    prop_assert!(!text.is_empty());
                    line
                }
                Err((line, _)) => line,
            };
            prop_assert!(line >= last && (1..=lines).contains(&line));
            last = line;
        }
    }
}
