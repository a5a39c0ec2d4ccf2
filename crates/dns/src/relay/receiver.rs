//! Receives relay datagrams, at the server.

use super::clocks::{ClockReport, Clocks};
use super::head::Head;
use super::window::{NumberState, Window};
use super::{Boot, HEAD, Kind, RELAY_WINDOW_MS, RelayKey, TAG, nonce};
use crate::ReplyKey;
use crate::ci::ConnectionInfo;
use crate::seal::OpenBuffer;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, Tag};
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use firstflight_wire::ParseError;
use hpke::inout::InOutBuf;
use std::collections::BTreeMap;

/// A first flight that a front handed over.
#[derive(Debug)]
pub struct Relayed<'b> {
    /// The resolver that the last fragment came through. It serves for accounting and proves nothing.
    pub resolver: IpAddr,
    /// The key that proves the answer to the client.
    pub reply: ReplyKey,
    /// The first flight.
    pub ci: ConnectionInfo<'b>,
}

/// Why a relay datagram was dropped. There is never an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayRefused {
    /// It is not a relay datagram, or of another version.
    #[error("no relay datagram of this version")]
    Malformed,
    /// No key has this number.
    #[error("no key has this number")]
    UnknownKey,
    /// Its time differs from the server's by more than 5 s: one of the two clocks is wrong, or the datagram
    /// was delayed.
    #[error("more than 5 s from the server's time")]
    Time,
    /// It is from before the front's last start.
    #[error("from before the front's last start")]
    OldBoot,
    /// It was seen before.
    #[error("seen before")]
    Replayed,
    /// It is more than 1024 behind the newest one.
    #[error("too far behind")]
    Behind,
    /// It was not made with the key, or was changed on the way.
    #[error("not made with the key, or changed on the way")]
    Forged,
    /// The key's holder sent content that is not connection information: front and server have different
    /// versions.
    #[error("by a front, but {0}")]
    Content(ParseError),
    /// Too many fronts.
    #[error("too many fronts")]
    TooManyFronts,
}

/// Counts of a receiver. All only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RelayCounters {
    /// First flights accepted.
    pub accepted: u64,
    /// [`RelayRefused::Malformed`].
    pub malformed: u64,
    /// [`RelayRefused::UnknownKey`].
    pub unknown_key: u64,
    /// [`RelayRefused::Time`]: genuine ones and others.
    pub time: u64,
    /// How many of those were opened to check the front's clock, and were genuine.
    pub time_genuine: u64,
    /// How many of those were opened to check the front's clock, and were not genuine.
    pub time_forged: u64,
    /// [`RelayRefused::OldBoot`].
    pub old_boot: u64,
    /// [`RelayRefused::Replayed`].
    pub replayed: u64,
    /// [`RelayRefused::Behind`].
    pub behind: u64,
    /// [`RelayRefused::Forged`].
    pub forged: u64,
    /// [`RelayRefused::Content`].
    pub content: u64,
    /// [`RelayRefused::TooManyFronts`].
    pub too_many_fronts: u64,
}

impl RelayCounters {
    const fn count(&mut self, refused: RelayRefused) {
        *match refused {
            RelayRefused::Malformed => &mut self.malformed,
            RelayRefused::UnknownKey => &mut self.unknown_key,
            RelayRefused::Time => &mut self.time,
            RelayRefused::OldBoot => &mut self.old_boot,
            RelayRefused::Replayed => &mut self.replayed,
            RelayRefused::Behind => &mut self.behind,
            RelayRefused::Forged => &mut self.forged,
            RelayRefused::Content(_) => &mut self.content,
            RelayRefused::TooManyFronts => &mut self.too_many_fronts,
        } += 1;
    }
}

/// The datagrams of one sender of a front since its last start.
#[derive(Debug)]
struct Front {
    boot: Boot,
    window: Window,
    /// The latest time in its datagrams, Unix milliseconds.
    latest: u64,
}

/// A key, and its cipher.
struct Key {
    secret: RelayKey,
    cipher: ChaCha20Poly1305,
}

/// Receives relay datagrams at the server. After each [`RelayReceiver::handle_datagram`] call
/// [`RelayReceiver::poll_clock`].
#[derive(Default)]
pub struct RelayReceiver {
    keys: BTreeMap<u8, Key>,
    /// By key id and front id.
    fronts: BTreeMap<(u8, u16), Front>,
    clocks: Clocks,
    counters: RelayCounters,
}

impl RelayReceiver {
    /// The most senders that are remembered at once.
    pub const MAX_FRONTS: usize = 1024;

    /// A receiver without keys, which accepts nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on accepts datagrams with `key` under this number, instead of those with the previous key. If
    /// the number has this key already, the datagrams that were seen under it stay known.
    pub fn set_key(&mut self, key_id: u8, key: &RelayKey) {
        if self.keys.get(&key_id).is_some_and(|known| known.secret == *key) {
            return;
        }
        self.remove_key(key_id);
        self.keys.insert(key_id, Key { secret: key.clone(), cipher: key.cipher() });
    }

    /// Accepts nothing under this number any more.
    pub fn remove_key(&mut self, key_id: u8) {
        self.keys.remove(&key_id);
        self.fronts.retain(|(of, _), _| *of != key_id);
        self.clocks.remove_key(key_id);
    }

    /// The report on the clock of the last datagram's front, if a message is due: it is too far from this
    /// server's clock (reported again every ten minutes), or right again.
    pub const fn poll_clock(&mut self) -> Option<ClockReport> {
        self.clocks.report()
    }

    /// The counts so far.
    #[must_use]
    pub const fn counters(&self) -> &RelayCounters {
        &self.counters
    }

    /// Senders that are remembered.
    #[must_use]
    pub fn fronts(&self) -> usize {
        self.fronts.len()
    }

    /// Handles a datagram that came at the wall clock's time `unix_ms`. Opens it into `buffer`.
    ///
    /// # Errors
    /// Why it is dropped, which is counted.
    pub fn handle_datagram<'b>(
        &mut self,
        datagram: &[u8],
        unix_ms: u64,
        buffer: &'b mut OpenBuffer,
    ) -> Result<Relayed<'b>, RelayRefused> {
        self.handle(Kind::Relay, datagram, unix_ms, buffer.whole_mut(), |_, plain| content(plain))
    }

    /// Opens a datagram of this kind into `buffer`, and passes the front's number and the content to `read`.
    pub(crate) fn handle<'b, T>(
        &mut self,
        kind: Kind,
        datagram: &[u8],
        unix_ms: u64,
        buffer: &'b mut [u8],
        read: impl FnOnce(u16, &'b [u8]) -> Result<T, RelayRefused>,
    ) -> Result<T, RelayRefused> {
        let opened = self.open(kind, datagram, unix_ms, buffer);
        let content = opened.and_then(|(front, plain)| read(front, plain));
        match &content {
            Ok(_) => self.counters.accepted += 1,
            Err(refused) => self.counters.count(*refused),
        }
        content
    }

    /// Makes the cheap checks first, and changes state only after the datagram is proved genuine.
    fn open<'b>(
        &mut self,
        kind: Kind,
        datagram: &[u8],
        unix_ms: u64,
        buffer: &'b mut [u8],
    ) -> Result<(u16, &'b [u8]), RelayRefused> {
        let (head_bytes, rest) = datagram.split_first_chunk::<HEAD>().ok_or(RelayRefused::Malformed)?;
        let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(RelayRefused::Malformed)?;
        if text.len() > buffer.len() {
            return Err(RelayRefused::Malformed);
        }
        let head = Head::parse(kind, head_bytes).ok_or(RelayRefused::Malformed)?;
        let key = self.keys.get(&head.key_id).ok_or(RelayRefused::UnknownKey)?;
        let place = (head.key_id, head.front);
        let known = self.fronts.get(&place);
        let sealed = Sealed { head: head_bytes, text, tag };
        if head.time.abs_diff(unix_ms) > RELAY_WINDOW_MS {
            // A copy of an earlier datagram proves nothing about the front's present clock.
            let is_new = known.is_none_or(|front| front.is_new(&head));
            if is_new && self.clocks.check(place, &head, unix_ms) {
                match sealed.open(&key.cipher, buffer) {
                    Ok(_) => {
                        self.counters.time_genuine += 1;
                        self.clocks.note_wrong(place, &head, unix_ms);
                    }
                    Err(_) => self.counters.time_forged += 1,
                }
            }
            return Err(RelayRefused::Time);
        }
        if let Some(front) = known {
            front.check(&head)?;
        }
        let plain = sealed.open(&key.cipher, buffer)?;
        self.note(place, &head, unix_ms)?;
        self.clocks.note_taken(place, &head, unix_ms);
        Ok((head.front, plain))
    }

    /// Notes a genuine datagram as seen.
    fn note(&mut self, place: (u8, u16), head: &Head, unix_ms: u64) -> Result<(), RelayRefused> {
        if !self.fronts.contains_key(&place) && self.fronts.len() >= Self::MAX_FRONTS {
            // All datagrams of such a front are too old to be accepted again.
            self.fronts.retain(|_, front| front.latest.saturating_add(RELAY_WINDOW_MS) >= unix_ms);
            if self.fronts.len() >= Self::MAX_FRONTS {
                return Err(RelayRefused::TooManyFronts);
            }
        }
        let new = || Front { boot: head.boot, window: Window::new(), latest: head.time };
        let front = self.fronts.entry(place).or_insert_with(new);
        if head.boot > front.boot {
            *front = new();
        }
        front.latest = front.latest.max(head.time);
        front.window.mark(head.sequence);
        Ok(())
    }
}

/// A datagram's three parts.
struct Sealed<'a> {
    head: &'a [u8; HEAD],
    text: &'a [u8],
    tag: &'a [u8; TAG],
}

impl Sealed<'_> {
    /// Its content, if it was made with the key of `cipher`.
    fn open<'b>(&self, cipher: &ChaCha20Poly1305, buffer: &'b mut [u8]) -> Result<&'b [u8], RelayRefused> {
        let plain = buffer.get_mut(..self.text.len()).ok_or(RelayRefused::Malformed)?;
        let nonce = nonce(self.head).ok_or(RelayRefused::Malformed)?;
        let pair = InOutBuf::new(self.text, &mut *plain).map_err(|_| RelayRefused::Malformed)?;
        cipher
            .decrypt_inout_detached(&nonce, self.head, pair, &Tag::from(*self.tag))
            .map_err(|_| RelayRefused::Forged)?;
        Ok(plain)
    }
}

impl Front {
    /// Whether it is newer than all accepted ones.
    fn is_new(&self, head: &Head) -> bool {
        head.boot > self.boot || (head.boot == self.boot && self.window.is_above(head.sequence))
    }

    fn check(&self, head: &Head) -> Result<(), RelayRefused> {
        if head.boot != self.boot {
            return if head.boot < self.boot { Err(RelayRefused::OldBoot) } else { Ok(()) };
        }
        match self.window.look(head.sequence) {
            NumberState::No => Ok(()),
            NumberState::Yes => Err(RelayRefused::Replayed),
            NumberState::Behind => Err(RelayRefused::Behind),
        }
    }
}

/// Parses the content of an opened datagram.
fn content(plain: &[u8]) -> Result<Relayed<'_>, RelayRefused> {
    let truncated = RelayRefused::Content(ParseError::Truncated);
    let (resolver, rest) = plain.split_first_chunk::<16>().ok_or(truncated)?;
    let (&[a, b, high, low], rest) = rest.split_first_chunk().ok_or(truncated)?;
    let (reply, ci) = rest.split_first_chunk().ok_or(truncated)?;
    if [a, b] != [0, 0] || ci.len() != usize::from(u16::from_be_bytes([high, low])) {
        return Err(RelayRefused::Content(ParseError::Malformed("length in a relay datagram")));
    }
    Ok(Relayed {
        resolver: IpAddr::from(Ipv6Addr::from(*resolver)).to_canonical(),
        reply: ReplyKey::from_bytes(reply),
        ci: ConnectionInfo::parse(ci).map_err(RelayRefused::Content)?,
    })
}

impl fmt::Debug for RelayReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayReceiver")
            .field("keys", &self.keys.len())
            .field("fronts", &self.fronts.len())
            .field("counters", &self.counters)
            .finish()
    }
}
