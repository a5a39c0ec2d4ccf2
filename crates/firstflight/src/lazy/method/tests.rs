use super::*;

#[test]
fn an_upgrade_is_a_field_of_the_head() {
    assert!(is_upgrade(b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n"));
    assert!(is_upgrade(b"GET /chat HTTP/1.1\r\nupgrade: websocket"));
    for other in ["", "GET / HTTP/1.1\r\nHost: upgrade\r\n\r\n", "POST / HTTP/1.1\r\n\r\nUpgrade: x"] {
        assert!(!is_upgrade(other.as_bytes()), "{other:?}");
    }
}

#[test]
fn only_a_whole_request_with_a_safe_method() {
    for safe in [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "HEAD / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "TRACE / HTTP/1.1\r\n\r\n",
    ] {
        assert!(is_safe_request(safe.as_bytes()), "{safe:?}");
    }
    for other in [
        "",
        "GET",
        "GET / HTTP/1.1\r\n",
        "get / HTTP/1.1\r\n\r\n",
        "GETX / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        "DELETE / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\nDELETE / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\nDELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\nDELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n",
        "GET / HTTP/1.1\r\n Content-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length\0: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length\r\n : 5\r\n\r\n",
    ] {
        assert!(!is_safe_request(other.as_bytes()), "{other:?}");
    }
}
