//! Obtains a certificate for this host from a verifier and its vantage points.

mod exchange;
mod fault;
mod name;
mod reach;
mod route;

pub use fault::{Fault, ObtainError, VantageFault};
pub use name::{BySystem, IssuerName, LookUp, Looked};
pub use reach::{Datagrams, Mapping, Reach, is_pair, reach};
pub use route::{Dial, Dialled, Duplex, Permit, Route};

use crate::clock::boot_clock;
use crate::group::{Group, GroupError, VantageAddress};
use exchange::{Conversation, Peer};
use firstflight_credential::asap::{ClientCertificate, PrivateKey, PublicKey};
use firstflight_service::secure_rng;
use firstflight_wire::asap::message::{
    Challenge, Message, MessageBytes, Refused, Request, Token, Tokens, TransactionId, VantageRequest,
};
use firstflight_wire::asap::{CertificateBody, VerifierId};
use rand_core::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The most addresses of a name that are asked, one after the other.
const ADDRESSES: usize = 3;

/// A verifier as its clients know it, at one address, or at those that its name has in one family. It certifies addresses of the
/// same family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerAddress {
    /// A name for people.
    pub name: String,
    /// Where it answers, over UDP and TCP. With a name only the family and the port count.
    pub address: SocketAddr,
    /// Its name, if its addresses are looked up each time.
    pub host: Option<IssuerName>,
    /// Its key.
    pub key: PublicKey,
    /// Its vantage points.
    pub group: Vec<VantageAddress>,
}

impl IssuerAddress {
    /// The verifier with this key at this address, without vantage points.
    #[must_use]
    pub fn new(address: SocketAddr, key: PublicKey) -> Self {
        Self { name: address.to_string(), address, host: None, key, group: Vec::new() }
    }

    /// The verifier with this name, asked at its IPv4 or at its IPv6 addresses, without vantage points. For both families
    /// it takes two.
    #[must_use]
    pub fn named(host: &str, port: u16, v4: bool, key: PublicKey, look_up: Arc<dyn LookUp>) -> Self {
        let any = if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let address = SocketAddr::new(any, port);
        let name = format!("{host}:{port}");
        let host = Some(IssuerName::new(host.to_owned(), look_up));
        Self { name, address, host, key, group: Vec::new() }
    }

    /// The verifier with the vantage points of this file, all of which must see a client.
    ///
    /// # Errors
    /// As [`Group::read`].
    pub fn with_group_file(self, path: &Path) -> Result<Self, GroupError> {
        Ok(Self { group: Group::read(path)?.addresses(), ..self })
    }

    /// The id by which its certificates name it.
    #[must_use]
    pub fn id(&self) -> VerifierId {
        self.key.id()
    }
}

/// How long the client waits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time until an unanswered datagram is sent again. It doubles each time.
    pub first: Duration,
    /// How often a datagram is sent before TCP is tried.
    pub sends: u32,
    /// Time limit of the whole exchange over TCP.
    pub stream: Duration,
}

impl Default for Patience {
    /// 3.5 s over UDP, then 5 s over TCP.
    fn default() -> Self {
        Self { first: Duration::from_millis(500), sends: 3, stream: Duration::from_secs(5) }
    }
}

/// The certificate that the client wants.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The key to certify. Use a new one each time.
    pub key: PrivateKey,
    /// How long the certificate should last, seconds.
    pub wished: u32,
    /// The certificate to renew. The verifier decides by it how long the new one lasts.
    pub old: Option<&'a ClientCertificate>,
}

/// Obtains a certificate. It asks the verifier and all of its vantage points for challenges at the same time,
/// hands the vantage points' tokens to the verifier, and checks the certificate. It uses UDP, and TCP if UDP
/// gives no answer.
///
/// The time of the certificate is counted from the arrival of the answer. The verifier wrote the certificate
/// before that, so a request's stamp is the verifier's time or a little less, and never a future time,
/// however long the answer was on its way.
///
/// # Errors
/// Which verifier or vantage point did not answer, refused, or gave a wrong answer.
pub async fn obtain(
    from: &IssuerAddress,
    wanted: Wanted<'_>,
    patience: &Patience,
) -> Result<ClientCertificate, ObtainError> {
    obtain_by(&Route::System, from, wanted, patience).await
}

/// Like [`obtain`], but reaches the verifiers by `route`. The certificate is for the address that they see. A verifier with a
/// name is asked at up to three of its addresses, one after the other, until one gives an answer.
///
/// # Errors
/// As [`obtain`].
pub async fn obtain_by(
    route: &Route,
    from: &IssuerAddress,
    wanted: Wanted<'_>,
    patience: &Patience,
) -> Result<ClientCertificate, ObtainError> {
    let Some(host) = &from.host else { return obtain_at(route, from, wanted, patience).await };
    let v4 = from.address.is_ipv4();
    let unknown = |error| ObtainError::Unknown { name: from.name.clone(), v4, error };
    let mut last = None;
    for ip in host.addresses(v4).await.map_err(unknown)?.into_iter().take(ADDRESSES) {
        let address = SocketAddr::new(ip, from.address.port());
        let at = IssuerAddress { name: format!("{} ({ip})", from.name), address, ..from.clone() };
        match obtain_at(route, &at, wanted.clone(), patience).await {
            // The others may be other machines, and this one is silent.
            Err(error @ ObtainError::Issuer { fault: Fault::Silent(_) | Fault::Socket(_), .. }) => {
                last = Some(error);
            }
            answered => return answered,
        }
    }
    Err(last.unwrap_or_else(|| unknown(std::io::Error::other("it has no such address"))))
}

/// Like [`obtain_by`], at one address.
async fn obtain_at(
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
            // A task that panicked counts as one without an answer.
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

/// The request to the issuer.
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

    /// A request that only gets a challenge, so its signatures are not checked.
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

/// All tokens, ordered by vantage point. The error names the vantage points that gave none.
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

/// The error with the party at fault: the issuer, or the vantage point whose token it refused.
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
