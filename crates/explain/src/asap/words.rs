//! Objects as text for people, and as fields for JSON.

use super::object::Object;
use crate::record;
use crate::time::rfc3339;
use data_encoding::HEXLOWER;
use firstflight_wire::asap::message::{Challenge, Message, Request};
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateBody, Hint, Reply, ServiceParam, UdpService, VerifierId,
};
use serde_json::{Value, json};
use std::fmt::Write;

impl Object<'_> {
    /// A title, then a line for each field, for an object of `len` bytes. Codes that would let a client pass are left out.
    #[must_use]
    pub fn words(&self, len: usize) -> String {
        let mut words = Words(String::new());
        match self {
            Self::AsapOption(option) => option_words(option, &mut words),
            Self::Reply(reply) => reply_words(reply, &mut words),
            Self::Block(block) => block_words(block, len, &mut words),
            Self::Certificate(body) => {
                words.title("certificate, as verifiers send it");
                certificate_words(body, &mut words);
            }
            Self::Message(message) => message_words(message, len, &mut words),
            Self::Service(param) => service_words(param, &mut words),
        }
        words.0
    }

    /// The fields of an object of `len` bytes, as a JSON object. The bytes of codes and keys are hexadecimal.
    #[must_use]
    pub fn record(&self, len: usize) -> Value {
        match self {
            Self::AsapOption(option) => match option {
                AsapOption::Probe { long_reply } => json!({ "long_reply": long_reply }),
                AsapOption::Block { long_reply, len } => {
                    json!({ "long_reply": long_reply, "block_len": len })
                }
            },
            Self::Reply(reply) => json!(record::Reply::from(reply)),
            Self::Block(block) => json!({
                "certificate": certificate_record(&block.certificate),
                "padding": len.saturating_sub(BLOCK_LEN),
                "address_tag": HEXLOWER.encode(&block.request.address_tag),
                "identity_tag": HEXLOWER.encode(&block.request.identity_tag),
                "requested_ms": block.request.requested_ms,
                "request_id": HEXLOWER.encode(&block.request.request_id),
            }),
            Self::Certificate(body) => certificate_record(body),
            Self::Message(message) => message_record(message),
            Self::Service(param) => service_record(param),
        }
    }
}

struct Words(String);

impl Words {
    fn title(&mut self, title: &str) {
        self.0.push_str(title);
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "\n  {name:16}{value}");
    }
}

fn option_words(option: &AsapOption, words: &mut Words) {
    match option {
        AsapOption::Probe { .. } => words.title("TCP option of a SYN: asks whether the server speaks ASAP"),
        AsapOption::Block { len, .. } => {
            words.title("TCP option of a SYN: the payload begins with a credential block");
            words.line(
                "block",
                format_args!("{len} bytes, {} of them padding", usize::from(*len) - BLOCK_LEN),
            );
        }
    }
    words.line("reply", if option.long_reply() { "16 bytes are welcome" } else { "8 bytes" });
}

fn reply_words(reply: &Reply, words: &mut Words) {
    words.title("TCP option of a SYN-ACK: the answer to a probe or block");
    words
        .line("status", format_args!("{} ({}): {}", reply.status as u8, reply.status.as_str(), reply.status));
    words.line("tag", HEXLOWER.encode(&reply.tag));
    if let Hint::Time(at) | Hint::Trusts(at, _) | Hint::Sees(at, _) = reply.hint {
        words.line("server's time", rfc3339(at.into()));
    }
    match &reply.hint {
        Hint::None | Hint::Time(_) => {}
        Hint::Trusts(_, id) => words.line("trusts", format_args!("verifier {id}")),
        Hint::Sees(_, address) => words.line("sees", address),
        Hint::Proof(proof) => words.line("proof", HEXLOWER.encode(proof)),
    }
}

fn certificate_words(body: &CertificateBody, words: &mut Words) {
    let flags = body.flags;
    words.line("verifier", body.verifier);
    words.line("client's key", HEXLOWER.encode(&body.client_key));
    let (begins, ends) = (rfc3339(body.valid_from.into()), rfc3339(body.ends()));
    words.line("valid", format_args!("{} s, from {begins} to {ends}", body.duration()));
    let points = if flags.vantage() == 1 { "vantage point" } else { "vantage points" };
    let challenged = if flags.is_challenged() { "address challenged" } else { "address not challenged" };
    let renewed = if flags.is_refreshed() { ", renewed" } else { "" };
    words.line("seen from", format_args!("{} {points}, {challenged}{renewed}", flags.vantage()));
}

fn certificate_record(body: &CertificateBody) -> Value {
    json!({
        "verifier": body.verifier.to_string(),
        "client_key": HEXLOWER.encode(&body.client_key),
        "valid_from": body.valid_from,
        "duration": body.duration(),
        "vantage_points": body.flags.vantage(),
        "challenged": body.flags.is_challenged(),
        "renewed": body.flags.is_refreshed(),
        "signature": HEXLOWER.encode(&body.signature),
    })
}

fn block_words(block: &Block, len: usize, words: &mut Words) {
    let request = &block.request;
    let padding = len.saturating_sub(BLOCK_LEN);
    words.title(&format!("credential block, {len} bytes, {padding} of them padding"));
    certificate_words(&block.certificate, words);
    words.line("address tag", HEXLOWER.encode(&request.address_tag));
    words.line("identity tag", HEXLOWER.encode(&request.identity_tag));
    let begins = u64::from(block.certificate.valid_from) * 1000;
    let after = if request.requested_ms < begins { "before" } else { "after" };
    let apart = request.requested_ms.abs_diff(begins);
    let at = rfc3339(request.requested_ms / 1000);
    words.line(
        "requested",
        format_args!("{at}, {}.{:03} s {after} the certificate's beginning", apart / 1000, apart % 1000),
    );
    words.line("request id", HEXLOWER.encode(&request.request_id));
}

fn request_words(request: &Request, words: &mut Words) {
    words.title("verifier message: a request for a certificate");
    words.line("client's key", HEXLOWER.encode(&request.client_key));
    words.line("wished", format_args!("{} s", request.wished));
    challenge_words(request.challenge.as_ref(), words);
    for token in request.tokens.iter() {
        words.line(
            "token",
            format_args!("of vantage point {}, {}", token.vantage, rfc3339(token.time.into())),
        );
    }
    if let Some(old) = &request.old {
        words.line("renews", "this certificate:");
        certificate_words(&old.certificate, words);
    }
}

fn challenge_words(challenge: Option<&Challenge>, words: &mut Words) {
    match challenge {
        None => words.line("challenge", "none"),
        Some(challenge) => words.line("challenge", format_args!("by key {}", challenge.key)),
    }
}

fn message_words(message: &Message, len: usize, words: &mut Words) {
    match message {
        Message::Request(request) => request_words(request, words),
        Message::Challenge(message) => {
            words.title("verifier message: a challenge");
            words.line("client seen at", message.seen);
            challenge_words(Some(&message.challenge), words);
            words.line("verifier's time", rfc3339(message.time.into()));
        }
        Message::Certificate(message) => {
            words.title("verifier message: a certificate");
            words.line("client seen at", message.seen);
            certificate_words(&message.certificate, words);
        }
        Message::Refused(refused) => {
            words.title("verifier message: a refusal");
            let reason = refused.reason;
            words.line("reason", format_args!("{} ({}): {reason}", reason as u8, reason.as_str()));
            if let Some(vantage) = refused.vantage {
                words.line("vantage point", vantage);
            }
            match refused.retry_after {
                0 => words.line("again", "not by waiting"),
                after => words.line("again", format_args!("after {after} s")),
            }
        }
        Message::VantageRequest(request) => {
            words.title("verifier message: a request for a vantage token");
            words.line("client's key", HEXLOWER.encode(&request.client_key));
            challenge_words(request.challenge.as_ref(), words);
        }
        Message::Token(message) => {
            words.title("verifier message: a vantage token");
            words.line("vantage point", message.token.vantage);
            words.line("made", rfc3339(message.token.time.into()));
        }
        Message::ProbeRequest(request) => {
            words.title("verifier message: a request for a probe");
            challenge_words(request.challenge.as_ref(), words);
            words.line("nonce", HEXLOWER.encode(&request.nonce));
        }
        Message::Probe(probe) => {
            words.title("verifier message: a probe from another address");
            words.line("nonce", HEXLOWER.encode(&probe.nonce));
        }
    }
    words.line("transaction", HEXLOWER.encode(&message.transaction().0));
    words.line("length", format_args!("{len} bytes"));
}

fn message_record(message: &Message) -> Value {
    let mut record = match message {
        Message::Request(request) => json!({
            "client_key": HEXLOWER.encode(&request.client_key),
            "wished": request.wished,
            "challenged": request.challenge.is_some(),
            "tokens": request.tokens.iter().map(|token| token.vantage.get()).collect::<Vec<_>>(),
            "renews": request.old.as_ref().map(|old| certificate_record(&old.certificate)),
        }),
        Message::Challenge(message) => json!({ "seen": message.seen, "time": message.time }),
        Message::Certificate(message) => {
            json!({ "seen": message.seen, "certificate": certificate_record(&message.certificate) })
        }
        Message::Refused(refused) => json!({
            "reason": refused.reason as u8,
            "reason_name": refused.reason.as_str(),
            "vantage": refused.vantage.map(|vantage| vantage.get()),
            "retry_after": refused.retry_after,
        }),
        Message::VantageRequest(request) => {
            json!({ "client_key": HEXLOWER.encode(&request.client_key), "challenged": request.challenge.is_some() })
        }
        Message::Token(message) => {
            json!({ "vantage": message.token.vantage.get(), "time": message.token.time })
        }
        Message::ProbeRequest(request) => {
            json!({ "challenged": request.challenge.is_some(), "nonce": HEXLOWER.encode(&request.nonce) })
        }
        Message::Probe(probe) => json!({ "nonce": HEXLOWER.encode(&probe.nonce) }),
    };
    record["transaction"] = HEXLOWER.encode(&message.transaction().0).into();
    record
}

fn service_words(param: &ServiceParam<'_>, words: &mut Words) {
    words.title("service parameter of an SVCB or HTTPS record");
    words.line("TCP on IP", if param.takes_ip() { "yes" } else { "no" });
    match param.udp() {
        None => words.line("TCP in UDP", "no"),
        Some(udp) => words.line("TCP in UDP", format_args!("port {}", udp.port)),
    }
    words.line("MSS", format_args!("{} bytes in a SYN", param.mss()));
    let verifiers = || param.verifiers.iter();
    if verifiers().len() == 0 {
        words.line("verifiers", "not said");
    }
    verifiers().for_each(|id: VerifierId| words.line("verifier", id));
    let guard = if param.shared_guard { "one for all addresses of the name" } else { "one for each address" };
    words.line("replay guard", guard);
    if let Some(UdpService { dns_path: Some(dns_path), .. }) = param.udp() {
        words.line("by DNS", format_args!("below {}", dns_path.zone));
        words.line("HPKE key", format_args!("{} {}", dns_path.key_id, HEXLOWER.encode(&dns_path.key)));
    }
}

fn service_record(param: &ServiceParam<'_>) -> Value {
    let udp = param.udp();
    let dns_path = udp.and_then(|udp| udp.dns_path).map(|dns_path| {
        let zone = dns_path.zone.to_string();
        json!({ "key_id": dns_path.key_id, "key": HEXLOWER.encode(&dns_path.key), "zone": zone })
    });
    json!({
        "ip": param.takes_ip(),
        "udp_port": udp.map(|udp| udp.port),
        "mss": param.mss(),
        "verifiers": param.verifiers.iter().map(|id| id.to_string()).collect::<Vec<_>>(),
        "shared_guard": param.shared_guard,
        "dns_path": dns_path,
    })
}
