//! Requests of HTTP/1.1 that may be executed twice.

/// The safe methods (RFC 9110 §9.2.1).
pub(crate) const SAFE: [&[u8]; 4] = [b"GET ", b"HEAD ", b"OPTIONS ", b"TRACE "];

/// Whether `data` is one request with a safe method, without a body, and all of it. What a server could read in another
/// way is not: line ends without CR, control characters, names of fields that are no tokens, folded lines (RFC 9112 §2.2,
/// §5).
pub(super) fn is_safe_request(data: &[u8]) -> bool {
    let Some(head) = data.strip_suffix(b"\r\n\r\n") else { return false };
    let mut lines = head.split(|byte| *byte == b'\n').peekable();
    let mut first = true;
    while let Some(line) = lines.next() {
        let line = match (line.strip_suffix(b"\r"), lines.peek()) {
            (Some(line), Some(_)) => line,
            (None, None) => line,
            _ => return false,
        };
        let clean = line.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        let good = if first { SAFE.iter().any(|method| line.starts_with(method)) } else { is_harmless(line) };
        if !clean || !good {
            return false;
        }
        first = false;
    }
    true
}

/// Whether this is a field, and one that announces no body.
fn is_harmless(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let (name, _) = line.split_at(colon);
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let body = [&b"content-length"[..], b"transfer-encoding", b"expect"];
    !name.is_empty() && name.iter().all(token) && !body.iter().any(|body| name.eq_ignore_ascii_case(body))
}

/// Whether `data` begins a request that asks for another protocol on its connection (RFC 9110 §7.8), which will then be
/// open for long.
pub(super) fn is_upgrade(data: &[u8]) -> bool {
    let head = data.split(|byte| *byte == b'\n').take_while(|line| *line != b"\r");
    head.skip(1).any(|line| {
        line.split(|byte| *byte == b':').next().is_some_and(|name| name.eq_ignore_ascii_case(b"upgrade"))
    })
}

#[cfg(test)]
mod tests;
