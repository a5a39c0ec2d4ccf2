//! The servers: they read requests, think, and answer.

use super::way::{LoadWay, sizes};
use crate::pair::Pair;
use firstflight_stack::{ConnId, ListenerId};
use firstflight_wire::Instant;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Length of the head of a question.
pub const QUESTION: usize = 23;
/// Length of the head of a part of an answer.
pub const PART: usize = 12;
/// Largest part of an answer while others wait.
const TURN: usize = 4096;
/// Bytes beyond the congestion window that a server with several answers hands to its stack.
const AHEAD: usize = 16 * 1024;

/// What a client asks for. On the wire its numbers are followed by padding to its whole length.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// The whole length, bytes.
    pub len: usize,
    /// The number that the answer has.
    pub number: u32,
    /// Length of the answer's body; `None`: no answer.
    pub body: Option<usize>,
    /// Length of the fields in front of the body.
    pub fields: usize,
    /// How long the server thinks.
    pub think: Duration,
    /// Answers with a smaller number go first, where several wait.
    pub urgency: u8,
    /// The server acts on this many of its bytes, and takes no notice of the others. At least [`QUESTION`].
    pub enough: usize,
}

impl Question {
    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        out.extend((self.len as u32).to_be_bytes());
        out.extend(self.number.to_be_bytes());
        out.extend(self.body.map_or(u32::MAX, |body| body as u32).to_be_bytes());
        out.extend((self.fields as u32).to_be_bytes());
        out.extend((self.think.as_micros() as u32).to_be_bytes());
        out.push(self.urgency);
        out.extend((self.enough as u16).to_be_bytes());
        out.resize(self.len.max(QUESTION), b'.');
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let body = word(8)?;
        Some(Self {
            len: word(0)? as usize,
            number: word(4)?,
            body: (body != u32::MAX).then_some(body as usize),
            fields: word(12)? as usize,
            think: Duration::from_micros(word(16)?.into()),
            urgency: *bytes.get(20)?,
            enough: u16::from_be_bytes(bytes.get(21..QUESTION)?.try_into().ok()?).into(),
        })
    }
}

/// An answer that is being sent.
#[derive(Debug)]
struct PageAnswer {
    number: u32,
    fields: usize,
    left: usize,
    ready: Instant,
    urgency: u8,
}

#[derive(Debug, Default)]
struct Conversation {
    read: Vec<u8>,
    /// Bytes of a question that are still to come, and that change nothing.
    rest_of_question: usize,
    answers: VecDeque<PageAnswer>,
    /// Bytes that the stack had no room for.
    rest: Vec<u8>,
    ended: bool,
    /// A whole answer was written.
    answered: bool,
}

#[derive(Debug)]
pub struct Servers {
    listeners: Vec<ListenerId>,
    open: BTreeMap<ConnId, Conversation>,
    /// Answers to several questions go in turn.
    multiplexed: bool,
    /// A connection serves several questions. Otherwise the server ends it behind the answer, as HTTP's `Connection: close`.
    reuse: bool,
}

impl Servers {
    pub fn new(listeners: Vec<ListenerId>, way: LoadWay) -> Self {
        Self { listeners, open: BTreeMap::new(), multiplexed: way.multiplexed, reuse: way.reuse }
    }

    /// When an answer is ready whose server still thinks.
    pub fn wake(&self, now: Instant) -> Option<Instant> {
        let answers = self.open.values().flat_map(|conversation| &conversation.answers);
        answers.map(|answer| answer.ready).filter(|ready| *ready > now).min()
    }

    /// Reads, thinks and writes.
    pub fn run(&mut self, net: &mut Pair) {
        // Any numbers serve: nobody forges signatures here.
        let mut random = ChaCha20Rng::from_seed([9; 32]);
        while let Some(flights) = net.server.poll_verifications() {
            let verdicts = flights.verify(&mut random);
            net.server.handle_verified(flights, &verdicts, net.now);
        }
        for listener in &self.listeners {
            while let Some(id) = net.server.accept(*listener) {
                self.open.insert(id, Conversation::default());
            }
        }
        let (multiplexed, reuse) = (self.multiplexed, self.reuse);
        self.open.retain(|id, conversation| {
            conversation.read(*id, net);
            conversation.write(*id, net, multiplexed);
            let over = conversation.ended || (!reuse && conversation.answered);
            if over && conversation.answers.is_empty() && conversation.rest.is_empty() {
                net.server.release(*id, net.now);
                return false;
            }
            true
        });
    }
}

impl Conversation {
    fn read(&mut self, id: ConnId, net: &mut Pair) {
        let mut buffer = [0; 4096];
        while !self.ended {
            match net.server.read(id, &mut buffer, net.now) {
                Ok(len @ 1..) => {
                    let skipped = self.rest_of_question.min(len);
                    self.rest_of_question -= skipped;
                    self.read.extend_from_slice(&buffer[skipped..len]);
                }
                Ok(_) => self.ended = true,
                Err(firstflight_stack::IoError::WouldBlock) => break,
                // The client has gone, and nothing can be answered.
                Err(_) => {
                    self.answers.clear();
                    self.rest.clear();
                    self.ended = true;
                }
            }
        }
        while let Some(question) = Question::parse(&self.read).filter(|q| q.enough <= self.read.len()) {
            let there = question.len.max(QUESTION).min(self.read.len());
            self.read.drain(..there);
            self.rest_of_question = question.len.saturating_sub(there);
            let Some(left) = question.body else { continue };
            let Question { number, fields, think, urgency, .. } = question;
            self.answers.push_back(PageAnswer { number, fields, left, ready: net.now + think, urgency });
        }
    }

    fn write(&mut self, id: ConnId, net: &mut Pair, multiplexed: bool) {
        loop {
            if !self.rest.is_empty() {
                let taken = net.server.write(id, &self.rest, net.now).unwrap_or_default();
                self.rest.drain(..taken);
                if !self.rest.is_empty() {
                    return;
                }
            }
            if multiplexed && waiting(id, net) {
                return;
            }
            let Some(at) = self.next(net.now, multiplexed) else { return };
            let Some(answer) = self.answers.get_mut(at) else { return };
            let body = if multiplexed { answer.left.min(TURN) } else { answer.left };
            answer.left -= body;
            self.rest = part(answer.number, std::mem::take(&mut answer.fields), body);
            match self.answers.remove(at).filter(|answer| answer.left > 0) {
                // The others of its urgency have their turn first.
                Some(answer) => self.answers.push_back(answer),
                None => self.answered = true,
            }
        }
    }

    /// The answer that is next.
    fn next(&self, now: Instant, multiplexed: bool) -> Option<usize> {
        if !multiplexed {
            return self.answers.front().is_some_and(|answer| answer.ready <= now).then_some(0);
        }
        let ready = self.answers.iter().enumerate().filter(|(_, answer)| answer.ready <= now);
        ready.min_by_key(|(at, answer)| (answer.urgency, *at)).map(|(at, _)| at)
    }
}

/// Whether the stack has enough of this connection to send.
fn waiting(id: ConnId, net: &Pair) -> bool {
    let cwnd = net.server.info(id).map_or(0, |info| info.cwnd as usize);
    net.server.connection(id).is_some_and(|connection| connection.unacknowledged() > cwnd + AHEAD)
}

/// The bytes of a part of an answer: number, length of the fields, length of the body, and these.
fn part(number: u32, fields: usize, body: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(PART + fields + body);
    out.extend(number.to_be_bytes());
    out.extend((fields as u32).to_be_bytes());
    out.extend((body as u32).to_be_bytes());
    out.resize(PART + fields + body, b'.');
    out
}

/// A part of an answer as it arrives.
#[derive(Debug, Clone, Copy)]
pub struct AnswerPart {
    pub number: u32,
    /// Bytes of the fields that are still to come.
    pub fields: usize,
    /// Bytes of the body that are still to come.
    pub body: usize,
}

impl AnswerPart {
    /// The head of a part, if all of it is there.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self { number: word(0)?, fields: word(4)? as usize, body: word(8)? as usize })
    }
}

const _: () = assert!(PART < sizes::COMPRESSED_FIELDS && QUESTION < sizes::COMPRESSED);
