//! The report of one connection, as text and as JSON.

use super::conversation::FoOption;
use super::frame::FrameEnd;
use super::note::{Bytes, Note, TimesMore};
use super::offered::{BlockContent, Offered};
use super::sealed::Sealed;
use super::verdict::ConnectionVerdict;
use crate::record;
use crate::time::millis;
use data_encoding::HEXLOWER;
use firstflight_credential::Outcome;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The report of one connection. `Display` gives a line for people, and one more with what explains the outcome; its times are
/// those since the beginning of the capture.
#[derive(Debug)]
pub struct Report<'a> {
    /// When the capture began.
    pub(crate) origin: Instant,
    /// When the connection began.
    pub(crate) began: Instant,
    pub(crate) client: FrameEnd,
    pub(crate) server: FrameEnd,
    pub(crate) verdict: &'a ConnectionVerdict,
}

impl From<&BlockContent> for record::Certificate {
    fn from(shown: &BlockContent) -> Self {
        Self {
            verifier: shown.verifier.to_string(),
            valid_from: shown.valid_from,
            duration: shown.duration,
            age_ms: shown.age_ms(),
            vantage_points: shown.flags.vantage(),
            challenged: shown.flags.is_challenged(),
            renewed: shown.flags.is_refreshed(),
        }
    }
}

impl record::Asap {
    fn of(verdict: &ConnectionVerdict) -> Option<Self> {
        let (offered, reply) = (verdict.offered.as_ref(), verdict.reply.as_ref());
        let shown = offered.and_then(Offered::shown);
        (offered.is_some() || reply.is_some()).then(|| Self {
            offered: offered.map(Offered::as_str),
            block_bytes: verdict.block_bytes(),
            certificate: shown.map(record::Certificate::from),
            tag: shown.map(|shown| HEXLOWER.encode(&shown.tag)),
            reply: reply.map(record::Reply::from),
            tag_matches: verdict.tag_matches(),
        })
    }
}

impl From<Sealed> for record::Sealed {
    fn from(sealed: Sealed) -> Self {
        let Sealed { key_id, bytes, answer, outcome } = sealed;
        Self { key_id, bytes, answer: answer.as_str(), outcome: outcome.map(firstflight_seal::Outcome::name) }
    }
}

impl From<Note> for record::Note {
    fn from(note: Note) -> Self {
        Self { note: note.as_str(), text: note.to_string() }
    }
}

impl Report<'_> {
    /// The client's address and TCP port.
    #[must_use]
    pub const fn client(&self) -> SocketAddr {
        self.client.address
    }

    /// The server's address and TCP port.
    #[must_use]
    pub const fn server(&self) -> SocketAddr {
        self.server.address
    }

    /// The outcome of the first flight, in the words of both ends.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.verdict.outcome
    }

    /// Everything as fields.
    #[must_use]
    pub fn record(&self) -> record::Connection {
        let verdict = self.verdict;
        let hex = |option: &Option<FoOption>| Some(HEXLOWER.encode(option.as_ref()?.cookie()?));
        let rtts = verdict.first_byte_rtts();
        record::Connection {
            start_unix_ms: (self.began.as_nanos() / 1_000) as f64 / 1e3,
            client: self.client.address,
            server: self.server.address,
            udp: self.udp_ports(),
            outcome: verdict.outcome.as_str(),
            reason: verdict.outcome.reason().map(|reason| reason.as_str()),
            option: verdict.option.as_ref().map(kind),
            form: verdict.option.as_ref().and_then(FoOption::form).map(form),
            cookie: hex(&verdict.option),
            granted: hex(&verdict.answer),
            syn_bytes: verdict.syn_bytes,
            acked_bytes: verdict.acked_bytes,
            syn_retransmits: verdict.syn_retransmits,
            asap: record::Asap::of(verdict).map(Box::new),
            seal: verdict.sealed.map(record::Sealed::from),
            rtt_ms: verdict.rtt.map(millis),
            first_byte_ms: verdict.first_byte.map(millis),
            first_byte_rtts: rtts.map(|rtts| (rtts * 1e3).round() / 1e3),
            notes: verdict.notes.iter().copied().map(record::Note::from).collect(),
        }
    }

    fn udp_ports(&self) -> Option<record::UdpPorts> {
        let (client_port, server_port) = self.client.udp_port.zip(self.server.udp_port)?;
        Some(record::UdpPorts { client_port, server_port })
    }

    /// The facts that explain the outcome, one clause each.
    fn clauses(&self) -> Vec<String> {
        let verdict = self.verdict;
        let mut clauses = Vec::new();
        clauses.extend(verdict.option.as_ref().and_then(|option| sent(option, verdict)));
        clauses.extend(verdict.acked_bytes.and_then(|acked| acknowledged(acked, verdict)));
        clauses.extend(verdict.answer.as_ref().and_then(|answer| granted(answer, verdict)));
        if verdict.syn_retransmits > 0 {
            clauses.push(format!("SYN sent {}", TimesMore(verdict.syn_retransmits)));
        }
        clauses.extend(verdict.notes.iter().map(ToString::to_string));
        clauses.extend(verdict.first_byte.map(|after| match verdict.first_byte_rtts() {
            Some(rtts) => format!("first byte after {rtts:.2} RTT ({})", Millis(after)),
            None => format!("first byte after {}", Millis(after)),
        }));
        clauses
    }
}

/// "in the SYN: 61 bytes, cookie 0123456789abcdef", "in the SYN: a credential block of 196 bytes, 61 bytes of data".
fn sent(option: &FoOption, verdict: &ConnectionVerdict) -> Option<String> {
    let of_data = if verdict.certified() { " of data" } else { "" };
    let bytes = verdict.syn_bytes.filter(|bytes| *bytes > 0);
    let bytes = bytes.map(|bytes| format!("{}{of_data}", Bytes(bytes as usize)));
    let what = match option {
        FoOption::Absent | FoOption::Illegal(..) => None,
        FoOption::Legal(FastOpen::Request(_)) => Some("a cookie request".to_owned()),
        FoOption::Legal(cookie) => Some(format!("cookie {}", HEXLOWER.encode_display(cookie.cookie_bytes()))),
    };
    let block = verdict.block_bytes().map(|len| format!("a credential block of {}", Bytes(len as usize)));
    let what: Vec<_> = block.into_iter().chain(bytes).chain(what).collect();
    let form = match option.form() {
        Some(FastOpenForm::Experimental) => " in the form 254/0xF989",
        _ => "",
    };
    (!what.is_empty()).then(|| format!("in the SYN: {}{form}", what.join(", ")))
}

fn acknowledged(acked: u32, verdict: &ConnectionVerdict) -> Option<String> {
    match (acked, verdict.syn_bytes?) {
        (_, 0) => None,
        (0, _) => Some("none of it acknowledged".to_owned()),
        (acked, carried) if acked < carried => Some(format!("{acked} of them acknowledged")),
        _ => Some("all acknowledged".to_owned()),
    }
}

fn granted(answer: &FoOption, verdict: &ConnectionVerdict) -> Option<String> {
    let cookie = HEXLOWER.encode(answer.cookie()?);
    let fresh =
        if verdict.option.as_ref().is_some_and(|option| option.cookie().is_some()) { "fresh " } else { "" };
    Some(format!("{fresh}cookie {cookie} granted"))
}

const fn kind(option: &FoOption) -> &'static str {
    match option {
        FoOption::Absent => "none",
        FoOption::Legal(FastOpen::Request(_)) => "request",
        FoOption::Legal(FastOpen::Cookie(..)) => "cookie",
        FoOption::Illegal(..) => "illegal",
    }
}

const fn form(form: FastOpenForm) -> &'static str {
    match form {
        FastOpenForm::Standard => "34",
        FastOpenForm::Experimental => "254/0xF989",
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.began.saturating_since(self.origin);
        let (client, server, outcome) = (self.client.address, self.server.address, self.verdict.outcome);
        write!(f, "{:>9.3} s  {client} → {server}", after.as_secs_f64())?;
        if let Some(record::UdpPorts { client_port, server_port }) = self.udp_ports() {
            write!(f, " in UDP {client_port} → {server_port}")?;
        }
        write!(f, "  {}", outcome.as_str())?;
        if let Some(reason) = outcome.reason().filter(|reason| reason.as_str() != outcome.as_str()) {
            write!(f, " ({})", reason.as_str())?;
        }
        let clauses = self.clauses();
        if !clauses.is_empty() {
            write!(f, "\n{:13}{}", "", clauses.join("; "))?;
        }
        Ok(())
    }
}

struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0.as_secs_f64() * 1e3)
    }
}
