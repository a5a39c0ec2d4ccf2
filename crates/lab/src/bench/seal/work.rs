//! The work of the rows.

use super::ends::{PORT, REQUEST, SealEnds, answer, check, read_answer};
use super::io::{Io, poll};
use super::{BATCH, Row, timed};
use crate::bench::BenchError;
use firstflight_tls::Acceptor;
use firstflight_tls::seal::{Bind, Draft, Flags, Flight, FlightRoom, Rid, Target};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::task::Poll;
use std::time::Duration;

/// Both ends, and what makes flights.
pub struct Work {
    ends: SealEnds,
    random: ChaCha20Rng,
}

impl Work {
    pub fn new() -> Result<Self, BenchError> {
        let mut seed = [0; 32];
        firstflight::random_bytes(&mut seed).map_err(|error| BenchError::refused("random numbers", error))?;
        Ok(Self { ends: SealEnds::new()?, random: ChaCha20Rng::from_seed(seed) })
    }

    /// A batch of operations of a row, and their CPU time. What they need is made before, and does not count.
    pub fn step(&mut self, row: Row) -> Result<(u64, Duration), BenchError> {
        let mut sum = Duration::ZERO;
        // Each flight is new to it.
        let acceptor = self.ends.acceptor(NonZeroU32::MAX)?;
        for _ in 0..BATCH {
            sum += match row {
                Row::Seal => self.seal()?,
                Row::Open => self.open()?,
                Row::RustlsServer => {
                    let hello = self.ends.rustls_hello(&[b"http/1.1".to_vec()])?;
                    let (answer, took) = timed(|| self.ends.rustls_answer(&hello))?;
                    black_box(answer?);
                    took
                }
                Row::ClearServer => self.server(&acceptor, false)?,
                Row::SealedServer => self.server(&acceptor, true)?,
                Row::RustlsClient => self.rustls_client()?,
                Row::ClearClient => self.client(&acceptor, false)?,
                Row::SealedClient => self.client(&acceptor, true)?,
            };
        }
        Ok((BATCH, sum))
    }

    /// The digest and the seal, without the ClientHello.
    fn seal(&mut self) -> Result<Duration, BenchError> {
        let (SealEnds { record, clock, .. }, random) = (&self.ends, &mut self.random);
        let unix = clock.unix();
        let entry = record.usable(unix.as_secs()).ok_or(BenchError::Wrong("no key".into()))?;
        let to = Target { entry, public_name: record.name(), port: PORT };
        let flags = Flags { replayable: true, complete: true };
        let rid = Rid::random(random);
        let made = || Draft::new(to, rid, Bind::NONE, unix.as_millis() as u64, flags, REQUEST, b"http/1.1");
        let (draft, first) = timed(made)?;
        let draft = draft.ok_or(BenchError::Wrong("no draft".into()))?;
        let hello = self.ends.rustls_hello(draft.alpn())?;
        let plan = FlightRoom::in_syn(1460, 40, 0).plan(hello.len(), REQUEST.len());
        let plan = plan.ok_or(BenchError::Wrong("it does not fit".into()))?;
        let (flight, second) = timed(|| draft.seal(&hello, record.name(), &plan, random))?;
        black_box(flight.map_err(|error| BenchError::refused("a seal", error))?);
        Ok(first + second)
    }

    /// HPKE, the plaintext, the ClientHello and its digest.
    fn open(&self) -> Result<Duration, BenchError> {
        let bytes = self.ends.first_flight(true)?;
        let unix = self.ends.clock.unix().as_secs();
        let opened = || {
            let flight = Flight::parse(&bytes)?;
            let opened = self.ends.keys.open(&flight, PORT, unix).ok()?;
            opened.check(|name| name.as_str() == crate::tls::NAME).ok()?;
            Some(opened)
        };
        let (opened, took) = timed(opened)?;
        check(opened.is_some_and(|opened| opened.inner().request == REQUEST), "what was opened")?;
        Ok(took)
    }

    fn server(&self, acceptor: &Acceptor, sealed: bool) -> Result<Duration, BenchError> {
        let io = Io::with(self.ends.first_flight(sealed)?);
        let (answered, took) = timed(|| answer(acceptor, &io, sealed))?;
        answered?;
        check(io.written().first() == Some(&0x16), "the answer")?;
        Ok(took)
    }

    fn rustls_client(&self) -> Result<Duration, BenchError> {
        let begin = || {
            let (mut client, mut hello) = (self.ends.rustls_client()?, Vec::new());
            client.write_tls(&mut hello).map_err(|error| BenchError::refused("rustls' client", error))?;
            Ok::<_, BenchError>((client, hello))
        };
        let (begun, first) = timed(begin)?;
        let (mut client, hello) = begun?;
        let answer = self.ends.rustls_answer(&hello)?;
        let (read, second) = timed(|| SealEnds::rustls_read(&mut client, &answer))?;
        read?;
        Ok(first + second)
    }

    fn client(&self, acceptor: &Acceptor, sealed: bool) -> Result<Duration, BenchError> {
        let io = Io::default();
        let begin = || {
            let mut connecting = self.ends.connect(io.clone(), sealed);
            let begun = poll(connecting.as_mut()).is_pending();
            (connecting, begun)
        };
        let ((mut connecting, begun), first) = timed(begin)?;
        check(begun, "a connect without an answer")?;
        let server = Io::with(io.written());
        answer(acceptor, &server, sealed)?;
        io.push(&server.written());
        let end = || match poll(connecting.as_mut()) {
            Poll::Ready(Ok(mut stream)) => read_answer(&mut stream),
            Poll::Ready(Err(error)) => Err(BenchError::refused("a connect", error)),
            Poll::Pending => Err(BenchError::Wrong("the connect still waits".into())),
        };
        let (read, second) = timed(end)?;
        read?;
        // The Finished, and in clear the request behind it.
        check(!io.written().is_empty(), "the client's Finished")?;
        Ok(first + second)
    }
}
