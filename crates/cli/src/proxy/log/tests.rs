use super::*;

#[test]
fn an_event_is_a_line() {
    let contact = Contact {
        way: "kernel",
        outcome: "accepted",
        reason: None,
        early_yes: true,
        round_trips_saved: 1,
        saved_ms: Some(24.0),
        connect_ms: 12.5,
        rtt_ms: None,
        inside_lookup: None,
        held_back: None,
    };
    let connected = Event::Connected {
        protocol: Protocol::Connect,
        server: "www.example.com:443".into(),
        address: "192.0.2.1:443".into(),
        contact,
    };
    assert_eq!(
        text(&connected),
        "www.example.com:443 (192.0.2.1:443, CONNECT): accepted by kernel, early yes, 12.5 ms, 24.0 ms saved"
    );
    let json = serde_json::to_value(&connected).unwrap();
    assert_eq!((&json["event"], &json["outcome"]), (&"connected".into(), &"accepted".into()));
    assert_eq!((&json["protocol"], &json["early_yes"]), (&"connect".into(), &true.into()));
    let failed = Event::Failed {
        protocol: Protocol::Socks5,
        server: "a:1".into(),
        error: "refused".into(),
        error_type: "connection_refused",
        reset: true,
    };
    assert!(text(&failed).ends_with("so its connection is reset"));
}

/// Names of SOCKS may have any characters.
#[test]
fn an_event_cannot_turn_or_break_its_line() {
    let server = "a\u{202e}b\u{2028}c\nd:1".to_owned();
    let left = text(&Event::Left { protocol: Protocol::Socks5, server });
    let line = SafeLine(&left).to_string();
    assert_eq!(line, r"a\u{202e}b\u{2028}c\u{a}d:1 (SOCKS5): its client left before it had an answer");
}
