//! ASAP on the client: what a SYN offers, and what the answer to it means (`docs/spec/asap.md`).

use crate::config::{Certified, ConnectConfig};
use crate::flow::FlowKey;
use crate::flows::slot::SentAsapOption;
use crate::random::Random;
use alloc::vec::Vec;
use firstflight_credential::asap::reason;
use firstflight_credential::{Outcome, Reason};
use firstflight_tcp::{Resolution, SynAckReport};
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Encapsulation, Reply, Status};
use firstflight_wire::encapsulation;
use firstflight_wire::hint::likely;
use firstflight_wire::tcp::{OptionBytes, Segment};

/// A SYN's ASAP option.
pub(crate) struct AsapOptionPlan {
    pub option: OptionBytes,
    /// The credential block, empty in a probe.
    pub block: Vec<u8>,
    /// Bytes of data that are signed and ride behind the block.
    pub data: usize,
    pub sent: SentAsapOption,
}

/// What the SYN offers: a block for `data`, or a probe and the reason for it. `random` gives the request's id.
pub(crate) fn asap_option(
    certified: &Certified,
    encapsulation: Encapsulation,
    data: Result<&[u8], Reason>,
    random: &mut Random,
) -> AsapOptionPlan {
    let identity = certified.identity.clone();
    let data = match data {
        Ok(data) => data,
        Err(reason) => {
            let option = OptionBytes::from(AsapOption::Probe { long_reply: true });
            let sent = SentAsapOption { identity, tag: Err(reason), distrusted: None };
            return AsapOptionPlan { option, block: Vec::new(), data: 0, sent };
        }
    };
    let id = certified.request_id.unwrap_or_else(|| random.next_u64().to_be_bytes());
    let block = certified.certificate.request(encapsulation, &identity, data, id, certified.now);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    let [a, b, ..] = id;
    AsapOptionPlan {
        option: OptionBytes::from(option),
        block: block.to_bytes().to_vec(),
        data: data.len(),
        sent: SentAsapOption { identity, tag: Ok([a, b]), distrusted: None },
    }
}

/// The part of `data` that rides behind the block if the SYN has `room` bytes for it. An error if the data is
/// `withheld`, the certificate has expired, or nothing fits.
pub(crate) fn riding<'a>(
    certified: &Certified,
    withheld: Option<Reason>,
    room: usize,
    data: &'a [u8],
) -> Result<&'a [u8], Reason> {
    if certified.certificate.remaining(certified.now).is_zero() {
        return Err(Reason::Expired);
    }
    why_plain(withheld, room, data).map_or_else(|| Ok(data.get(..data.len().min(room)).unwrap_or(data)), Err)
}

/// Why a SYN that could carry a credential with `room` bytes of data carries no data; `None` if it does.
pub(crate) fn why_plain(withheld: Option<Reason>, room: usize, data: &[u8]) -> Option<Reason> {
    match withheld {
        Some(reason) => Some(reason),
        None if data.is_empty() => Some(Reason::NoData),
        None => (room == 0).then_some(Reason::MessageTooLarge),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SynAckMeaning {
    pub resolution: Resolution,
    pub outcome: Outcome,
    /// Whether the server understands ASAP, if the answer says so.
    pub capable: Option<bool>,
    /// The SYN with the option was lost, as far as the answer shows.
    pub first_lost: bool,
}

impl SynAckMeaning {
    /// Whether the data may have run, although the answer does not acknowledge it. The server says so; or it answers in UDP,
    /// where nothing removes an option on the way, as if it had got no block: then it answers another SYN, which an
    /// eavesdropper may have sent in the client's name.
    pub(crate) fn may_have_run(&self, carried: bool) -> bool {
        match self.outcome {
            Outcome::Handshake(Reason::Replay) => true,
            Outcome::Handshake(Reason::OptionStripped | Reason::Malformed) => carried,
            _ => false,
        }
    }
}

/// Reads the answer to `sent`, row by row of the specification's table.
pub(crate) fn read(sent: &SentAsapOption, report: &SynAckReport, segment: &Segment<'_>) -> SynAckMeaning {
    let reply = segment.options.asap().and_then(Reply::parse);
    // Only the first SYN carries an ASAP option. If it has a reply, that SYN was not lost.
    let first_lost = report.first_lost && reply.is_none();
    let tag = match sent.tag {
        Ok(tag) => tag,
        Err(reason) => {
            let capable = reply.is_some_and(|reply| reply.status != Status::Disabled);
            // A missing reply says nothing if the probe was lost or not repeated.
            let capable = (capable || !report.retransmitted).then_some(capable);
            let outcome = Outcome::Handshake(if report.refused { Reason::SynRefused } else { reason });
            return SynAckMeaning { resolution: Resolution::DataRefused, outcome, capable, first_lost };
        }
    };
    let answer = |resolution, outcome, capable| SynAckMeaning { resolution, outcome, capable, first_lost };
    let handshake = |reason, capable| answer(Resolution::DataRefused, Outcome::Handshake(reason), capable);
    let abort = |reason| answer(Resolution::Abort, Outcome::Handshake(reason), Some(false));
    let ours = |reply: &Reply| reply.tag == tag;
    match (report.acked, reply) {
        // Whatever this answer says, it does not withdraw the first one, which made no sense.
        (acked, _) if sent.distrusted.is_some() && acked > 0 => abort(Reason::PeerMisbehaved),
        (0, Some(reply)) if reply.status == Status::Accepted => abort(Reason::PeerMisbehaved),
        // This status answers a probe, not a block.
        (0, Some(reply)) if reply.status == Status::Capable => handshake(Reason::OptionStripped, Some(false)),
        (0, Some(reply)) => handshake(reason(reply.status), Some(reply.status != Status::Disabled)),
        (0, None) if report.met_old => handshake(Reason::OldConnection, None),
        (0, None) if report.refused => handshake(Reason::SynRefused, None),
        (0, None) if report.too_big => handshake(Reason::PathTooSmall, None),
        (0, None) if first_lost => handshake(Reason::SynTimedOut, None),
        (0, None) => handshake(Reason::OptionStripped, Some(false)),
        (acked, _) if acked < report.carried => abort(Reason::AckInside),
        (_, Some(reply)) if reply.status == Status::Accepted && ours(&reply) => {
            answer(Resolution::Accepted, Outcome::Accepted, Some(true))
        }
        (_, Some(_)) => abort(Reason::PeerMisbehaved),
        // The server is known to be capable, so it understood the block. The client probes again next time.
        (_, None) => answer(Resolution::Accepted, Outcome::AcceptedReplyStripped, Some(false)),
    }
}

/// Largest payload of the segments that follow a SYN with a credential; 0 if none may follow. On raw IP none may
/// follow, because middleboxes drop segments without ACK. `mss` is the server's, if it was learnt.
pub(crate) fn follow(config: &ConnectConfig, key: &FlowKey, mss: Option<u16>) -> u16 {
    if likely(!key.is_carried()) {
        return 0;
    }
    let once = config.asap.as_ref().is_some_and(|certified| certified.once);
    let published = config.asap.as_ref().and_then(|certified| certified.mss);
    let mss = published.or(mss).unwrap_or(encapsulation::BASE_MSS);
    if config.replay_safe || once { mss } else { 0 }
}
