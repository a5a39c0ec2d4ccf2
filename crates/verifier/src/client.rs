//! A certificate for this host, from a verifier and its vantage points.

mod exchange;
mod fault;
mod reach;
mod route;

pub use fault::{Fault, ObtainError, VantageFault};
pub use reach::{Datagrams, Mapping, Reach, reach};
pub use route::{Dial, Dialled, Duplex, Route};

use crate::clock::boot_clock;
use crate::group::VantageAddress;
use exchange::{Conversation, Peer};
use firstflight_credential::asap::{ClientCertificate, PrivateKey, PublicKey};
use firstflight_service::secure_rng;
use firstflight_wire::asap::message::{
    Challenge, Message, MessageBytes, Refused, Request, Token, Tokens, TransactionId, VantageRequest,
};
use firstflight_wire::asap::{CertificateBody, VerifierId};
use rand_core::Rng;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;

/// A verifier as its clients know it, at one address: the family of that is the family of the addresses that it
/// certifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerAddress {
    /// A name for people.
    pub name: String,
    /// Where it answers, over UDP and TCP.
    pub address: SocketAddr,
    /// Its key.
    pub key: PublicKey,
    /// Its vantage points.
    pub group: Vec<VantageAddress>,
}

impl IssuerAddress {
    /// The verifier with this key at this address, without vantage points.
    #[must_use]
    pub fn new(address: SocketAddr, key: PublicKey) -> Self {
        Self { name: address.to_string(), address, key, group: Vec::new() }
    }

    /// How its certificates name it.
    #[must_use]
    pub fn id(&self) -> VerifierId {
        self.key.id()
    }
}

/// How long answers are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the first answer to a datagram, until it is sent again; then twice as long each time.
    pub first: Duration,
    /// How often a datagram is sent, until TCP is tried.
    pub sends: u32,
    /// For everything over TCP.
    pub stream: Duration,
}

impl Default for Patience {
    /// 3.5 s over UDP, then 5 s over TCP.
    fn default() -> Self {
        Self { first: Duration::from_millis(500), sends: 3, stream: Duration::from_secs(5) }
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The key to be certified: a new one each time.
    pub key: PrivateKey,
    /// How long the certificate should last, seconds.
    pub wished: u32,
    /// The certificate to be continued; its verifier decides by it how long the new one lasts.
    pub old: Option<&'a ClientCertificate>,
}

/// Obtains a certificate: asks the verifier and all of its vantage points for challenges at the same time, hands
/// the vantage points' tokens to the verifier, and checks what comes back. Over UDP, and over TCP where that is
/// silent.
///
/// The certificate counts its time from the moment when the answer arrived. The verifier wrote it before that,
/// so requests are stamped with the verifier's time or a little less and never with a time to come, however
/// long the answer was under way.
///
/// # Errors
/// Who did not answer, refused, or answered what is wrong.
pub async fn obtain(
    from: &IssuerAddress,
    wanted: Wanted<'_>,
    patience: &Patience,
) -> Result<ClientCertificate, ObtainError> {
    obtain_by(&Route::System, from, wanted, patience).await
}

/// The same by another way to the verifiers than the system's: the certificate is for the address that they see.
///
/// # Errors
/// As [`obtain`].
pub async fn obtain_by(
    route: &Route,
    from: &IssuerAddress,
    wanted: Wanted<'_>,
    patience: &Patience,
) -> Result<ClientCertificate, ObtainError> {
    let Wanted { key, wished, old } = wanted;
    let mut rng = secure_rng().map_err(ObtainError::System)?;
    let mut transaction = || {
        let mut id = [0; 8];
        rng.fill_bytes(&mut id);
        TransactionId(id)
    };
    let ask = Ask {
        transaction: transaction(),
        key: &key,
        verifier: &from.key,
        wished,
        old: old.map(|old| (*old.body(), old.key())),
    };
    let mut points = JoinSet::new();
    for point in &from.group {
        let address = point.addresses.iter().find(|one| one.is_ipv4() == from.address.is_ipv4());
        let Some(&address) = address else {
            return Err(ObtainError::NoAddress { vantage: point.name.clone() });
        };
        let (point, patience, public) = (point.clone(), *patience, *key.public().as_bytes());
        let (transaction, route) = (transaction(), route.clone());
        points.spawn(async move {
            let peer = Peer { address, transaction };
            let result = token_of(&route, &point, peer, public, patience).await;
            (point, result)
        });
    }
    let issuer = Peer { address: from.address, transaction: ask.transaction };
    let tokens = async {
        let mut all = Vec::new();
        while let Some(joined) = points.join_next().await {
            // A task that panicked is one without an answer.
            if let Ok(answer) = joined {
                all.push(answer);
            }
        }
        all
    };
    let first = |challenge, padded| ask.unsigned(challenge, padded);
    let (opened, answers) = tokio::join!(Conversation::open(route, issuer, patience, first), tokens);
    let fail = |fault| fault_of(from, fault);
    let mut conversation = opened.map_err(fail)?;
    let tokens = collect(from, answers)?;
    let message = conversation.ask(|challenge, padded| ask.signed(&tokens, challenge, padded)).await;
    let (message, arrived) = (message.map_err(fail)?, boot_clock().map_err(ObtainError::System)?);
    let Message::Certificate(answer) = message else { return Err(fail(Fault::Nonsense)) };

    let seen = answer.seen.ip();
    let points = usize::from(answer.certificate.flags.vantage());
    if points <= from.group.len() {
        return Err(ObtainError::TooFewVantagePoints { issuer: from.name.clone(), points });
    }
    ClientCertificate::new(answer.certificate, from.key, seen, key, arrived)
        .ok_or_else(|| ObtainError::Wrong { issuer: from.name.clone() })
}

/// What the issuer is asked.
struct Ask<'a> {
    transaction: TransactionId,
    key: &'a PrivateKey,
    verifier: &'a PublicKey,
    wished: u32,
    old: Option<(CertificateBody, &'a PrivateKey)>,
}

impl Ask<'_> {
    fn request(&self, tokens: Tokens, challenge: Option<Challenge>, padded: bool) -> Request {
        let old = self.old.as_ref().map(|(body, _)| *body);
        let public = *self.key.public().as_bytes();
        Request::new(self.transaction, public, self.wished, challenge, tokens, old, padded)
    }

    /// To get a challenge: nobody looks at its signatures.
    fn unsigned(&self, challenge: Option<Challenge>, padded: bool) -> MessageBytes {
        self.request(Tokens::NONE, challenge, padded).to_bytes()
    }

    fn signed(&self, tokens: &Tokens, challenge: Option<Challenge>, padded: bool) -> MessageBytes {
        let mut request = self.request(*tokens, challenge, padded);
        let input = request.signing_input(self.verifier.as_bytes());
        request.signature = self.key.sign(input.as_slice());
        if let (Some(renewal), Some((_, key))) = (&mut request.old, &self.old) {
            renewal.signature = key.sign(input.as_slice());
        }
        request.to_bytes()
    }
}

/// A vantage point's token.
async fn token_of(
    route: &Route,
    point: &VantageAddress,
    peer: Peer,
    key: [u8; 32],
    patience: Patience,
) -> Result<Token, Fault> {
    let request =
        |challenge, padded| VantageRequest::new(peer.transaction, key, challenge, padded).to_bytes();
    let mut conversation = Conversation::open(route, peer, &patience, request).await?;
    match conversation.ask(request).await? {
        Message::Token(message) if message.token.vantage == point.id => Ok(message.token),
        _ => Err(Fault::Nonsense),
    }
}

/// All tokens in their order; or everybody who gave none.
fn collect(
    from: &IssuerAddress,
    answers: Vec<(VantageAddress, Result<Token, Fault>)>,
) -> Result<Tokens, ObtainError> {
    let (mut tokens, mut faults) = (Vec::new(), Vec::new());
    for (point, answer) in answers {
        match answer {
            Ok(token) => tokens.push(token),
            Err(fault) => faults.push(VantageFault { name: point.name, id: point.id, fault }),
        }
    }
    tokens.sort_by_key(|token| token.vantage);
    let mut all = Tokens::NONE;
    let complete = tokens.iter().all(|token| all.push(*token)) && all.len() == from.group.len();
    faults.sort_by_key(|fault| fault.id);
    if complete { Ok(all) } else { Err(ObtainError::Vantage(faults)) }
}

/// Names who is at fault: the issuer, or the vantage point whose token it refused.
fn fault_of(from: &IssuerAddress, fault: Fault) -> ObtainError {
    if let Fault::Refused(Refused { reason, vantage: Some(id), .. }) = fault {
        let known = from.group.iter().find(|point| point.id == id);
        let name = known.map_or_else(|| format!("number {id}"), |point| point.name.clone());
        return ObtainError::Token { issuer: from.name.clone(), vantage: name, id, reason };
    }
    ObtainError::Issuer { name: from.name.clone(), fault }
}

#[cfg(test)]
mod tests;
