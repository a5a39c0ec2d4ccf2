//! The clients: wrk for HTTP/1.1, h2load for HTTP/2.

use super::{BenchError, ClientWay};
use std::process::Command;
use std::time::Duration;

/// Connections of HTTP/1.1.
const CONNECTIONS: &str = "64";
/// Connections of HTTP/2, and streams of each.
const H2: [&str; 2] = ["4", "100"];

/// The command with its arguments. `wrap` puts a command in the place.
pub(super) fn command(wrap: impl Fn(&str) -> Command, way: ClientWay, url: &str, time: Duration) -> Command {
    // wrk knows whole seconds, h2load fractions.
    let whole = format!("{}s", time.as_secs().max(1));
    match way {
        ClientWay::Kept | ClientWay::Once => {
            let mut command = wrap("wrk");
            command.args(["-t", "1", "-c", CONNECTIONS, "-d", &whole, "--timeout", "30s"]);
            if way == ClientWay::Once {
                command.args(["-H", "Connection: close"]);
            }
            command.arg(url);
            command
        }
        ClientWay::Streams => {
            let [clients, streams] = H2;
            let mut command = wrap("h2load");
            command.args(["-t", "1", "-c", clients, "-m", streams, "-D", &whole, url]);
            command
        }
    }
}

/// What the clients saw: requests answered, and seconds. All must have the status 2xx.
pub(super) fn read(way: ClientWay, said: &str) -> Result<(f64, f64), BenchError> {
    let wrong = |why: &str| BenchError::Wrong(format!("{why}: {}", said.trim()));
    match way {
        ClientWay::Kept | ClientWay::Once => {
            if said.contains("Non-2xx") || said.contains("Socket errors") {
                return Err(wrong("requests failed"));
            }
            let line = said.lines().find(|line| line.contains(" requests in "));
            let (requests, rest) =
                line.and_then(|line| line.split_once(" requests in ")).ok_or_else(|| wrong("no count"))?;
            let seconds =
                rest.split(',').next().and_then(|time| humantime::parse_duration(&dotless(time)).ok());
            let requests = requests.trim().parse().map_err(|_| wrong("no count"))?;
            Ok((requests, seconds.ok_or_else(|| wrong("no time"))?.as_secs_f64()))
        }
        ClientWay::Streams => {
            let line =
                said.lines().find(|line| line.starts_with("requests: ")).ok_or_else(|| wrong("no count"))?;
            let of = |what: &str| -> Option<f64> {
                let part = line.split(", ").find(|part| part.ends_with(what))?;
                part.split(' ').rev().nth(1)?.parse().ok()
            };
            let done = of(" succeeded").ok_or_else(|| wrong("no count"))?;
            if [" failed", " errored", " timeout"].into_iter().any(|what| of(what) != Some(0.0)) {
                return Err(wrong("requests failed"));
            }
            let line =
                said.lines().find(|line| line.starts_with("finished in ")).ok_or_else(|| wrong("no time"))?;
            let time = line.trim_start_matches("finished in ").split(',').next().unwrap_or_default();
            let time = humantime::parse_duration(&dotless(time)).map_err(|_| wrong("no time"))?;
            Ok((done, time.as_secs_f64()))
        }
    }
}

/// `3.02s` as `3020000us`: a number of seconds, milliseconds or minutes with a point.
fn dotless(time: &str) -> String {
    let time = time.trim();
    let unit = time.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = time.trim_end_matches(unit).parse().unwrap_or_default();
    let micros = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "m" => 60e6,
        _ => 1e6,
    };
    format!("{:.0}us", number * micros)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_wrk_and_h2load_say_is_read() {
        let wrk = "Running 3s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  90210 requests in 3.02s, 21.5MB read\n";
        assert_eq!(read(ClientWay::Kept, wrk).unwrap(), (90_210.0, 3.02));
        assert!(read(ClientWay::Kept, &format!("{wrk}  Non-2xx or 3xx responses: 4\n")).is_err());
        assert!(read(ClientWay::Kept, "").is_err());
        let h2load = "finished in 950.50ms, 1.00 req/s, 1B/s\n\
             requests: 7 total, 9 started, 7 done, 7 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(read(ClientWay::Streams, h2load).unwrap(), (7.0, 0.9505));
        assert!(read(ClientWay::Streams, &h2load.replace("0 errored", "1 errored")).is_err());
    }
}
