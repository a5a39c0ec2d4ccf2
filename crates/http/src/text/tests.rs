use super::*;

#[test]
fn no_text_makes_a_line_a_word_or_an_order_of_its_own() {
    let safe = |text: &str| Safe(Some(text)).to_string();
    assert_eq!(safe("/a?b=c"), "/a?b=c");
    assert_eq!(safe("a b\"c\n"), r"a\u{20}b\u{22}c\u{a}");
    assert_eq!(safe("\u{202e}\u{2028}\u{85}\u{200b}\u{feff}"), r"\u{202e}\u{2028}\u{85}\u{200b}\u{feff}");
    assert_eq!((Safe(None).to_string(), safe("")), ("-".into(), "-".into()));
    for c in '\0'..=char::MAX {
        let text = safe(&String::from(c));
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{c:?}");
    }
}

#[test]
fn a_line_stays_one_line_in_its_order() {
    let safe = |text: &str| SafeLine(text).to_string();
    assert_eq!(safe("no \"a.example\": (1)"), "no \"a.example\": (1)");
    assert_eq!(safe("a\u{202e}b\u{2028}\n\u{7f}"), r"a\u{202e}b\u{2028}\u{a}\u{7f}");
}
