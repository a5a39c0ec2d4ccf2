use super::*;
use serde_json::{Value, json};

fn report() -> Report {
    let machine = vec![
        Line::new(Finding::ClientEnabled, "net.ipv4.tcp_fastopen = 3"),
        Line::new(Finding::SynproxyNotSeen, "the rules cannot be read"),
    ];
    let server = vec![Line::new(Finding::CookieNotGranted, "none after 2 requests")];
    let subject = Subject::Server("www.example.com:80".into(), Some("192.0.2.1:80".into()));
    Report {
        root: false,
        groups: vec![
            Group::new(Subject::Machine, machine),
            Group { gain: Some(Gain::of(&server, None)), subject, lines: server },
        ],
    }
}

#[test]
fn the_worst_verdict_is_the_whole_ones() {
    let mut report = report();
    assert_eq!(report.verdict(), Verdict::Problem);
    report.groups.pop();
    assert_eq!(report.verdict(), Verdict::Unknown);
    report.groups.clear();
    assert_eq!(report.verdict(), Verdict::Ok);
}

#[test]
fn people_get_what_to_do_below_each_line_that_is_not_ok() {
    let text = report().to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "Machine");
    assert_eq!(lines[1], "  ✓ ok       fast-open-client         net.ipv4.tcp_fastopen = 3");
    assert!(lines[3].starts_with(&format!("{:37}to find out: Run it as root", "")), "{text}");
    assert_eq!(lines[5], "www.example.com:80 (192.0.2.1:80)");
    assert!(lines[7].trim_start().starts_with("what to do: "), "{text}");
    let last = "gain at www.example.com:80 (192.0.2.1:80): none today; it could be one round trip";
    assert!(lines.last().is_some_and(|line| line.starts_with(last)), "{text}");
    assert!(text.contains(ROOT_WOULD_SEE) && text.contains("1 problem, no warnings, 1 unknown"), "{text}");
}

#[test]
fn programs_get_one_document() {
    let report = report();
    let document: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(document["verdict"], "problem");
    assert_eq!((&document["root"], &document["root_would_see"]), (&json!(false), &json!(ROOT_WOULD_SEE)));
    let last = &document["checks"][2];
    assert_eq!(last["section"], "server");
    assert_eq!((&last["server"], &last["address"]), (&json!("www.example.com:80"), &json!("192.0.2.1:80")));
    assert_eq!((&last["check"], &last["finding"]), (&json!("cookie"), &json!("not-granted")));
    assert_eq!((&last["verdict"], &last["detail"]), (&json!("problem"), &json!("none after 2 requests")));
    assert!(last["advice"].is_string());
    assert_eq!(
        (&document["gains"][0]["server"], &document["gains"][0]["saves_ms"]),
        (&json!("www.example.com:80"), &Value::Null)
    );
    assert_eq!(document["checks"][0]["advice"], Value::Null);
    assert_eq!(document["checks"][0]["server"], Value::Null);
}
