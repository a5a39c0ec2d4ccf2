use super::*;

fn status(method: &Method, fields: &[(&str, &str)]) -> u16 {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    match check(method, &headers, "127.0.0.1:3128".parse().unwrap()) {
        Ok(()) => 200,
        Err((status, _)) => status.as_u16(),
    }
}

#[test]
fn the_help_has_every_reason_as_text() {
    let help = help();
    for reason in Reason::ALL {
        let sentence = reason.to_string();
        assert!(!sentence.contains(['<', '&']), "{sentence}");
        assert!(help.contains(&format!("<code>{}</code><dd>{sentence}.", reason.as_str())), "{reason:?}");
    }
    assert!(!help.contains("<!--"));
}

#[test]
fn pages_are_for_this_host_and_for_no_other_site() {
    const HOST: (&str, &str) = ("host", "127.0.0.1:3128");
    let get = |fields: &[(&str, &str)]| status(&Method::GET, fields);
    for good in [
        &[HOST][..],
        &[("host", "localhost:3128")],
        &[HOST, ("origin", "http://127.0.0.1:3128")],
        &[HOST, ("sec-fetch-site", "same-origin")],
        &[HOST, ("sec-fetch-site", "none")],
    ] {
        assert_eq!(get(good), 200, "{good:?}");
    }
    // DNS rebinding: the page's own name resolves to this machine.
    for wrong in [
        &[][..],
        &[("host", "evil.example:3128")],
        &[("host", "127.0.0.1")],
        &[("host", "127.0.0.1:3129")],
        &[("host", "127.0.0.1:3128.evil.example")],
        &[("host", "localhost.evil.example:3128")],
        &[HOST, ("host", "evil.example")],
    ] {
        assert_eq!(get(wrong), 421, "{wrong:?}");
    }
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "https://127.0.0.1:3128"),
        ("origin", "http://127.0.0.1:31280"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(get(&[HOST, foreign]), 403, "{foreign:?}");
    }
    assert_eq!(status(&Method::POST, &[HOST]), 405);
}
