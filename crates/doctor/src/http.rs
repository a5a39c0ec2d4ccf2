//! As much of HTTP as `doctor` speaks.

use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Ports that are expected to speak HTTP.
const PORTS: [u16; 7] = [80, 8000, 8008, 8080, 8081, 8088, 8888];
/// The longest head that is read, bytes.
const LONGEST: usize = 8192;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) fn is_port(port: u16) -> bool {
    PORTS.contains(&port)
}

/// A request that changes nothing.
pub(crate) fn request(host: &str) -> Vec<u8> {
    format!("HEAD / HTTP/1.0\r\nHost: {host}\r\nUser-Agent: firstflight-doctor\r\n\r\n").into_bytes()
}

/// The time in the head of a response, and ours when it came; `None` if there is no such head.
pub(crate) async fn date(stream: &mut (impl AsyncRead + Unpin)) -> Option<(SystemTime, SystemTime)> {
    let mut head = Vec::new();
    let read = async {
        let mut block = [0; 1024];
        while head.len() < LONGEST && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut block).await {
                Ok(0) | Err(_) => break,
                Ok(count) => head.extend_from_slice(block.get(..count).unwrap_or_default()),
            }
        }
    };
    // A part of a head is read as well.
    let _ = timeout(PATIENCE, read).await;
    let now = SystemTime::now();
    let head = String::from_utf8_lossy(&head);
    if !head.starts_with("HTTP/") {
        return None;
    }
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    Some((parse(value.trim())?, now))
}

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn parse(date: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<_> = date.split_ascii_whitespace().collect();
    let &[_, day, month, year, clock, "GMT"] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    humantime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{clock}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_date_of_a_response_is_its_server_s_time() {
        let date_of = async |text: &str| date(&mut text.as_bytes()).await.map(|(time, _)| time);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let head = "HTTP/1.0 200 OK\r\nServer: x\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        assert_eq!(date_of(head).await, Some(time));
        assert_eq!(date_of(head.trim_end()).await, Some(time), "without an end");
        for wrong in
            ["", "HTTP/1.0 200 OK\r\n\r\n", "220 mail\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"]
        {
            assert_eq!(date_of(wrong).await, None, "{wrong}");
        }
    }

    #[test]
    fn other_dates_are_not_read() {
        for wrong in ["", "1994-11-06", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Non 1994 08:49:37 GMT"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_request_has_no_body_and_the_host() {
        let request = String::from_utf8(request("a.example:80")).unwrap();
        assert!(
            request.starts_with("HEAD / HTTP/1.0\r\nHost: a.example:80\r\n") && request.ends_with("\r\n\r\n")
        );
    }
}
