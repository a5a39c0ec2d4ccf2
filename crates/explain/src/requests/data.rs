//! What a client's data is: requests of HTTP, records of TLS, or something else.

/// What the client speaks, after its first bytes.
#[derive(Debug, Clone)]
pub(super) enum Protocol {
    /// HTTP/1.x in clear.
    Http,
    /// TLS.
    Tls(Records),
    /// Anything else, also TLS whose records cannot be followed.
    Other,
}

/// How a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP/1.x in clear.
    Http,
    /// TLS.
    Tls,
    /// Anything else.
    Other,
}

/// The methods of RFC 9110 and RFC 5789, with the space that follows one.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];
/// TLS's type of a ChangeCipherSpec.
const CHANGE_CIPHER_SPEC: u8 = 20;
/// TLS's type of a handshake message.
const HANDSHAKE: u8 = 22;
/// TLS's type of application data.
const APPLICATION_DATA: u8 = 23;
/// Length of the record with a client's Finished in TLS 1.3, with SHA-256 and with SHA-384.
const FINISHED: [usize; 2] = [4 + 32 + 1 + 16, 4 + 48 + 1 + 16];
/// An encrypted Finished of TLS 1.2 is shorter, and a ClientHello longer.
const SHORTEST_HELLO: usize = 100;

impl Protocol {
    /// Reads the first bytes of a connection's client, or of a client in the middle of a connection.
    pub(super) fn of(bytes: &[u8]) -> Self {
        if starts_request(bytes) {
            return Self::Http;
        }
        match bytes {
            [HANDSHAKE, 3, 0..=4, ..] => Self::Tls(Records::default()),
            [CHANGE_CIPHER_SPEC, 3, 0..=4, ..] => Self::Tls(Records::default()),
            // The capture began later.
            [APPLICATION_DATA, 3, 0..=4, ..] => Self::Tls(Records { done: true, ..Records::default() }),
            _ => Self::Other,
        }
    }

    /// Its kind.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Http => Kind::Http,
            Self::Tls(_) => Kind::Tls,
            Self::Other => Kind::Other,
        }
    }
}

/// Whether a request of HTTP/1.x begins here.
fn starts_request(bytes: &[u8]) -> bool {
    METHODS.iter().any(|method| bytes.starts_with(method))
}

/// How many requests of HTTP/1.x begin in a segment: one at its beginning, and those that follow the end of a head.
pub(super) fn requests(bytes: &[u8]) -> u32 {
    let mut count = u32::from(starts_request(bytes));
    let mut rest = bytes;
    while let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
        rest = rest.get(end + 4..).unwrap_or_default();
        count += u32::from(starts_request(rest));
    }
    count
}

/// What a segment of a client of TLS has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// A record of application data that is not the end of the handshake.
    pub application: bool,
    /// The client's Finished of TLS 1.3.
    pub finished: bool,
}

/// Follows the records of a client of TLS by their lengths.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    /// Bytes of the current record that are still to come.
    left: usize,
    /// The beginning of a header that the next segment continues.
    head: [u8; 5],
    have: usize,
    /// Whether the last record was a ChangeCipherSpec.
    changed: bool,
    /// Whether the end of the handshake was seen.
    done: bool,
    /// Whether the place in the records is unknown. Then everything counts as application data.
    lost: bool,
}

impl Records {
    /// Notes that the capture lacks some of the bytes.
    pub(super) const fn lose(&mut self) {
        self.lost = true;
    }

    /// Reads the next bytes of the stream.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Found {
        let mut found = Found::default();
        while !bytes.is_empty() {
            if self.lost {
                found.application = true;
                break;
            }
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - skipped, bytes.get(skipped..).unwrap_or_default());
                continue;
            }
            while let (Some(place), Some((first, rest))) = (self.head.get_mut(self.have), bytes.split_first())
            {
                (*place, bytes) = (*first, rest);
                self.have += 1;
            }
            if self.have < self.head.len() {
                break;
            }
            self.have = 0;
            let [kind, major, _, high, low] = self.head;
            if major != 3 || !(CHANGE_CIPHER_SPEC..=24).contains(&kind) {
                self.lost = true;
                found.application = true;
                break;
            }
            self.left = usize::from(u16::from_be_bytes([high, low]));
            self.record(kind, self.left, &mut found);
        }
        found
    }

    fn record(&mut self, kind: u8, length: usize, found: &mut Found) {
        match kind {
            HANDSHAKE if self.changed && length < SHORTEST_HELLO => self.done = true,
            APPLICATION_DATA if !self.done && FINISHED.contains(&length) => {
                (self.done, found.finished) = (true, true);
            }
            APPLICATION_DATA => found.application = true,
            _ => {}
        }
        self.changed = kind == CHANGE_CIPHER_SPEC;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: u16) -> Vec<u8> {
        let mut bytes = vec![kind, 3, 3];
        bytes.extend(length.to_be_bytes());
        bytes.resize(5 + usize::from(length), 0xaa);
        bytes
    }

    #[test]
    fn requests_are_told_apart() {
        assert_eq!(requests(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1);
        assert_eq!(requests(b"GET / HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HT"), 3);
        assert_eq!(requests(b"a body\r\n\r\nwith lines"), 0);
        assert_eq!(requests(b"the end of a body\r\n\r\nGET / HTTP/1.1"), 1);
        assert_eq!([requests(b""), requests(b"\r\n\r\n")], [0, 0]);
    }

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        assert_eq!(Protocol::of(b"POST /x HTTP/1.1").kind(), Kind::Http);
        assert_eq!(Protocol::of(&record(22, 300)).kind(), Kind::Tls);
        for other in [&b"SSH-2.0-x"[..], b"PRI * HTTP/2.0", b"", b"GETTING", &[22, 3]] {
            assert_eq!(Protocol::of(other).kind(), Kind::Other, "{other:?}");
        }
    }

    /// TLS 1.3: ClientHello; then ChangeCipherSpec, Finished and a request in one segment.
    #[test]
    fn the_finished_of_tls_1_3_is_no_request() {
        for length in [53, 69] {
            let mut records = Records::default();
            assert_eq!(records.read(&record(22, 517)), Found::default());
            let end = [record(20, 1), record(23, length)].concat();
            let found = records.read(&end);
            assert_eq!(found, Found { finished: true, ..Found::default() });
            assert!(records.read(&record(23, 53)).application, "the second one is data");
        }
        let mut records = Records::default();
        records.read(&record(22, 517));
        let found = records.read(&[record(20, 1), record(23, 53), record(23, 200)].concat());
        assert_eq!(found, Found { finished: true, application: true });
    }

    #[test]
    fn tls_1_2_and_a_second_hello() {
        let mut records = Records::default();
        records.read(&record(22, 200));
        let end = [record(22, 70), record(20, 1), record(22, 40)].concat();
        assert_eq!(records.read(&end), Found::default());
        assert!(records.read(&record(23, 53)).application, "the handshake was over");
        let mut records = Records::default();
        records.read(&record(22, 200));
        // After a HelloRetryRequest.
        records.read(&[record(20, 1), record(22, 300)].concat());
        assert!(records.read(&record(23, 53)).finished);
    }

    #[test]
    fn records_are_followed_across_segments_of_any_length() {
        let stream =
            [record(22, 300), record(20, 1), record(23, 53), record(23, 500), record(23, 40)].concat();
        for size in 1..40 {
            let mut records = Records::default();
            let all: Vec<Found> = stream.chunks(size).map(|part| records.read(part)).collect();
            assert_eq!(all.iter().filter(|found| found.finished).count(), 1, "{size}");
            assert!(all.iter().any(|found| found.application) && !records.lost);
        }
        let mut records = Records::default();
        records.read(&record(22, 30));
        assert!(records.read(b"not records").application && records.lost);
        assert!(records.read(b"anything").application);
    }
}
