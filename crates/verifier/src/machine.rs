//! The verifier as a machine: requests in, answers out.

mod issue;

use crate::challenge::{ChallengeKeys, ChallengeSubject, unix_seconds};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::global::may_certify;
use crate::limits::RateLimits;
use firstflight_wire::asap::message::{
    CertificateMessage, Challenge, ChallengeMessage, Message, MessageBytes, Probe, ProbeRequest,
    REQUEST_MIN_UDP, Reason, Refused, Request, Token, TokenMessage, TransactionId, VantageId, VantageRequest,
};
use firstflight_wire::{Clock, Instant};
use rand_core::CryptoRng;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A provenance verifier. The only state that it keeps for clients is the number of requests from their
/// networks.
///
/// It answers each message by one message or none, so there is nothing to poll. It checks a request in this
/// order: form and length; the challenge, so that the later checks are made only for clients whose address is
/// proved; the limits of the network, and whether the address may be certified; its own clock; the client's key; the
/// vantage tokens; the signature budget, and last the signatures.
#[derive(Debug)]
pub struct Verifier {
    config: Config,
    challenges: ChallengeKeys,
    limits: RateLimits,
    counters: Counters,
}

/// The answer to a datagram.
#[derive(Debug)]
pub enum Answer {
    /// Sent from the address that the client asked.
    Reply(MessageBytes),
    /// Sent from the address of [`Config::probe_from`] that has the client's family.
    Probe(MessageBytes),
}

/// Why the verifier gives no certificate and no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    reason: Reason,
    vantage: Option<VantageId>,
    retry_after: u32,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reason, vantage: None, retry_after: 0 }
    }
}

impl Refusal {
    fn for_now(reason: Reason, wait: Duration) -> Self {
        let seconds = wait.as_secs().saturating_add(1);
        Self { reason, vantage: None, retry_after: u32::try_from(seconds).unwrap_or(u32::MAX) }
    }
}

/// How a message arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageWay {
    /// In a datagram. Its source address may be forged.
    Datagram,
    /// Over a connection. The handshake has proved the address.
    Stream,
}

impl Verifier {
    /// A verifier. Its first challenge key is drawn from `rng`.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn new(config: Config, now: Instant, rng: &mut impl CryptoRng) -> Result<Self, ConfigError> {
        config.validate()?;
        let limits = match config.members {
            Some(members) => config.limits.clone().share(members),
            None => config.limits.clone(),
        };
        Ok(Self {
            challenges: shared(&config).unwrap_or_else(|| ChallengeKeys::own(now, rng)),
            limits: RateLimits::new(limits),
            counters: Counters::default(),
            config,
        })
    }

    /// Takes other keys, durations and prefixes from `config` at once. Its limits and the number of its members stay, and
    /// what clients have used of the limits.
    ///
    /// # Errors
    /// When the configuration is invalid. The former one then stays.
    pub fn set_config(&mut self, config: Config) -> Result<(), ConfigError> {
        let config = config.limits(self.config.limits.clone()).members(self.config.members);
        config.validate()?;
        if let Some(keys) = shared(&config) {
            self.challenges = keys;
        }
        self.config = config;
        Ok(())
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Handles a datagram. The answer goes to the datagram's source address, and is never longer than the
    /// datagram.
    pub fn handle_datagram(
        &mut self,
        clock: &Clock,
        from: SocketAddr,
        bytes: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Option<Answer> {
        self.counters.datagrams += 1;
        if bytes.len() < REQUEST_MIN_UDP {
            self.counters.bytes_in += bytes.len() as u64;
            self.counters.dropped_short += 1;
            return None;
        }
        self.handle(MessageWay::Datagram, clock, from, bytes, rng)
    }

    /// Handles a message from a connection with `from`. The answer goes back over the connection.
    pub fn handle_stream(
        &mut self,
        clock: &Clock,
        from: SocketAddr,
        bytes: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Option<MessageBytes> {
        self.counters.stream_messages += 1;
        match self.handle(MessageWay::Stream, clock, from, bytes, rng)? {
            Answer::Reply(message) => Some(message),
            Answer::Probe(_) => None,
        }
    }

    fn handle(
        &mut self,
        way: MessageWay,
        clock: &Clock,
        from: SocketAddr,
        bytes: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Option<Answer> {
        self.counters.bytes_in += bytes.len() as u64;
        self.challenges.turn(clock.mono, rng);
        // A socket of both families reports IPv4 addresses as IPv6 ones.
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let answer = match Message::parse(bytes) {
            Ok(Message::Request(request)) if from.port() != 0 => {
                self.handle_request(way, clock, from, &request, rng)
            }
            Ok(Message::VantageRequest(request)) if from.port() != 0 => {
                self.handle_vantage_request(way, clock, from, &request)
            }
            // A connection proves nothing about the reachability by datagrams.
            Ok(Message::ProbeRequest(request)) if from.port() != 0 && way == MessageWay::Datagram => {
                return Some(self.handle_probe_request(clock, from, &request));
            }
            _ => {
                self.counters.dropped_malformed += 1;
                return None;
            }
        };
        self.counters.bytes_out += answer.len() as u64;
        Some(Answer::Reply(answer))
    }

    /// The client asks whether a datagram of a stranger reaches it.
    fn handle_probe_request(&mut self, clock: &Clock, from: SocketAddr, request: &ProbeRequest) -> Answer {
        let ProbeRequest { transaction, nonce, .. } = *request;
        let key = request.key();
        let asking = ChallengeSubject { class: ProbeRequest::TYPE, client: from, key: &key, transaction };
        let answer = match self.challenge(request.challenge, &asking, clock) {
            Some(challenge) => Answer::Reply(challenge),
            None => match self.admit_probe(clock, from.ip()) {
                Ok(()) => {
                    self.counters.probes += 1;
                    Answer::Probe(Probe { transaction, nonce }.to_bytes())
                }
                Err(refusal) => Answer::Reply(self.refuse(transaction, refusal)),
            },
        };
        let (Answer::Reply(bytes) | Answer::Probe(bytes)) = &answer;
        self.counters.bytes_out += bytes.len() as u64;
        answer
    }

    fn admit_probe(&mut self, clock: &Clock, address: IpAddr) -> Result<(), Refusal> {
        self.admit(clock, address)?;
        let source = self.config.probe_from.iter().any(|from| from.is_ipv4() == address.is_ipv4());
        if source { Ok(()) } else { Err(Reason::NoProbe.into()) }
    }

    fn handle_request(
        &mut self,
        way: MessageWay,
        clock: &Clock,
        from: SocketAddr,
        request: &Request,
        rng: &mut impl CryptoRng,
    ) -> MessageBytes {
        let transaction = request.transaction;
        let asking =
            ChallengeSubject { class: Request::TYPE, client: from, key: &request.client_key, transaction };
        if way == MessageWay::Datagram
            && let Some(challenge) = self.challenge(request.challenge, &asking, clock)
        {
            return challenge;
        }
        match self.issue(clock, from.ip(), request, rng) {
            Ok(certificate) => {
                self.counters.certificates += 1;
                self.counters.refreshed += u64::from(request.old.is_some());
                CertificateMessage { transaction, seen: from, certificate }.to_bytes()
            }
            Err(refusal) => self.refuse(transaction, refusal),
        }
    }

    fn handle_vantage_request(
        &mut self,
        way: MessageWay,
        clock: &Clock,
        from: SocketAddr,
        request: &VantageRequest,
    ) -> MessageBytes {
        let transaction = request.transaction;
        let asking = ChallengeSubject {
            class: VantageRequest::TYPE,
            client: from,
            key: &request.client_key,
            transaction,
        };
        if way == MessageWay::Datagram
            && let Some(challenge) = self.challenge(request.challenge, &asking, clock)
        {
            return challenge;
        }
        match self.give_token(clock, from.ip(), &request.client_key) {
            Ok(token) => {
                self.counters.tokens += 1;
                TokenMessage { transaction, token }.to_bytes()
            }
            Err(refusal) => self.refuse(transaction, refusal),
        }
    }

    /// The client was seen at `address`: makes a token that confirms this to the issuer.
    fn give_token(&mut self, clock: &Clock, address: IpAddr, client: &[u8; 32]) -> Result<Token, Refusal> {
        self.admit(clock, address)?;
        let vantage = self.config.vantage.as_ref().ok_or(Reason::NotAVantagePoint)?;
        Ok(vantage.key.token(vantage.id, unix_seconds(clock), address, client))
    }

    /// Checks whether a client whose address is proved to be `address` may ask now.
    fn admit(&mut self, clock: &Clock, address: IpAddr) -> Result<(), Refusal> {
        let waited = self.limits.take(address, clock.mono);
        waited.map_err(|wait| Refusal::for_now(Reason::RateLimited, wait))?;
        if may_certify(address, &self.config.allowed) { Ok(()) } else { Err(Reason::Address.into()) }
    }

    /// A new challenge, unless the request has a valid one.
    fn challenge(
        &mut self,
        came: Option<Challenge>,
        asking: &ChallengeSubject<'_>,
        clock: &Clock,
    ) -> Option<MessageBytes> {
        if let Some(came) = came {
            if self.challenges.is_good(&came, asking, clock) {
                return None;
            }
            self.counters.challenges_again += 1;
        }
        self.counters.challenges += 1;
        let message = ChallengeMessage {
            transaction: asking.transaction,
            challenge: self.challenges.make(asking, clock),
            seen: asking.client,
            time: unix_seconds(clock),
        };
        Some(message.to_bytes())
    }

    fn refuse(&mut self, transaction: TransactionId, refusal: Refusal) -> MessageBytes {
        let Refusal { reason, vantage, retry_after } = refusal;
        self.counters.note_refused(reason);
        Refused { transaction, reason, vantage, retry_after }.to_bytes()
    }
}

/// The keys of challenges that members of a farm have in common. `None` for a verifier that is alone.
fn shared(config: &Config) -> Option<ChallengeKeys> {
    let issuer = config.issuer.as_ref().filter(|_| config.members.is_some())?;
    Some(ChallengeKeys::shared(&issuer.key))
}

#[cfg(test)]
mod tests;
