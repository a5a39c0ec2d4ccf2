//! The model's data: a connection's variables, a segment, and the allowed answers.

/// The states of RFC 9293 §3.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// A segment that arrives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arriving {
    pub seq: u32,
    pub ack: Option<u32>,
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    /// Whether a SYN was trimmed off.
    pub was_syn: bool,
    /// The window field of the header.
    pub window: u16,
    /// Bytes of text.
    pub payload: u32,
    /// TSval.
    pub stamp: Option<u32>,
    /// The shift that a SYN offers.
    pub scale: Option<u8>,
}

impl Arriving {
    /// SEG.LEN.
    pub fn len(&self) -> u32 {
        self.payload + u32::from(self.syn) + u32::from(self.fin)
    }
}

/// The variables of a connection (§3.3.1, RFC 5961 §5.2, RFC 7323 §4.3).
#[derive(Debug, Clone)]
pub struct Tcb {
    pub state: State,
    /// Whether there is a listener. Without a connection the state is then LISTEN instead of CLOSED.
    pub passive: bool,
    /// Whether SYN-RECEIVED was entered from SYN-SENT.
    pub simultaneous: bool,
    /// Whether, in SYN-SENT, a segment of an earlier connection was answered.
    pub met_old: bool,
    /// The options that a SYN requests or grants.
    pub wants_timestamps: bool,
    pub wants_scale: bool,
    /// The window in our SYN.
    pub offered: u32,
    pub iss: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub snd_wnd: u32,
    pub snd_wl1: u32,
    pub snd_wl2: u32,
    pub max_wnd: u32,
    pub snd_scale: u8,
    /// Whether the peer offered a shift, so that ours also applies.
    pub peer_scales: bool,
    /// Whether the application closed; and the number of our FIN.
    pub close_queued: bool,
    pub fin_sent: Option<u32>,
    pub irs: u32,
    pub rcv_nxt: u32,
    pub rcv_wnd: u32,
    pub last_ack_sent: u32,
    /// Text behind a gap, and the peer's FIN there.
    pub held: Vec<(u32, u32)>,
    pub fin_held: Option<u32>,
    pub timestamps: bool,
    /// [`require_timestamps`](firstflight_tcp::Config::require_timestamps).
    pub requires_timestamps: bool,
    pub ts_recent: u32,
    pub ts_recent_at: u64,
    pub time_wait_since: u64,
    /// The value of RCV.NXT with which a SYN in TIME-WAIT was answered.
    pub challenged: Option<u32>,
    /// Whether a RST answered that.
    pub reset_seen: bool,
}

impl Tcb {
    /// Starts without a connection.
    pub fn new(passive: bool, wants_timestamps: bool, wants_scale: bool, offered: u32) -> Self {
        Self {
            state: if passive { State::Listen } else { State::Closed },
            passive,
            simultaneous: false,
            met_old: false,
            wants_timestamps,
            wants_scale,
            offered,
            iss: 0,
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            max_wnd: 0,
            snd_scale: 0,
            peer_scales: false,
            close_queued: false,
            fin_sent: None,
            irs: 0,
            rcv_nxt: 0,
            rcv_wnd: 0,
            last_ack_sent: 0,
            held: Vec::new(),
            fin_held: None,
            timestamps: false,
            requires_timestamps: false,
            ts_recent: 0,
            ts_recent_at: 0,
            time_wait_since: 0,
            challenged: None,
            reset_seen: false,
        }
    }

    /// Whether the peer's SYN was seen and the connection is not over.
    pub fn synchronized(&self) -> bool {
        !matches!(self.state, State::Closed | State::Listen | State::SynSent | State::TimeWait)
    }

    /// Removes the connection.
    pub fn gone(&mut self) {
        self.state = if self.passive { State::Listen } else { State::Closed };
    }
}

/// The correct answers to a segment. At least one of them must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// No answer.
    pub nothing: bool,
    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`, or segments with text that contain the same.
    pub ack: bool,
    /// The ACK may be left out if there were many (RFC 5961 §7).
    pub throttled: bool,
    /// The ACK may be delayed by less than half a second (RFC 9293 §3.8.6.3).
    pub later: bool,
    /// `<SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>`.
    pub syn_ack: bool,
    /// A RST with this number, and this ACK field if it has one.
    pub reset: Option<(u32, Option<u32>)>,
    /// `<SEQ=ISS><CTL=SYN>` must follow the RST.
    pub syn_again: bool,
}

impl Allowed {
    pub fn nothing() -> Self {
        Self { nothing: true, ..Self::default() }
    }

    pub fn ack() -> Self {
        Self { ack: true, ..Self::default() }
    }

    pub fn ack_later() -> Self {
        Self { ack: true, nothing: true, later: true, ..Self::default() }
    }

    pub fn challenge() -> Self {
        Self { ack: true, throttled: true, ..Self::default() }
    }

    pub fn syn_ack() -> Self {
        Self { syn_ack: true, ..Self::default() }
    }

    pub fn reset(seq: u32, ack: Option<u32>) -> Self {
        Self { reset: Some((seq, ack)), ..Self::default() }
    }

    pub fn or_nothing(self) -> Self {
        Self { nothing: true, ..self }
    }

    pub fn or_ack(self) -> Self {
        Self { ack: true, ..self }
    }

    pub fn and_syn_again(self) -> Self {
        Self { syn_again: true, ..self }
    }

    pub fn or_syn_ack(self) -> Self {
        Self { syn_ack: true, ..self }
    }
}
