//! What `get --via-dns` remembers between runs: what servers publish, which resolvers refuse, change or lose names of
//! first flights, and on which networks unknown servers cannot reach this client.

use super::GetError;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use firstflight::carriage::{self, Cause};
use firstflight::credential::NetworkId;
use firstflight::wire::Instant;
use firstflight::wire::asap::Zone;
use firstflight_files::Format;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Maximum number of servers. The entries that expire first are removed first.
const SERVERS: usize = 1024;
/// Maximum number of networks, and of resolvers.
const NETWORKS: usize = 256;
/// The file.
const FORMAT: Format = Format { version: 1, longest: 4 << 20, secret: false };
/// How long a network is not verified again after unknown servers could not reach this client.
const CLOSED_FOR: Duration = Duration::from_secs(60 * 60);
/// How long a server's record is not queried again after it was queried because first flights were lost, seconds.
const ASKED_AGAIN: u64 = 10 * 60;

/// The file's content. Times are Unix times in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsMemory {
    servers: Vec<Known>,
    stops: Vec<Stop>,
    closed: Vec<Closed>,
}

/// What a server published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    name: String,
    port: u16,
    /// The parameter, in hexadecimal.
    parameter: String,
    until: u64,
    /// First flights in a row that were sealed to it and lost.
    #[serde(default)]
    lost: u32,
    /// When the record was last queried again because of that.
    #[serde(default)]
    asked: u64,
}

/// A resolver that refused, changed or lost names of first flights. Older programs write only the first three fields,
/// which then concern all zones. They ignore the other fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stop {
    network: String,
    resolver: IpAddr,
    /// When the pause ends or ended; without a pause, the time of the strike.
    until: u64,
    /// The carriage zone in wire form, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// First flights in a row that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strikes: Option<u32>,
    /// The resolver said that there is no such zone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_zone: bool,
}

/// A network on which unknown servers cannot reach this client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closed {
    network: String,
    until: u64,
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()
}

impl DnsMemory {
    /// Reads the file at `path`. A missing file counts as empty. Also checks before anything is sent that the file
    /// can be written.
    pub fn open(path: &Path) -> Result<Self, GetError> {
        let fail = |error| GetError::DnsMemory(path.to_owned(), error);
        firstflight_files::check_writable(path).map_err(fail)?;
        Ok(FORMAT.read(path).map_err(|error| fail(io::Error::other(error)))?.unwrap_or_default())
    }

    /// Replaces the file atomically, with mode 0600.
    pub fn write(&self, path: &Path) -> Result<(), GetError> {
        FORMAT.write(path, self).map_err(|error| GetError::DnsMemory(path.to_owned(), error))
    }

    /// The parameter that the server of `name` at `port` published, if its record has not expired.
    pub fn parameter(&self, name: &str, port: u16, now: u64) -> Option<Vec<u8>> {
        let mut known = self.servers.iter();
        let known = known.find(|known| known.is(name, port) && known.until > now)?;
        unhex(&known.parameter)
    }

    /// Stores a record.
    pub fn learn(&mut self, name: &str, port: u16, parameter: &[u8], ttl: u32, now: u64) {
        self.put(name, port, parameter, ttl, now, 0);
    }

    fn put(&mut self, name: &str, port: u16, parameter: &[u8], ttl: u32, now: u64, asked: u64) {
        self.servers.retain(|known| !known.is(name, port) && known.until > now);
        self.servers.sort_by_key(|known| std::cmp::Reverse(known.until));
        self.servers.truncate(SERVERS - 1);
        let until = now.saturating_add(u64::from(ttl));
        let name = name.to_ascii_lowercase();
        self.servers.push(Known { name, port, parameter: HEXLOWER.encode(parameter), until, lost: 0, asked });
    }

    /// Stores the result of a query that was repeated because first flights were lost. A changed record replaces the
    /// known one. Without a record, the known one is forgotten.
    pub fn learn_again(&mut self, name: &str, port: u16, found: Option<(&[u8], u32)>, now: u64) {
        let known = self.parameter(name, port, now);
        match found {
            None => self.servers.retain(|known| !known.is(name, port)),
            Some((parameter, _)) if known.as_deref() == Some(parameter) => self.set_asked(name, port, now),
            Some((parameter, ttl)) => self.put(name, port, parameter, ttl, now, now),
        }
    }

    /// Records that the server's record was queried again, with or without an answer.
    pub fn set_asked(&mut self, name: &str, port: u16, now: u64) {
        for known in self.servers.iter_mut().filter(|known| known.is(name, port)) {
            known.asked = now;
        }
    }

    /// Whether the record may be queried again: the last query was at least ten minutes ago, or its time is in the
    /// future because the clock was set back.
    pub fn may_ask_again(&self, name: &str, port: u16, now: u64) -> bool {
        let mut known = self.servers.iter().filter(|known| known.is(name, port));
        known.all(|known| known.asked > now || now - known.asked >= ASKED_AGAIN)
    }

    /// The parameters, each with its number of first flights lost in a row.
    pub fn losses(&self) -> impl Iterator<Item = (Vec<u8>, u32)> {
        let lost = self.servers.iter().filter(|known| known.lost > 0);
        lost.filter_map(|known| Some((unhex(&known.parameter)?, known.lost)))
    }

    /// Sets the number of first flights lost in a row for each parameter.
    pub fn set_losses(&mut self, lost: impl Fn(&[u8]) -> u32) {
        for known in &mut self.servers {
            known.lost = unhex(&known.parameter).map_or(0, |parameter| lost(&parameter));
        }
    }

    /// The zones and resolvers for which first flights are paused, or soon might be. Their times are those of a clock
    /// that shows `clock` now.
    pub fn stops(&self, now: u64, clock: Instant) -> impl Iterator<Item = carriage::Stop> {
        self.stops.iter().filter_map(move |stop| {
            let zone = match &stop.zone {
                Some(zone) => {
                    let zone = unhex(zone)?;
                    Zone::new(&zone)?;
                    Some(zone.into_boxed_slice())
                }
                // A pause for all zones counts only while it lasts.
                None if stop.until <= now => return None,
                None => None,
            };
            let seconds = Duration::from_secs(stop.until.abs_diff(now));
            Some(carriage::Stop {
                network: NetworkId(unhex(&stop.network)?.try_into().ok()?),
                resolver: stop.resolver,
                zone,
                cause: if stop.no_zone { Cause::Zone } else { Cause::Resolver },
                // An entry without strikes was written by an older program and means a pause.
                strikes: stop.strikes.unwrap_or(2),
                until: if stop.until > now { clock + seconds } else { clock - seconds },
            })
        })
    }

    /// Replaces the pauses. Those on unknown networks are not kept.
    pub fn set_stops(&mut self, stops: &[carriage::Stop], now: u64, clock: Instant) {
        let known = stops.iter().filter(|stop| stop.network.is_known());
        let stops = known.map(|stop| Stop {
            network: HEXLOWER.encode(&stop.network.0),
            resolver: stop.resolver,
            until: now
                .saturating_add((stop.until - clock).as_secs())
                .saturating_sub((clock - stop.until).as_secs()),
            zone: stop.zone.as_deref().map(|zone| HEXLOWER.encode(zone)),
            strikes: Some(stop.strikes),
            no_zone: stop.cause == Cause::Zone,
        });
        self.stops = stops.take(NETWORKS).collect();
    }

    /// Whether the last verification on `network`, less than an hour ago, found that unknown servers cannot reach
    /// this client.
    pub fn is_closed(&self, network: NetworkId, now: u64) -> bool {
        let network_hex = HEXLOWER.encode(&network.0);
        let here = |closed: &Closed| closed.network == network_hex && closed.until > now;
        network.is_known() && self.closed.iter().any(here)
    }

    /// Records whether unknown servers can reach this client.
    pub fn set_closed(&mut self, network: NetworkId, closed: bool, now: u64) {
        let network_hex = HEXLOWER.encode(&network.0);
        self.closed.retain(|closed| closed.network != network_hex && closed.until > now);
        if closed && network.is_known() && self.closed.len() < NETWORKS {
            self.closed.push(Closed { network: network_hex, until: now + CLOSED_FOR.as_secs() });
        }
    }
}

impl Known {
    fn is(&self, name: &str, port: u16) -> bool {
        self.port == port && self.name.eq_ignore_ascii_case(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NetworkId = NetworkId([7; 16]);
    const NOW: u64 = 1_800_000_000;
    const CLOCK: Instant = Instant::from_secs(1_000_000);
    const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";

    fn resolver() -> IpAddr {
        "192.0.2.53".parse().unwrap()
    }

    /// A pause of ZONE that ends this many seconds from now.
    fn stop(network: NetworkId, seconds: i64) -> carriage::Stop {
        let of = Duration::from_secs(seconds.unsigned_abs());
        carriage::Stop {
            network,
            resolver: resolver(),
            zone: Some(ZONE.into()),
            cause: if seconds < 0 { Cause::Zone } else { Cause::Resolver },
            strikes: 3,
            until: if seconds < 0 { CLOCK - of } else { CLOCK + of },
        }
    }

    /// The format of older programs.
    const OLD: &str = r#"{
  "version": 1,
  "servers": [{ "name": "www.example.com", "port": 80, "parameter": "01ab", "until": 1800000060 }],
  "stops": [{
    "network": "07070707070707070707070707070707", "resolver": "192.0.2.53", "until": 1800080000
  }],
  "closed": []
}"#;

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn a_stop_in_an_old_file_is_one_of_all_zones_for_an_hour() {
        let (_directory, path) = written(OLD);
        let memory = DnsMemory::open(&path).unwrap();
        assert_eq!(memory.parameter("www.example.com", 80, NOW), Some(vec![1, 0xab]));
        let mut manners = carriage::Manners::new();
        memory.stops(NOW, CLOCK).for_each(|stop| manners.restore(stop, CLOCK));
        let hour = Duration::from_secs(3600);
        for zone in [ZONE, b"\x01a\0"] {
            let is_stopped = |at| manners.is_stopped(Zone::new(zone).unwrap(), HOME, resolver(), at);
            assert!(is_stopped(CLOCK) && is_stopped(CLOCK + hour - Duration::from_secs(1)));
            assert!(!is_stopped(CLOCK + hour));
        }
        // The count does not start again with each run.
        let mut memory = memory;
        let stops: Vec<_> = manners.stops(CLOCK).cloned().collect();
        memory.set_stops(&stops, NOW, CLOCK);
        memory.write(&path).unwrap();
        let again = DnsMemory::open(&path).unwrap();
        let stops: Vec<_> = again.stops(NOW + 600, CLOCK).collect();
        assert_eq!(stops.iter().map(|stop| stop.until).collect::<Vec<_>>(), [CLOCK + hour - hour / 6]);
        assert_eq!(again.stops(NOW + 3600, CLOCK).count(), 0);
    }

    #[test]
    fn an_old_program_reads_a_new_file() {
        /// The structures of older programs.
        #[derive(Deserialize)]
        struct OldMemory {
            version: u32,
            stops: Vec<OldStop>,
        }
        #[derive(Deserialize)]
        struct OldStop {
            network: String,
            resolver: IpAddr,
            until: u64,
        }
        let mut memory = DnsMemory::default();
        memory.set_stops(&[stop(HOME, 600), stop(HOME, -600)], NOW, CLOCK);
        let (_directory, path) = written("");
        memory.write(&path).unwrap();
        let old: OldMemory = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((old.version, old.stops[0].until, old.stops[1].until), (1, NOW + 600, NOW - 600));
        assert!(
            old.stops
                .iter()
                .all(|stop| stop.network == HEXLOWER.encode(&HOME.0) && stop.resolver == resolver())
        );
    }

    #[test]
    fn a_zone_that_is_none_is_passed_over() {
        let (_directory, path) = written(&OLD.replace("1800080000", "1800080000, \"zone\": \"05ff\""));
        assert_eq!(DnsMemory::open(&path).unwrap().stops(NOW, CLOCK).count(), 0);
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let mut memory = DnsMemory::open(&path).unwrap();
        memory.learn("www.Example.com", 80, &[1, 0xab], 60, NOW);
        let stops = [stop(HOME, 600), stop(HOME, -600), stop(NetworkId::UNKNOWN, 600)];
        memory.set_stops(&stops, NOW, CLOCK);
        memory.set_closed(HOME, true, NOW);
        memory.set_closed(NetworkId::UNKNOWN, true, NOW);
        memory.write(&path).unwrap();
        let again = DnsMemory::open(&path).unwrap();
        assert_eq!(again.parameter("www.example.COM", 80, NOW + 59), Some(vec![1, 0xab]));
        assert_eq!(again.parameter("www.example.com", 80, NOW + 60), None);
        assert_eq!(again.parameter("www.example.com", 81, NOW), None);
        let later = CLOCK + Duration::from_secs(10);
        assert_eq!(again.stops(NOW + 10, later).collect::<Vec<_>>(), stops[..2]);
        assert!(again.is_closed(HOME, NOW + 3599) && !again.is_closed(HOME, NOW + 3600));
        assert!(!again.is_closed(NetworkId::UNKNOWN, NOW));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_record_that_is_asked_for_again_replaces_what_was_known_at_once() {
        let mut memory = DnsMemory::default();
        let known = |memory: &DnsMemory| memory.parameter("www.xyz.com", 80, NOW + 1000);
        memory.learn("www.xyz.com", 80, &[1], 86_400, NOW);
        memory.set_losses(|parameter| u32::from(parameter == [1]) * 2);
        assert_eq!(memory.losses().collect::<Vec<_>>(), [(vec![1], 2)]);
        assert!(memory.may_ask_again("www.xyz.com", 80, NOW));
        // An unchanged record: neither its expiry nor its losses change.
        memory.learn_again("WWW.xyz.com", 80, Some((&[1], 1)), NOW + 600);
        assert_eq!((known(&memory), memory.losses().count()), (Some(vec![1]), 1));
        // At most once in ten minutes. A clock that was set back does not prevent queries for good.
        assert!(!memory.may_ask_again("www.xyz.com", 80, NOW + 1199));
        assert!(memory.may_ask_again("www.xyz.com", 80, NOW + 1200));
        assert!(memory.may_ask_again("www.xyz.com", 80, NOW));
        // Another port is another server.
        memory.learn_again("www.xyz.com", 81, None, NOW + 600);
        assert_eq!(known(&memory), Some(vec![1]));
        memory.learn_again("www.xyz.com", 80, Some((&[2], 86_400)), NOW + 700);
        assert_eq!((known(&memory), memory.losses().count()), (Some(vec![2]), 0));
        assert!(!memory.may_ask_again("www.xyz.com", 80, NOW + 701));
        memory.learn_again("www.xyz.com", 80, None, NOW + 800);
        assert_eq!(known(&memory), None);
    }

    #[test]
    fn a_file_from_before_losses_were_counted_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let server = r#"{"name":"www.xyz.com","port":80,"parameter":"01","until":1800000060}"#;
        let text = format!(r#"{{"version":1,"servers":[{server}],"stops":[],"closed":[]}}"#);
        std::fs::write(&path, text).unwrap();
        let memory = DnsMemory::open(&path).unwrap();
        assert_eq!(memory.parameter("www.xyz.com", 80, NOW), Some(vec![1]));
        assert!(memory.may_ask_again("www.xyz.com", 80, NOW) && memory.losses().count() == 0);
    }

    #[test]
    fn it_is_bounded_and_tells_what_it_is_not() {
        let mut memory = DnsMemory::default();
        for n in 0..2000 {
            memory.learn(&format!("host{n}"), 80, &[1], 60 + n, NOW);
        }
        assert_eq!(memory.servers.len(), SERVERS);
        assert!(
            memory.parameter("host1999", 80, NOW).is_some() && memory.parameter("host0", 80, NOW).is_none()
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        for text in ["", "{}", "{\"version\":2,\"servers\":[],\"stops\":[],\"closed\":[]}"] {
            std::fs::write(&path, text).unwrap();
            assert!(DnsMemory::open(&path).is_err(), "{text}");
        }
        assert!(DnsMemory::open(Path::new("/nonexistent/memory")).is_err());
    }
}
