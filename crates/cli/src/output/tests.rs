use super::*;
use std::time::Duration;

/// Regression test: U+009B, which begins a terminal command, came through from a path.
#[test]
fn what_a_terminal_obeys_is_shown_as_its_number() {
    let shown = |text: &str| Visible(&text).to_string();
    assert_eq!(shown("/a\u{9b}31mb"), "/a\\u{9b}31mb");
    assert_eq!(shown("\x1b]0;x\x07\r\u{202e}\u{2069}."), "\\u{1b}]0;x\\u{7}\\u{d}\\u{202e}\\u{2069}.");
    assert_eq!(shown("two\nlines\twith ä, €, 𝄞 and ‰"), "two\nlines\twith ä, €, 𝄞 and ‰");
    assert_eq!(visible_but_colours("\x1b[31mred\u{9b}\n"), "\x1b[31mred\\u{9b}\n");
    let all: String = ('\0'..=char::MAX).collect();
    assert!(!shown(&all).contains(|c: char| c != '\n' && c != '\t' && (c.is_control() || is_obeyed(c))));
}

#[test]
fn json_reads_the_same_and_shows_nothing_that_a_terminal_obeys() {
    let text = "/\u{9b}2J\u{7f}\u{202e}\u{2028}\u{1b}\\ä";
    let json = json_text(&[text]).unwrap();
    assert!(!json.contains(is_obeyed), "{json}");
    assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [text]);
}

#[test]
fn an_event_has_the_time() {
    #[derive(Serialize)]
    #[serde(tag = "event", rename_all = "kebab-case")]
    enum Event {
        Request { bytes: u64 },
    }
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_250);
    let line = json_text(&Timed::new(at, &Event::Request { bytes: u64::MAX })).unwrap();
    let expected = r#"{"time":"2027-01-15T08:00:00.250Z","event":"request","bytes":18446744073709551615}"#;
    assert_eq!(line, expected);
}

#[test]
fn durations_have_as_many_digits_as_they_are_exact() {
    let printed = |duration: Duration| serde_json::to_string(&[seconds(duration), millis(duration)]).unwrap();
    assert_eq!(printed(Duration::from_nanos(2_480_999)), "[0.002481,2.481]");
    assert_eq!(printed(Duration::from_nanos(86_400_000_000_499)), "[86400.0,86400000.0]");
    for us in (0..2_000_000).step_by(997) {
        let [s, ms] = [seconds(Duration::from_micros(us)), millis(Duration::from_micros(us))];
        assert!(s.to_string().len() <= 8 && ms.to_string().len() <= 8, "{s} {ms}");
    }
}
