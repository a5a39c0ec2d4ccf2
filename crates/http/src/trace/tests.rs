#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn headers(values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(TRACEPARENT, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

#[test]
fn a_field_is_read_as_the_specification_says() {
    let read = |text: &str| TraceId::of(&headers(&[text])).map(|trace| trace.to_string());
    let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
    assert_eq!(read(&valid).as_deref(), Some(TRACE));
    assert_eq!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01-what-follows")).as_deref(), Some(TRACE));
    assert_eq!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01")).as_deref(), Some(TRACE));
    let wrong = [
        String::new(),
        "00".to_owned(),
        format!("{valid}-more"),
        format!("cc-{TRACE}-00f067aa0ba902b7-01.more"),
        format!("ff-{TRACE}-00f067aa0ba902b7-01"),
        format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        format!("00-{TRACE}-0000000000000000-01"),
        format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
        format!("00-{TRACE}-00f067aa0ba902b7-0x"),
        format!("00-{}-00f067aa0ba902b7a-01", &TRACE[1..]),
        format!("00-{TRACE}-00f067aa0ba902b7_01"),
        "\u{e9}".repeat(40),
    ];
    for text in wrong {
        assert_eq!(read(&text), None, "{text}");
    }
    assert_eq!(TraceId::of(&headers(&[&valid, &valid])), None, "two of them");
}

#[test]
fn a_trace_that_begins_here_is_valid_and_its_own() {
    let mut all = headers(&["nonsense"]);
    all.insert(TRACESTATE, HeaderValue::from_static("a=b"));
    let first = begin(&mut all).unwrap();
    assert_eq!(TraceId::of(&all), Some(first));
    assert!(!all.contains_key(TRACESTATE));
    assert!(all[TRACEPARENT].to_str().unwrap().ends_with("-01"));
    assert_ne!(begin(&mut all).unwrap(), first);
    assert_eq!(all.get_all(TRACEPARENT).iter().count(), 1);
}
