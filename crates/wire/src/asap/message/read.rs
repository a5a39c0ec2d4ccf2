//! Reads messages from bytes.

use super::parts::{Challenge, Reason, Token, Tokens, TransactionId, VantageId};
use super::request::{ProbeRequest, Renewal, Request, VantageRequest};
use super::{
    CertificateMessage, ChallengeMessage, MESSAGE_MAGIC, MESSAGE_MAX, Message, Probe, Refused, TokenMessage,
    unmapped,
};
use crate::ParseError;
use crate::asap::{CERTIFICATE_LEN, CertificateBody, VER_ALG};
use core::net::SocketAddr;

impl Message {
    /// Reads the message in `bytes`, which must contain nothing else.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Malformed`] for anything that this version does not define.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader(bytes);
        if reader.number()? != MESSAGE_MAGIC {
            return Err(ParseError::Malformed("magic of a verifier message"));
        }
        let [ver_alg, kind] = reader.take()?;
        if ver_alg != VER_ALG {
            return Err(ParseError::Malformed("version or algorithm of a verifier message"));
        }
        let len = reader.number()?;
        if usize::from(len) != bytes.len() || bytes.len() > MESSAGE_MAX {
            return Err(ParseError::Malformed("length of a verifier message"));
        }
        reader.zeros::<2>("flags of a verifier message")?;
        let transaction = TransactionId(reader.take()?);
        let message = match kind {
            Request::TYPE => Self::Request(request(&mut reader, transaction, len)?),
            ChallengeMessage::TYPE => Self::Challenge(challenge(&mut reader, transaction)?),
            CertificateMessage::TYPE => Self::Certificate(certificate(&mut reader, transaction)?),
            Refused::TYPE => Self::Refused(refused(&mut reader, transaction)?),
            VantageRequest::TYPE => Self::VantageRequest(vantage_request(&mut reader, transaction, len)?),
            TokenMessage::TYPE => Self::Token(TokenMessage { transaction, token: reader.token()? }),
            ProbeRequest::TYPE => {
                let (challenge, nonce) = (reader.challenge()?, reader.take()?);
                Self::ProbeRequest(ProbeRequest { transaction, challenge, nonce, len })
            }
            Probe::TYPE => Self::Probe(Probe { transaction, nonce: reader.take()? }),
            _ => return Err(ParseError::Malformed("type of a verifier message")),
        };
        let padded = matches!(message, Self::Request(_) | Self::VantageRequest(_) | Self::ProbeRequest(_));
        if !padded && !reader.0.is_empty() {
            return Err(ParseError::Malformed("length of a verifier message"));
        }
        if reader.0.iter().any(|&byte| byte != 0) {
            return Err(ParseError::Malformed("padding of a verifier message"));
        }
        Ok(message)
    }
}

fn request(reader: &mut Reader<'_>, transaction: TransactionId, len: u16) -> Result<Request, ParseError> {
    let client_key = reader.take()?;
    let wished = u32::from_be_bytes(reader.take()?);
    let [count, has_old] = reader.take()?;
    reader.zeros::<2>("reserved bytes of a request")?;
    let challenge = reader.challenge()?;
    let has_old = match has_old {
        0 => false,
        1 => true,
        _ => return Err(ParseError::Malformed("old certificate of a request")),
    };
    let certificate =
        if has_old { Some(CertificateBody::parse(&reader.take::<CERTIFICATE_LEN>()?)?) } else { None };
    let mut tokens = Tokens::NONE;
    for _ in 0..count {
        if !tokens.push(reader.token()?) {
            return Err(ParseError::Malformed("tokens of a request"));
        }
    }
    let signature = reader.take()?;
    let old = match certificate {
        Some(certificate) => Some(Renewal { certificate, signature: reader.take()? }),
        None => None,
    };
    Ok(Request { transaction, client_key, wished, challenge, tokens, old, signature, len })
}

fn vantage_request(
    reader: &mut Reader<'_>,
    transaction: TransactionId,
    len: u16,
) -> Result<VantageRequest, ParseError> {
    let client_key = reader.take()?;
    reader.zeros::<8>("reserved bytes of a vantage request")?;
    let challenge = reader.challenge()?;
    Ok(VantageRequest { transaction, client_key, challenge, len })
}

fn challenge(reader: &mut Reader<'_>, transaction: TransactionId) -> Result<ChallengeMessage, ParseError> {
    let challenge = reader.challenge()?.ok_or(ParseError::Malformed("challenge that is zero"))?;
    let ip = unmapped(reader.take()?);
    let port = reader.number()?;
    reader.zeros::<2>("reserved bytes of a challenge")?;
    let time = u32::from_be_bytes(reader.take()?);
    Ok(ChallengeMessage { transaction, challenge, seen: SocketAddr::new(ip, port), time })
}

fn certificate(
    reader: &mut Reader<'_>,
    transaction: TransactionId,
) -> Result<CertificateMessage, ParseError> {
    let [family, zero] = reader.take()?;
    let port = reader.number()?;
    let ip = unmapped(reader.take()?);
    if zero != 0 || family != if ip.is_ipv4() { 4 } else { 6 } {
        return Err(ParseError::Malformed("address family of a certificate"));
    }
    let certificate = CertificateBody::parse(&reader.take()?)?;
    Ok(CertificateMessage { transaction, seen: SocketAddr::new(ip, port), certificate })
}

fn refused(reader: &mut Reader<'_>, transaction: TransactionId) -> Result<Refused, ParseError> {
    let [reason] = reader.take()?;
    let reason = Reason::from_u8(reason).ok_or(ParseError::Malformed("reason of a refusal"))?;
    reader.zeros::<1>("reserved byte of a refusal")?;
    let vantage = VantageId::new(reader.number()?);
    if vantage.is_some() != reason.is_about_a_token() {
        return Err(ParseError::Malformed("vantage point of a refusal"));
    }
    let retry_after = u32::from_be_bytes(reader.take()?);
    Ok(Refused { transaction, reason, vantage, retry_after })
}

/// The bytes that are still to be read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (part, rest) = self.0.split_first_chunk::<N>().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*part)
    }

    fn number(&mut self) -> Result<u16, ParseError> {
        self.take().map(u16::from_be_bytes)
    }

    fn zeros<const N: usize>(&mut self, what: &'static str) -> Result<(), ParseError> {
        if self.take::<N>()? == [0; N] { Ok(()) } else { Err(ParseError::Malformed(what)) }
    }

    fn challenge(&mut self) -> Result<Option<Challenge>, ParseError> {
        let [key] = self.take()?;
        self.zeros::<3>("reserved bytes of a challenge")?;
        let time = u32::from_be_bytes(self.take()?);
        let mac = self.take()?;
        let none = key == 0 && time == 0 && mac == [0; 16];
        Ok((!none).then_some(Challenge { key, time, mac }))
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        let vantage = VantageId::new(self.number()?).ok_or(ParseError::Malformed("number of a token"))?;
        let [key, zero] = self.take()?;
        if zero != 0 {
            return Err(ParseError::Malformed("reserved byte of a token"));
        }
        let time = u32::from_be_bytes(self.take()?);
        Ok(Token { vantage, key, time, mac: self.take()? })
    }
}
