use super::*;

fn gain(findings: &[Finding], ms: u64) -> Gain {
    let lines: Vec<_> = findings.iter().map(|finding| Line::new(*finding, "")).collect();
    Gain::of(&lines, Some(Duration::from_millis(ms)))
}

#[test]
fn the_line_says_what_is_gained_and_what_to_change() {
    let works = gain(&[Finding::Answers, Finding::CookieGranted, Finding::DataAccepted], 24);
    assert_eq!((works.saves_ms, works.rtt_ms), (Some(24.0), Some(24.0)));
    assert!(works.text.starts_with("one round trip (24.0 ms) on each"), "{}", works.text);
    assert!(works.text.ends_with("nothing to change here"), "{}", works.text);
    let lacks = gain(&[Finding::Answers, Finding::CookieNotGranted], 24);
    assert_eq!(lacks.saves_ms, None);
    assert!(lacks.text.contains("fastopen=256") && lacks.text.contains("(24.0 ms)"), "{}", lacks.text);
    assert!(gain(&[Finding::Answers, Finding::CookieNotGranted], 1).text.starts_with("little: "));
    let dropped = gain(&[Finding::Answers, Finding::CookieGranted, Finding::DataDropped], 24).text;
    assert!(dropped.contains("dropped: Find the firewall that drops SYNs with data"), "{dropped}");
    assert_eq!(gain(&[Finding::Refused], 0).text, "none: there is no connection at all");
}

#[test]
fn every_finding_at_a_server_has_an_answer() {
    for finding in Finding::ALL {
        assert!(!gain(&[*finding], 10).text.is_empty(), "{finding:?}");
    }
}
