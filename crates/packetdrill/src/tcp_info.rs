//! `struct tcp_info`, as bytes.

use crate::socket::Kind;
use crate::world::World;
use firstflight_stack::{ConnectionInfo, StateName};
use firstflight_tcp::{CongestionState, Connection};
use libc::c_int;
use std::time::Duration;

/// The slow start threshold of a connection that was never in recovery.
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Size of the structure that is enough for any kernel, bytes. Callers read the part that they know.
const SIZE: usize = 512;

/// `tcpi_options`.
mod option {
    pub(super) const TIMESTAMPS: u8 = 1;
    pub(super) const SACK: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 4;
    pub(super) const SYN_DATA: u8 = 32;
}

/// The kernel's number of a state.
const fn state(name: StateName) -> u8 {
    match name {
        StateName::Established => 1,
        StateName::SynSent => 2,
        StateName::SynRcvd => 3,
        StateName::FinWait1 => 4,
        StateName::FinWait2 => 5,
        StateName::TimeWait => 6,
        StateName::Closed => 7,
        StateName::CloseWait => 8,
        StateName::LastAck => 9,
        StateName::Listen => 10,
        StateName::Closing => 11,
    }
}

/// The kernel's number of a congestion control state.
const fn congestion_state(state: CongestionState) -> u8 {
    match state {
        CongestionState::Open => 0,
        CongestionState::Disorder => 1,
        CongestionState::Reducing => 2,
        CongestionState::Recovery => 3,
        CongestionState::Loss => 4,
    }
}

fn micros(time: Option<Duration>) -> u32 {
    time.map_or(0, |time| time.as_micros().min(u128::from(u32::MAX)) as u32)
}

/// The structure while it is written, from the first field on.
#[derive(Default)]
struct Info(Vec<u8>);

impl Info {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_ne_bytes()));
    }

    /// The complete structure, padded for newer kernels.
    fn padded(mut self) -> Vec<u8> {
        self.0.resize(SIZE, 0);
        self.0
    }

    fn longs(&mut self, longs: &[u64]) {
        longs.iter().for_each(|long| self.0.extend_from_slice(&long.to_ne_bytes()));
    }
}

impl World {
    /// The state of a socket in the kernel's layout.
    pub(crate) fn tcp_info(&self, fd: c_int) -> Vec<u8> {
        let Ok(socket) = self.socket(fd) else { return Vec::new() };
        let connection = socket.connection();
        let known = connection.and_then(|id| Some((self.machine(id)?, self.stack.info(id)?)));
        let since = |at: Option<u64>| at.map_or(0, |at| (self.micros().saturating_sub(at) / 1000) as u32);
        match known {
            Some((machine, info)) => {
                let rode = info.outcome.is_accepted() && (socket.client || info.totals.early > 0);
                let times = socket.times.until(self.micros());
                filled(machine, &info, since(socket.heard_at), rode, times)
            }
            None => {
                let listens = matches!(socket.kind, Kind::Listener { .. });
                let mut info = Info::default();
                info.bytes(&[if listens { 10 } else { 7 }, 0, 0, 0, 0, 0, 0, 0]);
                info.padded()
            }
        }
    }
}

/// `heard` is the time since data last arrived, ms. `rode` says whether it arrived in the SYN.
fn filled(
    machine: &Connection,
    known: &ConnectionInfo,
    heard: u32,
    rode: bool,
    [busy, window, buffer]: [u64; 3],
) -> Vec<u8> {
    let facts = machine.facts();
    let mut options = 0;
    for (set, bit) in [
        (facts.timestamps, option::TIMESTAMPS),
        (facts.sack, option::SACK),
        (facts.scaled, option::WINDOW_SCALE),
        (rode, option::SYN_DATA),
    ] {
        options |= if set { bit } else { 0 };
    }
    let mss = u32::from(machine.mss().saturating_sub(if facts.timestamps { 12 } else { 0 })).max(1);
    let scales = facts.send_scale | facts.receive_scale << 4;
    let rtt = machine.rtt();
    // The kernel also counts the SYN.
    let syn = matches!(machine.state(), StateName::SynSent | StateName::SynRcvd);
    let unacked = facts.segments + u32::from(syn);
    let segments = |bytes: u32| bytes / u32::from(machine.mss().max(1));
    // In recovery the window follows the data under way, whose segments are counted without options.
    let recovering = matches!(facts.congestion, CongestionState::Recovery | CongestionState::Reducing);
    let cwnd = if recovering { facts.window / mss } else { segments(facts.window) };
    let threshold = if facts.threshold == u32::MAX { INFINITE_SSTHRESH } else { segments(facts.threshold) };
    let mut info = Info::default();
    info.bytes(&[
        state(machine.state()),
        congestion_state(facts.congestion),
        machine.timeouts(),
        facts.probes,
        machine.timeouts(),
        options,
        scales,
        0,
    ]);
    // rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets
    info.words(&[
        micros(Some(facts.rto)),
        40_000,
        mss,
        facts.peer_segment,
        unacked,
        facts.sacked,
        facts.lost.div_ceil(mss),
        facts.again.div_ceil(mss),
        0,
    ]);
    // last_data_sent, last_ack_sent, last_data_recv, last_ack_recv
    info.words(&[0, 0, heard, heard]);
    // pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering, rcv_rtt, rcv_space, total_retrans
    let advertised = u32::from(machine.config().largest_segment());
    let (srtt, rttvar) = (micros(rtt.map(|r| r.0)), micros(rtt.map(|r| r.1)));
    info.words(&[advertised + 40, 0, srtt, rttvar, threshold, cwnd, advertised, facts.reordering, 0, 0]);
    info.words(&[machine.totals().retransmits]);
    // pacing_rate, max_pacing_rate, bytes_acked, bytes_received
    info.longs(&[0, 0, machine.totals().bytes_acked, machine.totals().bytes_received]);
    // segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out
    info.words(&[0, 0, machine.unsent() as u32, micros(facts.min_rtt), 0, 0]);
    // delivery_rate, busy_time, rwnd_limited, sndbuf_limited
    info.longs(&[0, busy, window, buffer]);
    // delivered, delivered_ce
    info.words(&[known.totals.delivered, 0]);
    // bytes_sent, bytes_retrans
    info.longs(&[0, 0]);
    // dsack_dups, reord_seen, rcv_ooopack, snd_wnd, rcv_wnd, rehash
    info.words(&[0, 0, 0, facts.peer_window, 0, 0]);
    info.padded()
}
