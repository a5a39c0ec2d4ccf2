//! What a client's data is: requests of HTTP, records of TLS, or something else.

/// What the client speaks, after its first bytes.
#[derive(Debug, Clone)]
pub(super) enum Protocol {
    /// HTTP/1.x in clear.
    Http,
    Tls(Records),
    /// Anything else, also TLS whose records cannot be followed.
    Other,
}

/// How a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP/1.x in clear.
    Http,
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
pub(super) struct TlsData {
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
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> TlsData {
        let mut found = TlsData::default();
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

    fn record(&mut self, kind: u8, length: usize, found: &mut TlsData) {
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
mod tests;
