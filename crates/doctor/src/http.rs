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
mod tests;
