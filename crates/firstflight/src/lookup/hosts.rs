//! The file `/etc/hosts`, for names that cannot wait for a thread.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PATH: &str = "/etc/hosts";
/// No more of it is read, bytes.
const MOST: u64 = 1024 * 1024;
/// How long what was read is used.
const FRESH: Duration = Duration::from_secs(5);

type Names = HashMap<String, Vec<SocketAddr>>;

/// What the file says, as it was read last.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<Option<(Instant, Names)>>);

impl Hosts {
    /// The addresses of a name, in the order of the file. Their ports are 0.
    pub(super) fn find(&self, name: &str, now: Instant) -> Vec<SocketAddr> {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read.take_if(|(at, _)| now.saturating_duration_since(*at) >= FRESH);
        let (_, names) = read.get_or_insert_with(|| (now, parse(&text())));
        names.get(&name.to_ascii_lowercase()).cloned().unwrap_or_default()
    }
}

fn text() -> String {
    let mut bytes = Vec::new();
    // Without the file no name is in it.
    let _ = File::open(PATH).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lines of an address and its names; the rest behind a `#` is a comment (hosts(5)).
fn parse(text: &str) -> Names {
    let mut names = Names::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words {
            let addresses = names.entry(name.to_ascii_lowercase()).or_default();
            let address = SocketAddr::new(ip, 0);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_address_and_its_names() {
        let text = "# comment\n127.0.0.1\tlocalhost\n::1 localhost LOCALHOST ip6 # more\n\nnonsense a\n10.0.0.1\n\
                    10.0.0.2 App.internal app # app2\nfe80::1%eth0 zone\n";
        let names = parse(text);
        let of = |name: &str| -> Vec<String> {
            names.get(name).into_iter().flatten().map(|address| address.ip().to_string()).collect()
        };
        assert_eq!(of("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(
            (of("ip6"), of("app.internal"), of("app")),
            (vec!["::1".into()], vec!["10.0.0.2".into()], vec!["10.0.0.2".into()])
        );
        for none in ["a", "app2", "comment", "more", "zone", "10.0.0.1"] {
            assert!(of(none).is_empty(), "{none}");
        }
    }
}
