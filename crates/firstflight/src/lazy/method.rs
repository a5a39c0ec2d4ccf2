//! Requests of HTTP/1.1 that may be executed twice.

/// The safe methods (RFC 9110 §9.2.1).
const SAFE: [&[u8]; 4] = [b"GET ", b"HEAD ", b"OPTIONS ", b"TRACE "];

/// Whether `data` is one request with a safe method, without a body, and all of it.
pub(super) fn is_safe_request(data: &[u8]) -> bool {
    let Some(head) = data.strip_suffix(b"\r\n\r\n") else { return false };
    // A second request, which hides behind the first one, may have any method.
    let one = !head.windows(4).any(|four| four == b"\r\n\r\n");
    let body = head.split(|byte| *byte == b'\n').skip(1).any(has_body);
    one && !body && SAFE.iter().any(|method| data.starts_with(method))
}

/// Whether `data` begins a request that asks for another protocol on its connection (RFC 9110 §7.8), which will then be
/// open for long.
pub(super) fn is_upgrade(data: &[u8]) -> bool {
    let head = data.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r");
    head.skip(1).any(|line| {
        line.split(|byte| *byte == b':').next().is_some_and(|name| name.eq_ignore_ascii_case(b"upgrade"))
    })
}

/// Whether this field announces a body, which would follow.
fn has_body(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

#[cfg(test)]
mod tests {
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
        ] {
            assert!(!is_safe_request(other.as_bytes()), "{other:?}");
        }
    }
}
