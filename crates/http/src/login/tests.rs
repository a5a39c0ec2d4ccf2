#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use hyper::header::HeaderValue;

fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn a_login_begins_with_credentials_or_a_challenge() {
    for value in ["NTLM", "ntlm TlRMTVNTUAAB", "Negotiate YII=", "KERBEROS abc", "Basic YTpi, NTLM"] {
        assert!(request_begins(&map(&[("authorization", value)])), "{value}");
        assert!(request_begins(&map(&[("proxy-authorization", value)])), "{value}");
        assert!(response_begins(&map(&[("www-authenticate", value)])), "{value}");
        assert!(response_begins(&map(&[("proxy-authenticate", value)])), "{value}");
    }
    for value in ["Basic realm=\"x\", NTLM", "Basic realm=\"a\\\", b\" , nEGOTIATE", "Basic realm=\"x, NTLM"]
    {
        assert!(response_begins(&map(&[("www-authenticate", value)])), "{value}");
    }
    let lines = map(&[("www-authenticate", "Basic realm=\"x\""), ("www-authenticate", "Negotiate")]);
    assert!(response_begins(&lines));
    assert!(response_begins(&map(&[("persistent-auth", "TRUE")])));
    assert!(response_begins(&map(&[("proxy-support", "Session-Based-Authentication")])));
    for value in ["Basic YTpi", "Bearer NTLM", "Basic realm=\"a, NTLM\"", "Digest x=\"Negotiate\", ntlm=1"] {
        assert!(!request_begins(&map(&[("authorization", value)])), "{value}");
        assert!(!response_begins(&map(&[("www-authenticate", value)])), "{value}");
    }
    assert!(!response_begins(&map(&[("persistent-auth", "false")])));
}

#[test]
fn challenges_that_http2_does_not_have_are_removed() {
    let mut headers = map(&[("www-authenticate", "NTLM"), ("www-authenticate", "Basic realm=\"x\"")]);
    assert!(remove_challenges(&mut headers));
    assert_eq!(headers.get_all(WWW_AUTHENTICATE).iter().collect::<Vec<_>>(), ["Basic realm=\"x\""]);
    assert!(!remove_challenges(&mut map(&[("www-authenticate", "Negotiate"), ("www-authenticate", "NTLM")])));
}
