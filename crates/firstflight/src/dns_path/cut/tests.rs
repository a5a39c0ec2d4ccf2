use super::*;

#[test]
fn the_first_line_of_a_safe_request() {
    assert_eq!(first_line(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"), Some(17));
    for other in [
        "",
        "GET /a HTTP/1.1",
        "POST / HTTP/1.1\r\n",
        "GET /\r\n",
        "GET / HTTP/1.0\r\n",
        "GET /\n HTTP/1.1\r\n",
        "\x16\x03\x01\r\n",
    ] {
        assert_eq!(first_line(other.as_bytes()), None, "{other:?}");
    }
}

#[test]
fn all_of_it_or_the_beginning_or_nothing() {
    let data = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let first = FirstFlight::safely_replayable(data);
    assert_eq!(carried(first, false, data.len()), Some(data.len()));
    assert_eq!(carried(first, false, data.len() - 1), None);
    assert_eq!(carried(first, true, data.len() - 1), Some(17));
    assert_eq!(carried(first, true, 16), None);
    assert_eq!(carried(first.beginning(5), true, 16), Some(5));
    // More than there is.
    assert_eq!(carried(first.beginning(100), false, data.len() - 1), None);
}
