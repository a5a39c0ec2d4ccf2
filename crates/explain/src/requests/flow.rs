//! One connection: where its requests begin and end.

use super::data::{Kind, Protocol, requests};
use crate::conversation::{Conversation, ConversationSide, acknowledged};
use crate::offered::Offered;
use crate::sightings::Sighting;
use crate::table::FlowEnds;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::time::Duration;

/// On which connection a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contact {
    /// The first request of a connection that the capture shows from its beginning: the paper's cold request.
    New,
    /// A later request of a connection: a warm request.
    Reused,
    /// The first request that the capture shows of a connection that began before it.
    Unknown,
}

/// The parts of a request's time at the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// TCP's handshake, if the request waited for it.
    pub handshake: Duration,
    /// TLS's handshake, if the request waited for it.
    pub tls: Duration,
    /// From the request's first byte to the last byte of the response.
    pub exchange: Duration,
}

/// A request with what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Its protocol.
    pub kind: Kind,
    /// Its connection.
    pub contact: Contact,
    /// Whether it was in the SYN, and accepted there.
    pub in_syn: bool,
    /// Whether data of the server followed.
    pub answered: bool,
    /// Whether another request was sent before the response.
    pub pipelined: bool,
    /// `None` if it is pipelined, or has no answer, or the capture does not show how far the client is.
    pub times: Option<Times>,
}

/// A request that is not over.
#[derive(Debug, Clone, Copy)]
struct Request {
    began: Instant,
    kind: Kind,
    contact: Contact,
    in_syn: bool,
    pipelined: bool,
    /// When the last data of the server passed.
    last: Option<Instant>,
}

/// What the data of a SYN began with, until the server has taken or refused it.
#[derive(Debug, Clone)]
struct Flight {
    protocol: Protocol,
    /// Whether a request is in it.
    asks: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Flow {
    conversation: Conversation,
    /// Whether [`Flow::handle`] got the first segment, which the conversation has already.
    begun: bool,
    silence: Duration,
    /// The next sequence number of each side's data: low, high.
    next: [Option<SeqNum>; 2],
    /// Who is taken for the client if the capture does not show the beginning.
    guess: Option<ConversationSide>,
    flight: Option<Flight>,
    protocol: Option<Protocol>,
    request: Option<Request>,
    /// Whether there was a request.
    asked: bool,
    /// When the last data passed, and its sender.
    last: Option<(Instant, ConversationSide)>,
    /// When TLS's ClientHello passed, and when the client's Finished.
    hello: Option<Instant>,
    finished: Option<Instant>,
    gaps: bool,
}

/// What the capture shows of a connection's handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HandshakeSeen {
    /// From the first SYN until the client had the SYN-ACK.
    pub took: Duration,
    /// The round trip between the place of the capture and the client.
    leg: Duration,
}

impl Flow {
    /// A connection that begins with this segment. After a `silence` of this length a burst of data that is not HTTP in
    /// clear is a new request. [`Flow::handle`] takes the segment, too.
    pub(super) fn new(
        seen: Sighting,
        from: ConversationSide,
        segment: &Segment<'_>,
        silence: Duration,
    ) -> Self {
        Self {
            conversation: Conversation::new(seen, from, segment),
            begun: false,
            silence,
            next: [None; 2],
            guess: None,
            flight: None,
            protocol: None,
            request: None,
            asked: false,
            last: None,
            hello: None,
            finished: None,
            gaps: false,
        }
    }

    /// Whether a segment belongs to this connection, and not to a later one between the same ports.
    pub(super) fn owns(&self, seen: Sighting, from: ConversationSide, segment: &Segment<'_>) -> bool {
        self.conversation.owns(seen.at, from, segment)
    }

    /// The client, if the capture shows the beginning.
    pub(super) fn client(&self) -> Option<ConversationSide> {
        self.conversation.client()
    }

    /// The server, as far as the capture tells.
    pub(super) fn server(&self) -> ConversationSide {
        self.client().or(self.guess).unwrap_or(ConversationSide::Low).other()
    }

    /// The facts of the handshake.
    pub(super) const fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Whether the capture lacks some of its data.
    pub(super) const fn has_gaps(&self) -> bool {
        self.gaps
    }

    /// The handshake, if the capture shows all of it.
    pub(super) fn opened(&self) -> Option<HandshakeSeen> {
        let client = self.client()?;
        let (half, peer) = (self.conversation.half(client), self.conversation.half(client.other()));
        let (syn, syn_ack, ack) = (half.syn?, peer.syn_ack?, half.ack?);
        let answered = syn_ack.sent.latest_until(ack).unwrap_or_else(|| syn_ack.sent.earliest());
        Some(HandshakeSeen {
            took: ack.saturating_since(syn.sent.earliest()),
            leg: ack.saturating_since(answered),
        })
    }

    /// Records a segment. `out` gets the requests that are over by it.
    pub(super) fn handle(
        &mut self,
        seen: Sighting,
        (ends, from): (&FlowEnds, ConversationSide),
        segment: &Segment<'_>,
        out: &mut impl FnMut(Exchange),
    ) {
        if self.begun {
            self.conversation.handle_segment(seen, from, segment);
        }
        self.begun = true;
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            return;
        }
        if flags.contains(Flags::SYN) && !flags.contains(Flags::ACK) {
            self.handle_syn(from, segment);
            return;
        }
        if flags.contains(Flags::SYN) {
            self.handle_syn_ack(from, segment);
        }
        let Some(bytes) = self.fresh(from, segment) else { return };
        if self.client().is_none() && self.guess.is_none() {
            self.guess = Some(guess(ends, from, bytes));
        }
        if self.client().or(self.guess) == Some(from) {
            self.client_data(seen.at, bytes, out);
        } else {
            self.server_data(seen.at, bytes);
        }
        self.last = Some((seen.at, from));
    }

    /// Ends the connection.
    pub(super) fn finish(&mut self, out: &mut impl FnMut(Exchange)) {
        if let Some(request) = self.request.take() {
            out(self.exchange(&request));
        }
    }

    fn handle_syn(&mut self, from: ConversationSide, segment: &Segment<'_>) {
        let block = match Offered::of(segment) {
            Some(Offered::Block(length, _)) => length as usize,
            _ => 0,
        };
        let data = segment.payload.get(block..).unwrap_or_default();
        if self.flight.is_none() && !data.is_empty() {
            let mut protocol = Protocol::of(data);
            let asks = match &mut protocol {
                Protocol::Http => true,
                Protocol::Tls(records) => records.read(data).application,
                Protocol::Other => true,
            };
            self.flight = Some(Flight { protocol, asks });
        }
        self.next_mut(from).get_or_insert(segment.seq + 1);
    }

    /// The server says whether it has taken the SYN's data.
    fn handle_syn_ack(&mut self, from: ConversationSide, segment: &Segment<'_>) {
        let client = from.other();
        let Some(syn) = self.conversation.half(client).syn else { return };
        let acked = acknowledged(segment.ack, syn.isn).unwrap_or_default();
        if acked == 0 || acked <= syn.block_len() {
            return;
        }
        let Some(Flight { protocol, asks }) = self.flight.take() else { return };
        *self.next_mut(client) = Some(syn.isn + 1 + acked);
        let at = syn.sent.earliest();
        if matches!(protocol, Protocol::Tls(_)) {
            self.hello = Some(at);
        }
        self.protocol = Some(protocol);
        self.last = Some((at, client));
        if asks {
            self.asked = true;
            let (kind, contact) = (self.kind(), Contact::New);
            self.request =
                Some(Request { began: at, kind, contact, in_syn: true, pipelined: false, last: None });
        }
    }

    const fn next_mut(&mut self, side: ConversationSide) -> &mut Option<SeqNum> {
        let [low, high] = &mut self.next;
        match side {
            ConversationSide::Low => low,
            ConversationSide::High => high,
        }
    }

    /// The data of a segment that was not seen before; `None` if there is none.
    fn fresh<'a>(&mut self, from: ConversationSide, segment: &Segment<'a>) -> Option<&'a [u8]> {
        let start = segment.seq + u32::from(segment.flags.contains(Flags::SYN));
        let end = start + u32::try_from(segment.payload.len()).unwrap_or(u32::MAX);
        let next = self.next_mut(from);
        let known = *next.get_or_insert(start);
        if segment.payload.is_empty() || end.le(known) {
            return None;
        }
        *next = Some(end);
        if start.gt(known) {
            self.gaps = true;
            if let Some(Protocol::Tls(records)) = &mut self.protocol
                && self.conversation.client().or(self.guess) == Some(from)
            {
                records.lose();
            }
            return Some(segment.payload);
        }
        segment.payload.get(known.distance_from(start) as usize..)
    }

    fn client_data(&mut self, at: Instant, bytes: &[u8], out: &mut impl FnMut(Exchange)) {
        match self.protocol.get_or_insert_with(|| Protocol::of(bytes)) {
            Protocol::Http => {
                for _ in 0..requests(bytes) {
                    self.begin(at, out);
                }
            }
            Protocol::Tls(records) => {
                let found = records.read(bytes);
                self.hello.get_or_insert(at);
                if found.finished {
                    self.finished = Some(at);
                }
                if found.application {
                    self.burst(at, out);
                }
            }
            Protocol::Other => self.burst(at, out),
        }
    }

    /// Data whose meaning is not known begins a request after a silence, if the request before was answered.
    fn burst(&mut self, at: Instant, out: &mut impl FnMut(Exchange)) {
        let answered = self.request.is_none_or(|request| request.last.is_some());
        let leg = self.opened().map_or(Duration::ZERO, |opened| opened.leg);
        let silent = self.last.is_none_or(|(last, sender)| {
            let by_client = self.client().or(self.guess) == Some(sender);
            // What the server sends is at the client later by one way, and the answer to it here later by two.
            let away = if by_client { Duration::ZERO } else { leg };
            at.saturating_since(last) >= self.silence + away
        });
        if self.request.is_none() || (answered && silent) {
            self.begin(at, out);
        }
    }

    fn begin(&mut self, at: Instant, out: &mut impl FnMut(Exchange)) {
        let mut pipelined = false;
        if let Some(mut before) = self.request.take() {
            pipelined = before.last.is_none();
            before.pipelined |= pipelined;
            out(self.exchange(&before));
        }
        let contact = match (self.asked, self.client()) {
            (true, _) => Contact::Reused,
            (false, Some(_)) => Contact::New,
            (false, None) => Contact::Unknown,
        };
        self.asked = true;
        if contact == Contact::New
            && self.finished.is_none()
            && self.hello.is_some()
            && let Some((last, sender)) = self.last
        {
            // TLS 1.2: the server's Finished was the last.
            let leg = self.opened().map_or(Duration::ZERO, |opened| opened.leg);
            let by_client = self.client() == Some(sender);
            self.finished = Some(if by_client { last } else { last + leg }.min(at));
        }
        let kind = self.kind();
        self.request = Some(Request { began: at, kind, contact, in_syn: false, pipelined, last: None });
    }

    fn server_data(&mut self, at: Instant, bytes: &[u8]) {
        if let Some(request) = &mut self.request {
            request.last = Some(at);
        }
        if matches!(self.protocol, Some(Protocol::Http)) && bytes.starts_with(b"HTTP/1.1 101 ") {
            // What follows is another protocol.
            self.protocol = Some(Protocol::Other);
        }
    }

    fn kind(&self) -> Kind {
        self.protocol.as_ref().map_or(Kind::Other, Protocol::kind)
    }

    fn exchange(&self, request: &Request) -> Exchange {
        let times = request.last.zip(self.opened()).filter(|_| !request.pipelined).map(|(last, opened)| {
            let new = request.contact == Contact::New;
            let waited = new && !request.in_syn;
            let tls = self.hello.zip(self.finished).filter(|_| waited);
            Times {
                handshake: if waited { opened.took } else { Duration::ZERO },
                tls: tls.map_or(Duration::ZERO, |(hello, finished)| finished.saturating_since(hello)),
                exchange: last.saturating_since(request.began) + opened.leg,
            }
        });
        Exchange {
            kind: request.kind,
            contact: request.contact,
            in_syn: request.in_syn,
            answered: request.last.is_some(),
            pipelined: request.pipelined,
            times,
        }
    }
}

/// Who is the client of a connection that began before the capture: who sends a request of HTTP, or else the end with
/// the higher port.
fn guess(ends: &FlowEnds, from: ConversationSide, bytes: &[u8]) -> ConversationSide {
    let port = |side| ends.end(side).address.port();
    let asks = matches!(Protocol::of(bytes), Protocol::Http);
    if asks || port(from) >= port(from.other()) { from } else { from.other() }
}
