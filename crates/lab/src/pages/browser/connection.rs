//! One connection of the browser.

use super::{HELLO, carries_data, finished};
use crate::pages::server::{AnswerPart, PART};
use crate::pages::way::LoadWay;
use crate::pair::Pair;
use firstflight_stack::{ConnId, ConnectConfig, IoError, StateName};
use firstflight_wire::Instant;
use std::net::{IpAddr, SocketAddr};

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing may be requested before the handshake.
    Opening,
    /// The ClientHello is sent, and its answer awaited.
    Greeting,
    /// Requests may be sent.
    Open,
}

/// A piece of a body.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub number: usize,
    pub bytes: usize,
}

/// A connection to a host.
pub struct Connection {
    pub host: usize,
    /// Its number in the trace.
    pub number: usize,
    /// The resources that were requested and are not complete.
    pub asked: Vec<usize>,
    id: ConnId,
    state: State,
    /// To be sent in front of the next request.
    prefix: Vec<u8>,
    /// Bytes of the stack's that are no whole head yet.
    read: Vec<u8>,
    part: Option<AnswerPart>,
    /// Bytes of the answer to the ClientHello.
    greeted: usize,
    /// When it last completed a response.
    pub served: Option<Instant>,
}

impl Connection {
    /// Begins a connection. `questions` are sent with it.
    pub fn open(
        net: &mut Pair,
        (host, remote): (usize, SocketAddr),
        config: &ConnectConfig,
        way: LoadWay,
        hello: Vec<u8>,
        questions: &[Vec<u8>],
    ) -> Option<Self> {
        let (mut data, mut prefix) = (Vec::new(), Vec::new());
        if carries_data(way) {
            data = hello;
            questions.iter().for_each(|question| data.extend_from_slice(question));
        } else {
            prefix = hello;
        }
        let (id, taken) = net.client.connect(remote, &data, config, net.now).ok()?;
        debug_assert_eq!(taken, data.len(), "a send buffer holds more than requests");
        let state = match (carries_data(way), way.waits_for_flight()) {
            (false, _) => State::Opening,
            (true, true) => State::Greeting,
            (true, false) => State::Open,
        };
        let (asked, read) = (Vec::new(), Vec::new());
        Some(Self { host, number: 0, asked, id, state, prefix, read, part: None, greeted: 0, served: None })
    }

    /// A connection that begins inside the lookup of the host's address, with the first line of request `number`.
    pub fn in_lookup(net: &mut Pair, host: usize, id: ConnId, number: usize, rest: &[u8]) -> Self {
        let (prefix, read) = (Vec::new(), Vec::new());
        let in_lookup = Self {
            host,
            number: 0,
            asked: vec![number],
            id,
            state: State::Open,
            prefix,
            read,
            part: None,
            greeted: 0,
            served: None,
        };
        in_lookup.send(rest, net);
        in_lookup
    }

    /// The address is known: a copy of what is inside the lookup goes straight to the server, unless that has answered.
    pub fn resolved(&self, server: IpAddr, net: &mut Pair) {
        let _ = net.client.send_direct(self.id, server, net.now);
    }

    /// Whether requests may be sent.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether TCP's handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.state != State::Opening
    }

    /// Sends a request.
    pub fn ask(&mut self, number: usize, question: &[u8], net: &mut Pair) {
        let mut bytes = std::mem::take(&mut self.prefix);
        bytes.extend_from_slice(question);
        self.send(&bytes, net);
        self.asked.push(number);
    }

    fn send(&self, bytes: &[u8], net: &mut Pair) {
        let taken = net.client.write(self.id, bytes, net.now);
        // A connection that has failed is noticed when it is read.
        debug_assert!(taken.is_err() || taken == Ok(bytes.len()), "a send buffer holds more than requests");
    }

    /// Takes what has arrived, and gives bodies to `arrived`, which returns whether that completes its resource. True
    /// if the connection is over.
    pub fn poll(&mut self, net: &mut Pair, way: LoadWay, mut arrived: impl FnMut(Arrived) -> bool) -> bool {
        self.proceed(net, way);
        let mut buffer = [0; 8192];
        loop {
            match net.client.read(self.id, &mut buffer, net.now) {
                Ok(0) => return self.release(net),
                Ok(len) => self.take(&buffer[..len], way, net, &mut arrived),
                Err(IoError::WouldBlock) => break,
                Err(_) => return self.release(net),
            }
        }
        if self.served.is_some() && !way.reuse && self.asked.is_empty() {
            return self.release(net);
        }
        false
    }

    fn release(&self, net: &mut Pair) -> bool {
        net.client.release(self.id, net.now);
        true
    }

    /// The handshake may have completed.
    fn proceed(&mut self, net: &mut Pair, way: LoadWay) {
        let open = |state| !matches!(state, StateName::SynSent | StateName::SynRcvd | StateName::Closed);
        let opened = || net.client.info(self.id).is_some_and(|info| open(info.state));
        if self.state == State::Opening && opened() {
            self.state = State::Open;
            if way.waits_for_flight() {
                self.state = State::Greeting;
                let hello = std::mem::take(&mut self.prefix);
                self.send(&hello, net);
            }
        }
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        way: LoadWay,
        net: &mut Pair,
        arrived: &mut impl FnMut(Arrived) -> bool,
    ) {
        while !bytes.is_empty() || self.part.is_some() {
            let Some(part) = &mut self.part else {
                let lacks = PART - self.read.len();
                let (head, rest) = bytes.split_at(lacks.min(bytes.len()));
                self.read.extend_from_slice(head);
                bytes = rest;
                if self.read.len() < PART {
                    return;
                }
                self.part = AnswerPart::parse(&self.read);
                self.read.clear();
                continue;
            };
            let fields = part.fields.min(bytes.len());
            part.fields -= fields;
            let body = part.body.min(bytes.len() - fields);
            part.body -= body;
            bytes = bytes.get(fields + body..).unwrap_or_default();
            let (number, complete) = (part.number, part.fields == 0 && part.body == 0);
            if complete {
                self.part = None;
            }
            if number == HELLO {
                self.greet(body, way, net);
            } else if body > 0 && arrived(Arrived { number: number as usize, bytes: body }) {
                self.asked.retain(|asked| *asked != number as usize);
                self.served = Some(net.now);
            }
            if !complete && bytes.is_empty() {
                return;
            }
        }
    }

    fn greet(&mut self, bytes: usize, way: LoadWay, net: &mut Pair) {
        self.greeted += bytes;
        if self.greeted < way.flight() || bytes == 0 {
            return;
        }
        if self.state == State::Greeting {
            // It leaves together with the first request.
            self.state = State::Open;
            self.prefix = finished();
        } else {
            self.send(&finished(), net);
        }
    }
}
