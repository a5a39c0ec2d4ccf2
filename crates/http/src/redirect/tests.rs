use super::*;

fn hop(url: &str) -> RedirectHop {
    url.parse::<HttpUrl>().unwrap().into()
}

#[test]
fn secrets_stay_at_their_server_and_in_tls() {
    let first = hop("https://www.example.com/");
    assert!(first.may_get(&COOKIE) && first.follow("/next").unwrap().may_get(&AUTHORIZATION));
    for elsewhere in ["https://www.example.org/", "http://www.example.com/", "//www.example.com:8443/"] {
        let away = first.follow(elsewhere).unwrap();
        assert!(!away.may_get(&COOKIE) && !away.may_get(&AUTHORIZATION), "{elsewhere}");
        assert!(away.may_get(&hyper::header::ACCEPT));
        // Who was led back by another server gets nothing, either.
        assert!(!away.follow("https://www.example.com/").unwrap().may_get(&COOKIE), "{elsewhere}");
    }
    // Into TLS, at another port: another server.
    assert!(hop("http://www.example.com/").follow("https://www.example.com/").unwrap().foreign);
    assert_eq!(first.follow("ftp://www.example.com/"), Err(UrlError::NotHttp));
}

#[test]
fn methods_after_redirects() {
    for (status, post, put) in
        [(301, true, false), (302, true, false), (303, true, true), (307, false, false)]
    {
        assert_eq!(becomes_get(status, &Method::POST), post, "{status}");
        assert_eq!(becomes_get(status, &Method::PUT), put, "{status}");
        assert!(!becomes_get(status, &Method::HEAD) && !becomes_get(status, &Method::GET));
        assert!(is_redirect(status));
    }
    for other in [200, 201, 300, 304, 305, 400] {
        assert!(!is_redirect(other), "{other}");
    }
}

#[test]
fn the_location_as_it_is_written() {
    let mut fields = HeaderMap::new();
    assert_eq!(location(&fields), None);
    fields.insert(LOCATION, hyper::header::HeaderValue::from_bytes(b"/caf\xc3\xa9").unwrap());
    assert_eq!(location(&fields).as_deref(), Some("/café"));
}
