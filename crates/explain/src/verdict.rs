//! The outcome of a first flight and its reason, judged from the captured packets. The terms are those of the
//! engine's own outcomes. The rules are those of the engine's client, plus what only an observer sees.

use super::conversation::{Conversation, ConversationSide, FoOption, Half, Syn, SynAck, acknowledged};
use super::note::Note;
use super::offered::Offered;
use super::sealed::{self, Sealed};
use firstflight_credential::asap::reason;
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::asap::{Hint, Reply, Status};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::FastOpen;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConnectionVerdict {
    /// The outcome of its first flight.
    pub outcome: Outcome,
    /// Further observations, in the order in which they happened.
    pub notes: Vec<Note>,
    /// The option of the SYN; `None` without a SYN.
    pub option: Option<FoOption>,
    /// Bytes of data in the SYN; `None` without a SYN.
    pub syn_bytes: Option<u32>,
    /// ASAP's option of the SYN.
    pub offered: Option<Offered>,
    /// How many of the SYN's bytes the SYN-ACK acknowledged; `None` without a SYN-ACK that can be the answer.
    pub acked_bytes: Option<u32>,
    /// The option of the SYN-ACK.
    pub answer: Option<FoOption>,
    /// ASAP's reply in the SYN-ACK.
    pub reply: Option<Reply>,
    /// The number of repeated SYNs.
    pub syn_retransmits: u32,
    /// The time from the SYN that was answered to the SYN-ACK, plus the time from there to its acknowledgement. This
    /// is the round trip as both ends see it, wherever between them the capture was made.
    pub rtt: Option<Duration>,
    /// From the first SYN to the server's first byte, as seen by the client.
    pub first_byte: Option<Duration>,
    /// The sealed flight at the beginning of the client's stream.
    pub sealed: Option<Sealed>,
}

impl ConnectionVerdict {
    /// Whether the client asked for Fast Open, or sent data in the SYN with a cookie or without any credential.
    pub(crate) fn asked(&self) -> bool {
        let carried = self.carried() && !self.certified();
        matches!(self.option, Some(FoOption::Legal(_))) || carried
    }

    /// Whether the SYN has a credential block.
    pub(crate) fn certified(&self) -> bool {
        matches!(self.offered, Some(Offered::Block(..)))
    }

    /// Length of its credential block as announced, bytes.
    pub(crate) fn block_bytes(&self) -> Option<u32> {
        match self.offered {
            Some(Offered::Block(bytes, _)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether the SYN only asked whether the server accepts certificates.
    pub(crate) fn probed(&self) -> bool {
        matches!(self.offered, Some(Offered::Probe))
    }

    /// Whether the reply's tag belongs to the option; `None` if there is no reply or no option, or if this cannot be
    /// determined.
    pub(crate) fn tag_matches(&self) -> Option<bool> {
        self.offered.as_ref()?.is_answered_by(self.reply.as_ref()?)
    }

    /// Whether the SYN had data, with or without a cookie.
    pub(crate) fn carried(&self) -> bool {
        self.syn_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// The time to the first byte of the response, in round trips of the handshake.
    pub(crate) fn first_byte_rtts(&self) -> Option<f64> {
        let rtt = self.rtt.filter(|rtt| !rtt.is_zero())?;
        Some(self.first_byte?.div_duration_f64(rtt))
    }
}

/// Judges a connection, in UDP or not; `None` if neither its SYN nor its SYN-ACK was captured.
pub(crate) fn judge(conversation: &Conversation, in_udp: bool) -> Option<ConnectionVerdict> {
    let client = conversation.client()?;
    let case = VerdictCase::new(conversation, client, in_udp);
    let syn = case.client.syn.as_ref();
    let outcome = case.outcome();
    let sealed = sealed::judge(case.client.beginning, case.server.beginning, outcome.is_accepted());
    let mut notes = case.notes();
    notes.extend(sealed.map(Note::Sealed));
    Some(ConnectionVerdict {
        outcome,
        notes,
        sealed,
        option: syn.map(|syn| syn.option),
        syn_bytes: syn.map(|syn| syn.carried - syn.block_len()),
        offered: syn.and_then(|syn| syn.offered),
        acked_bytes: case.acked.map(|acked| acked.saturating_sub(syn.map_or(0, Syn::block_len))),
        answer: case.server.syn_ack.map(|syn_ack| syn_ack.option),
        reply: case.server.syn_ack.and_then(|syn_ack| syn_ack.reply),
        syn_retransmits: syn.map_or(0, |syn| syn.sent.again()),
        rtt: case.rtt(),
        first_byte: case.first_byte(),
    })
}

struct VerdictCase<'a> {
    client: &'a Half,
    server: &'a Half,
    in_udp: bool,
    /// Bytes of the SYN that a SYN-ACK acknowledged.
    acked: Option<u32>,
}

impl<'a> VerdictCase<'a> {
    fn new(conversation: &'a Conversation, client: ConversationSide, in_udp: bool) -> Self {
        let (client, server) = (conversation.half(client), conversation.half(client.other()));
        let acked = client.syn.zip(server.syn_ack).and_then(|(syn, syn_ack)| {
            let most = [syn_ack.greatest, syn_ack.least].map(|number| acknowledged(number, syn.isn));
            // In UDP the rest of a longer first flight follows its SYN at once, and the SYN-ACK acknowledges that as well.
            let sent = client.followed.filter(|_| in_udp).and_then(|end| acknowledged(end, syn.isn));
            let sent = syn.carried.max(sent.unwrap_or_default());
            most.into_iter().flatten().find(|bytes| *bytes <= sent)
        });
        Self { client, server, in_udp, acked }
    }

    /// Whether the server reports that it accepted the first flight from a name server.
    fn travelled_by_lookup(&self) -> bool {
        let reply = self.server.syn_ack.as_ref().and_then(|syn_ack| syn_ack.reply);
        reply.is_some_and(|reply| reply.status == Status::Accepted && matches!(reply.hint, Hint::Proof(_)))
    }

    fn outcome(&self) -> Outcome {
        let Some(syn) = &self.client.syn else {
            // The client sent no SYN: its first flight was inside a lookup.
            let taken = self.travelled_by_lookup() && self.client.rst.is_none();
            return if taken { Outcome::Accepted } else { Outcome::Undecided };
        };
        if self.server.syn.is_some() {
            return Outcome::Handshake(Reason::SimultaneousOpen);
        }
        let request = matches!(syn.option, FoOption::Legal(FastOpen::Request(_)));
        let answer = self.server.syn_ack.as_ref().zip(self.acked);
        let plain = syn.carried == 0 && !request && syn.option.cookie().is_none();
        match (syn.offered, answer) {
            (Some(offered @ Offered::Block(..)), Some((syn_ack, acked))) => {
                return self.replied(syn, &offered, syn_ack, acked);
            }
            // If the SYN also has a cookie or data, the reply to the probe says nothing about their outcome.
            (Some(Offered::Probe), Some((syn_ack, _)))
                if syn.carried == 0 && syn.option.cookie().is_none() =>
            {
                let refused = self.instead(syn, syn_ack).filter(|reason| *reason == Reason::SynRefused);
                return Outcome::Handshake(refused.unwrap_or(Reason::CapabilityUnknown));
            }
            (Some(Offered::Unreadable), Some((SynAck { reply: Some(reply), .. }, 0))) => {
                return Outcome::Handshake(reason(reply.status));
            }
            (None | Some(Offered::Unreadable), _) if plain => {
                return Outcome::Handshake(Reason::NotRequested);
            }
            _ => {}
        }
        match answer {
            None => self.unanswered(syn),
            Some((syn_ack, acked)) => self.answered(syn, syn_ack, acked, request),
        }
    }

    /// Makes the same distinctions as the engine's client (RFC 7413 §4.1.3).
    fn answered(&self, syn: &Syn, syn_ack: &SynAck, acked: u32, request: bool) -> Outcome {
        let granted = syn_ack.option.cookie().is_some();
        let carried = syn.carried;
        Outcome::Handshake(match (request, self.instead(syn, syn_ack)) {
            // This also holds with a request: a server in a closed network may accept data without cookies.
            _ if carried > 0 && acked >= carried => return Outcome::Accepted,
            // The acknowledged data was in the smaller SYN.
            (_, Some(Reason::PathTooSmall)) => Reason::PathTooSmall,
            _ if acked > 0 => Reason::DataPartlyAcknowledged,
            (true, _) if !granted && self.met_old(syn, syn_ack) => Reason::OldConnection,
            (false, _) if carried > 0 && self.met_old(syn, syn_ack) => Reason::OldConnection,
            (true, _) if granted => Reason::NoCredential,
            (true, Some(reason)) => reason,
            (true, None) => Reason::PeerWithoutFastOpen,
            (false, Some(reason)) if carried > 0 || reason == Reason::SynRefused => reason,
            (false, _) if granted => Reason::StaleOrWrongCredential,
            (false, _) if carried == 0 => Reason::NoData,
            (false, _) => Reason::DataNotAcknowledged,
        })
    }

    /// Like `answered`, for ASAP: the rows of its specification's table.
    fn replied(&self, syn: &Syn, offered: &Offered, syn_ack: &SynAck, acked: u32) -> Outcome {
        let status = syn_ack.reply.map(|reply| reply.status);
        let other = syn_ack.reply.is_some_and(|reply| offered.is_answered_by(&reply) == Some(false));
        let instead = self.instead(syn, syn_ack);
        Outcome::Handshake(match (acked, status) {
            (0, Some(Status::Accepted)) => Reason::PeerMisbehaved,
            // This status answers a probe, not a block.
            (0, Some(Status::Capable)) => Reason::OptionStripped,
            (0, Some(status)) => reason(status),
            (0, None) if self.met_old(syn, syn_ack) => Reason::OldConnection,
            (0, None) => instead.unwrap_or(Reason::OptionStripped),
            (acked, _) if acked < syn.carried && instead == Some(Reason::PathTooSmall) => {
                Reason::PathTooSmall
            }
            (acked, _) if acked < syn.carried => Reason::AckInside,
            (_, Some(Status::Accepted)) if !other => return Outcome::Accepted,
            (_, Some(_)) => Reason::PeerMisbehaved,
            (_, None) => return Outcome::AcceptedReplyStripped,
        })
    }

    /// Why a smaller SYN followed before the answer arrived, if one did.
    fn instead(&self, syn: &Syn, syn_ack: &SynAck) -> Option<Reason> {
        let answer = syn_ack.sent.earliest();
        let plain = syn.plain.filter(|plain| *plain <= answer);
        match self.client.icmp {
            Some(IcmpErrorKind::PacketTooBig { .. }) if syn.shrank_by(answer) => {
                return Some(Reason::PathTooSmall);
            }
            Some(IcmpErrorKind::PacketTooBig { .. }) | None => {}
            Some(_) if plain.is_some() => return Some(Reason::SynRefused),
            Some(_) => {}
        }
        let plain = plain?;
        if self.server.rst.is_some_and(|rst| rst <= plain) {
            return Some(Reason::SynRefused);
        }
        let again = syn.sent.latest_until(answer).is_some_and(|latest| latest > syn.sent.earliest());
        again.then_some(Reason::SynTimedOut)
    }

    /// Whether an earlier connection between the same ports answered the SYN, was reset, and a plain SYN followed.
    fn met_old(&self, syn: &Syn, syn_ack: &SynAck) -> bool {
        let answer = syn_ack.sent.earliest();
        let steps = [self.server.ack, self.client.rst, syn.plain];
        steps.iter().all(|at| at.is_some_and(|at| at <= answer))
    }

    fn unanswered(&self, syn: &Syn) -> Outcome {
        let over = self.refused() || self.client.icmp.is_some() || self.server.syn_ack.is_some();
        if syn.carried > 0 && !self.went_on() && (over || syn.sent.again() > 0) {
            return Outcome::Handshake(Reason::Unknown);
        }
        Outcome::Undecided
    }

    fn refused(&self) -> bool {
        self.server.syn_ack.is_none() && self.server.rst.is_some()
    }

    /// Whether the connection is in UDP and nothing was received: a router reported that it is prohibited, or no SYN
    /// was answered.
    fn is_blocked(&self) -> bool {
        let Some(syn) = &self.client.syn else { return false };
        let server = self.server;
        let silent =
            server.syn_ack.is_none() && server.rst.is_none() && !self.went_on() && server.syn.is_none();
        let prohibited = self.client.icmp == Some(IcmpErrorKind::AdminProhibited);
        self.in_udp && silent && (prohibited || self.client.icmp.is_none() && syn.sent.again() > 0)
    }

    /// Whether later segments show that the handshake was completed.
    fn went_on(&self) -> bool {
        self.server.data.or(self.server.ack).or(self.client.ack).is_some()
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        match &self.client.syn {
            Some(syn) => self.note_syn(syn, &mut notes),
            None if self.travelled_by_lookup() => {}
            None => notes.push(Note::SynNotCaptured),
        }
        notes.extend(self.client.icmp.map(Note::Icmp));
        match &self.server.syn_ack {
            Some(syn_ack) => self.note_syn_ack(syn_ack, &mut notes),
            None if self.server.rst.is_some() => notes.push(Note::Refused),
            None if self.went_on() => notes.push(Note::SynAckNotCaptured),
            None if self.client.icmp.is_none() => notes.push(Note::NoAnswer),
            None => {}
        }
        notes.extend(self.is_blocked().then_some(Note::UdpBlocked));
        notes
    }

    fn note_syn(&self, syn: &Syn, notes: &mut Vec<Note>) {
        match syn.option {
            FoOption::Illegal(_, length) => notes.push(Note::IllegalCookie(length)),
            FoOption::Absent if syn.carried > 0 && syn.offered.is_none() => {
                notes.push(Note::DataWithoutOption)
            }
            _ => {}
        }
        match syn.offered {
            None => {}
            Some(Offered::Probe) => notes.push(Note::Probe),
            Some(Offered::Block(_, Some(shown))) => notes.push(Note::Certificate(shown)),
            Some(Offered::Block(_, None)) => notes.push(Note::UnreadableBlock),
            Some(Offered::Unreadable) => notes.push(Note::UnreadableOption),
        }
        if syn.has_lesser_copy() {
            notes.push(Note::WithAndWithout);
        }
    }

    fn note_syn_ack(&self, syn_ack: &SynAck, notes: &mut Vec<Note>) {
        match syn_ack.option {
            FoOption::Illegal(_, length) => notes.push(Note::IllegalGrant(length)),
            option if option.cookie().is_some() => {
                let unasked = |syn: &Syn| !matches!(syn.option, FoOption::Legal(_));
                notes.extend(self.client.syn.as_ref().is_some_and(unasked).then_some(Note::UnaskedCookie));
            }
            _ => {}
        }
        self.note_reply(syn_ack, notes);
        if let Some(syn) = &self.client.syn {
            match acknowledged(syn_ack.greatest, syn.isn) {
                Some(bytes) if bytes > syn.carried => notes.push(Note::AckedTooMuch(bytes - syn.carried)),
                Some(_) => {}
                None => notes.push(Note::AckedOther),
            }
        }
        if syn_ack.sent.again() > 0 {
            notes.push(Note::SynAckSentAgain(syn_ack.sent.again()));
        }
        if syn_ack.carried > 0 {
            notes.push(Note::DataInSynAck(syn_ack.carried));
        }
        let met_old = self.client.syn.is_some_and(|syn| self.met_old(&syn, syn_ack));
        if !met_old && self.client.rst.is_some_and(|rst| self.client.ack.is_none_or(|ack| rst <= ack)) {
            notes.push(Note::ResetByClient);
        }
    }

    fn note_reply(&self, syn_ack: &SynAck, notes: &mut Vec<Note>) {
        let offered = self.client.syn.map(|syn| (syn, syn.offered));
        let Some(reply) = syn_ack.reply else {
            return match offered {
                _ if syn_ack.unreadable_reply => notes.push(Note::UnreadableReply),
                Some((syn, Some(Offered::Probe))) if self.acked.is_some() => {
                    notes.extend(match self.instead(&syn, syn_ack) {
                        Some(Reason::SynTimedOut) => Some(Note::ProbeLost),
                        Some(_) => None,
                        None => Some(Note::ProbeIgnored),
                    });
                }
                _ => {}
            };
        };
        notes.push(Note::Reply(reply.status));
        match offered {
            Some((_, None)) => notes.push(Note::UnaskedReply),
            Some((_, Some(offered))) if offered.is_answered_by(&reply) == Some(false) => {
                notes.push(Note::ReplyForAnother(reply.tag));
            }
            _ => {}
        }
        match reply.hint {
            Hint::None => {}
            Hint::Time(at) => notes.push(Note::ServerTime(at)),
            Hint::Trusts(at, verifier) => notes.extend([Note::Trusts(verifier), Note::ServerTime(at)]),
            Hint::Sees(at, address) => notes.extend([Note::Sees(address), Note::ServerTime(at)]),
            Hint::Proof(_) => notes.push(Note::Proof),
        }
    }

    /// The round trip between the capture and the server.
    fn far_part(&self) -> Option<Duration> {
        let answered = self.server.syn_ack?.sent.earliest();
        let syn = self.client.syn?.sent.latest_until(answered)?;
        Some(answered.saturating_since(syn))
    }

    /// The round trip between the capture and the client.
    fn near_part(&self) -> Option<Duration> {
        let acked = self.client.ack?;
        let syn_ack = self.server.syn_ack?.sent.latest_until(acked)?;
        Some(acked.saturating_since(syn_ack))
    }

    fn rtt(&self) -> Option<Duration> {
        Some(self.far_part()? + self.near_part().unwrap_or_default())
    }

    fn first_byte(&self) -> Option<Duration> {
        let syn = self.client.syn?.sent.earliest();
        let here = self.server.data?.saturating_since(syn);
        Some(here + self.near_part().unwrap_or_default())
    }
}
