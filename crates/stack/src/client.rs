//! The client's side of Fast Open: what a SYN asks for, what the answer means (RFC 7413 §4.1).

use crate::config::ConnectConfig;
use crate::event::Trace;
use crate::flow::FlowKey;
use crate::slot::Asked;
use crate::stack::Stack;
use core::net::IpAddr;
use firstflight_credential::{Outcome, Reason};
use firstflight_tcp::{Disposition, Resolution, SynAckReport, SynPlan};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{FastOpen, OptionBytes, Segment};

/// Bytes that options may take in a SYN: kept free in front of first-flight data.
const SYN_OPTIONS: u32 = 40;

/// A decision about a connect's first flight.
pub(crate) struct Intent {
    pub plan: SynPlan,
    pub asked: Option<Asked>,
    pub outcome: Outcome,
}

impl Intent {
    fn ordinary(reason: Reason) -> Self {
        Self { plan: SynPlan::default(), asked: None, outcome: Outcome::Handshake(reason) }
    }
}

impl Stack {
    /// Decides what the SYN to `server` carries.
    pub(crate) fn intend(
        &mut self,
        config: &ConnectConfig,
        key: &FlowKey,
        data: &[u8],
        now: Instant,
    ) -> Intent {
        if !config.fast_open {
            return Intent::ordinary(Reason::NotRequested);
        }
        let (network, server) = (self.config.network, key.remote_ip());
        if !self.credentials.may_try(network, server, now) {
            return Intent::ordinary(Reason::FailureMemory);
        }
        let entry = self.credentials.lookup(network, server);
        let known = entry.and_then(|e| e.cookie.map(|c| (c, e.form, e.mss)));
        let Some((cookie, form, mss)) = known else {
            let form = self.credentials.request_form(network, server);
            let asked = Some(Asked { form, cookie: false });
            let plan = SynPlan { options: OptionBytes::from(&FastOpen::Request(form)), ..SynPlan::default() };
            return Intent { plan, asked, outcome: Outcome::Undecided };
        };
        let data_limit = self.first_flight_limit(server, mss);
        let plan = SynPlan {
            options: OptionBytes::from(&FastOpen::Cookie(form, cookie)),
            data_limit,
            first_timeout: (!data.is_empty()).then(|| self.credentials.syn_timeout(network, server, now)),
            ..SynPlan::default()
        };
        Intent { plan, asked: Some(Asked { form, cookie: true }), outcome: Outcome::Undecided }
    }

    /// Largest first-flight data: the peer's MSS, else RFC 7413 §4.2.1's defaults, within our own
    /// and the path's, less the options.
    fn first_flight_limit(&self, server: IpAddr, mss: Option<u16>) -> u32 {
        let unknown = if server.is_ipv4() { 536 } else { 1220 };
        let mss = mss.unwrap_or(unknown).min(self.tcp.mss).min(self.path_mss(server));
        u32::from(mss).saturating_sub(SYN_OPTIONS)
    }

    /// A segment for a client that asked for Fast Open and awaits its answer.
    pub(crate) fn handle_answer(&mut self, index: u32, segment: &Segment<'_>, now: Instant) -> Disposition {
        let Some(slot) = self.slots.get_mut(index) else { return Disposition::Processed };
        let Some(report) = slot.conn.syn_ack_report(segment) else {
            return slot.conn.handle_segment(segment, now, &mut self.pool);
        };
        let Some(asked) = slot.asked.take() else { return Disposition::Processed };
        let server = slot.key.remote_ip();
        let resolution = if report.acked == 0 { Resolution::DataRefused } else { Resolution::Accepted };
        let outcome = judge(&report, asked, segment);
        slot.outcome = outcome;
        let disposition = slot.conn.handle_syn_ack(segment, resolution, now, &mut self.pool);
        self.learn(server, &report, asked, segment, now);
        if outcome == Outcome::Accepted {
            self.counters.first_flights_taken += 1;
        }
        let id = self.id(index);
        self.trace(Trace::Outcome(id, outcome));
        disposition
    }

    /// Keeps what the SYN-ACK taught about this server, on this network.
    fn learn(
        &mut self,
        server: IpAddr,
        report: &SynAckReport,
        asked: Asked,
        segment: &Segment<'_>,
        now: Instant,
    ) {
        let network = self.config.network;
        let store = &mut self.credentials;
        match segment.options.fast_open() {
            Some(FastOpen::Cookie(form, cookie)) => store.learn_cookie(network, server, form, cookie, now),
            _ if !asked.cookie && !report.retransmitted => {
                store.note_unanswered(network, server, asked.form);
            }
            _ => {}
        }
        if let Some(mss) = segment.options.mss {
            store.learn_mss(network, server, mss);
        }
        if report.carried > 0 && report.retransmitted && report.acked == 0 {
            // The SYN with data was lost, the plain one came through.
            store.note_failure(network, server, now);
        } else if report.carried > 0 && report.acked > 0 {
            store.note_success(network, server);
        }
    }

    /// The connect failed before any answer: what the application is told of its first flight.
    pub(crate) fn no_answer(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index)
            && slot.asked.take().is_some_and(|a| a.cookie)
        {
            slot.outcome = Outcome::Handshake(Reason::Unknown);
        }
    }
}

/// What a SYN-ACK says about the first flight.
fn judge(report: &SynAckReport, asked: Asked, segment: &Segment<'_>) -> Outcome {
    let granted = matches!(segment.options.fast_open(), Some(FastOpen::Cookie(..)));
    let reason = match (asked.cookie, report.carried) {
        (false, _) if granted => Reason::NoCredential,
        // The SYN that asked was lost; the plain one that was answered did not ask.
        (false, _) if report.retransmitted => Reason::SynTimedOut,
        (false, _) => Reason::PeerWithoutFastOpen,
        (true, 0) => Reason::NoData,
        (true, carried) if report.acked >= carried => return Outcome::Accepted,
        (true, _) if report.acked > 0 => Reason::DataPartlyAcknowledged,
        (true, _) if report.retransmitted => Reason::SynTimedOut,
        (true, _) if granted => Reason::StaleOrWrongCredential,
        (true, _) => Reason::DataNotAcknowledged,
    };
    Outcome::Handshake(reason)
}
