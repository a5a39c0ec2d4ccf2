//! Checks an object as far as the given information allows.

use crate::utc::Time;
use firstflight::credential::asap::{CertificateDigest, Identity, PublicKey, address_tag, is_certified};
use firstflight_explain::asap::Object;
use firstflight_wire::asap::message::{CertificateMessage, Message, Request};
use firstflight_wire::asap::{Block, CertificateBody, Encapsulation, RequestInput};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::IpAddr;

/// The information that the user gives.
pub struct GivenFacts {
    pub verifier: Option<PublicKey>,
    pub address: Option<IpAddr>,
    pub identity: Option<Identity>,
    pub encapsulation: Option<Encapsulation>,
    pub data: Option<Vec<u8>>,
    pub at: Option<Time>,
}

/// The result of one check.
pub struct Check {
    name: &'static str,
    pub verdict: CheckVerdict,
}

pub enum CheckVerdict {
    Right,
    Wrong(String),
    /// The check was not possible; says which information is missing.
    Unchecked(&'static str),
}

impl Check {
    fn new(name: &'static str, right: bool, wrong: impl fmt::Display) -> Self {
        let verdict = if right { CheckVerdict::Right } else { CheckVerdict::Wrong(wrong.to_string()) };
        Self { name, verdict }
    }

    const fn unchecked(name: &'static str, needs: &'static str) -> Self {
        Self { name, verdict: CheckVerdict::Unchecked(needs) }
    }

    /// The result as JSON.
    pub fn record(&self) -> Value {
        match &self.verdict {
            CheckVerdict::Right => json!({ "check": self.name, "result": "right" }),
            CheckVerdict::Wrong(why) => json!({ "check": self.name, "result": "wrong", "why": why }),
            CheckVerdict::Unchecked(needs) => {
                json!({ "check": self.name, "result": "unchecked", "needs": needs })
            }
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.verdict {
            CheckVerdict::Right => f.write_str("right"),
            CheckVerdict::Wrong(why) => write!(f, "WRONG, {why}"),
            CheckVerdict::Unchecked(needs) => write!(f, "not checked, needs {needs}"),
        }
    }
}

impl GivenFacts {
    /// Checks `object`, which has `len` bytes.
    pub fn check(&self, object: &Object<'_>, len: usize) -> Vec<Check> {
        match object {
            Object::Block(block) => self.block(block, len),
            Object::Certificate(body) => self.certificate(body, self.address),
            Object::Message(message) => match &**message {
                Message::Request(request) => self.request(request),
                Message::Certificate(message) => self.certificate_message(message),
                Message::VantageRequest(request) => vec![sound(request.client_key)],
                Message::Challenge(_)
                | Message::Refused(_)
                | Message::Token(_)
                | Message::ProbeRequest(_)
                | Message::Probe(_) => Vec::new(),
            },
            // The others have no signature.
            _ => Vec::new(),
        }
    }

    fn block(&self, block: &Block, len: usize) -> Vec<Check> {
        let mut checks = self.certificate(&block.certificate, self.address);
        let request = &block.request;
        let (begins, ends) =
            (u64::from(block.certificate.valid_from) * 1000, block.certificate.ends() * 1000);
        let stamped = (begins..=ends).contains(&request.requested_ms);
        checks.push(Check::new("time of the request", stamped, "it lies outside the certificate's time"));
        if let Some(address) = self.address {
            let right = request.address_tag == address_tag(address);
            checks.push(Check::new("address tag", right, format_args!("it is not that of {address}")));
        }
        if let Some(identity) = &self.identity {
            let right = request.identity_tag == identity.tag();
            checks.push(Check::new("identity tag", right, "it is not that of --identity"));
        }
        let name = "client's signature";
        let (Some(verifier), Some(address), Some(identity), Some(encapsulation), Some(data)) =
            (&self.verifier, self.address, &self.identity, self.encapsulation, &self.data)
        else {
            let needs = "--verifier-key, --address, --identity, --encapsulation and --data";
            checks.push(Check::unchecked(name, needs));
            return checks;
        };
        let input = RequestInput {
            encapsulation,
            relayed: false,
            address,
            identity: *identity.digest(),
            block_len: u32::try_from(len).unwrap_or(u32::MAX),
            data_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            data_digest: Sha256::digest(data).into(),
            requested_ms: request.requested_ms,
            request_id: request.request_id,
            certificate: CertificateDigest::of(&block.certificate, verifier, address).to_bytes(),
        };
        let right = PublicKey::from_bytes(block.certificate.client_key)
            .verifies(&input.to_bytes(), &request.signature);
        let wrong =
            "the client's key did not sign this data for this server, encapsulation, address and certificate";
        checks.push(Check::new(name, right, wrong));
        checks
    }

    fn certificate(&self, body: &CertificateBody, address: Option<IpAddr>) -> Vec<Check> {
        let mut checks = vec![sound(body.client_key)];
        if let Some(at) = self.at {
            let now = at.0 / 1000;
            let wrong = if now > body.ends() { "it has expired" } else { "it begins later" };
            let right = (u64::from(body.valid_from)..=body.ends()).contains(&now);
            checks.push(Check::new("certificate's time", right, wrong));
        }
        if let Some(verifier) = &self.verifier {
            let wrong = format!(
                "the key given has the id {}, the certificate names {}",
                verifier.id(),
                body.verifier
            );
            checks.push(Check::new("verifier", body.verifier == verifier.id(), wrong));
        }
        let name = "verifier's signature";
        checks.push(match (&self.verifier, address) {
            (Some(verifier), Some(address)) => {
                let wrong = format!("this verifier did not sign this certificate for {address}");
                Check::new(name, is_certified(body, verifier, address), wrong)
            }
            (None, Some(_)) => Check::unchecked(name, "--verifier-key"),
            _ => Check::unchecked(name, "--verifier-key and --address"),
        });
        checks
    }

    /// Checks a certificate message, which contains the address that it certifies.
    fn certificate_message(&self, message: &CertificateMessage) -> Vec<Check> {
        let seen = message.seen.ip();
        let mut checks = Vec::new();
        if let Some(address) = self.address {
            let wrong = format!("the message certifies {seen}, not {address}");
            checks.push(Check::new("address", address == seen, wrong));
        }
        checks.extend(self.certificate(&message.certificate, Some(seen)));
        checks
    }

    fn request(&self, request: &Request) -> Vec<Check> {
        let mut checks = vec![sound(request.client_key)];
        let name = "client's signature";
        let Some(verifier) = &self.verifier else {
            checks.push(Check::unchecked(name, "--verifier-key"));
            return checks;
        };
        let input = request.signing_input(verifier.as_bytes());
        let signed = |key, signature| PublicKey::from_bytes(key).verifies(input.as_slice(), signature);
        let wrong = "the key to be certified did not sign this request for this verifier";
        checks.push(Check::new(name, signed(request.client_key, &request.signature), wrong));
        if let Some(old) = &request.old {
            let right = signed(old.certificate.client_key, &old.signature);
            let wrong = "the key of the old certificate did not sign this request for this verifier";
            checks.push(Check::new("old key's signature", right, wrong));
            if let Some(address) = self.address {
                let right = is_certified(&old.certificate, verifier, address);
                let wrong = format!("this verifier did not sign the old certificate for {address}");
                checks.push(Check::new("old certificate", right, wrong));
            }
        }
        checks
    }
}

fn sound(key: [u8; 32]) -> Check {
    let right = PublicKey::from_bytes(key).is_sound();
    Check::new(
        "client's key",
        right,
        "it is no point, not canonical, or of small order: nobody may certify it",
    )
}
