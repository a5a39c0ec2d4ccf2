use super::*;

#[test]
fn a_request_goes_again_only_by_the_table() {
    use Again::{Elsewhere, No, Once, Yes};
    let custom = Method::from_bytes(b"PURGE").unwrap_or_default();
    for method in [Method::GET, Method::POST, Method::DELETE, custom.clone()] {
        for kept in [true, false] {
            assert_eq!(again(AttemptFate::NotExecuted, kept, &method), Yes, "{method} {kept}");
            assert_eq!(again(AttemptFate::Answered, kept, &method), No, "{method} {kept}");
        }
        let expected = if method == Method::GET { Elsewhere } else { No };
        assert_eq!(again(AttemptFate::Silence, false, &method), expected, "{method}");
    }
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE] {
        assert_eq!(again(AttemptFate::Silence, true, &method), Once, "{method}");
    }
    for method in [Method::POST, Method::PATCH, custom] {
        assert_eq!(again(AttemptFate::Silence, true, &method), No, "{method}");
    }
}

#[test]
fn only_codes_of_the_server_that_say_so_mean_that_nothing_was_executed() {
    // An error that is made here is none of the server's.
    let made = h2::Error::from(h2::Reason::REFUSED_STREAM);
    assert_eq!(fate_of_h2(&made, true), AttemptFate::Answered);
    for code in [h2::Reason::INTERNAL_ERROR, h2::Reason::CANCEL, h2::Reason::ENHANCE_YOUR_CALM] {
        assert_eq!(fate_of_h2(&h2::Error::from(code), true), AttemptFate::Answered, "{code:?}");
    }
}
