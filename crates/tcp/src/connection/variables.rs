//! The variables of a connection, under their names in the RFC.

use super::Connection;
use firstflight_wire::SeqNum;

/// The variables that RFC 9293 §3.3.1 and RFC 7323 §4.3 keep for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// SND.UNA: the oldest number that is not acknowledged.
    pub snd_una: SeqNum,
    /// SND.NXT: the number behind the highest one sent.
    pub snd_nxt: SeqNum,
    /// SND.WND: the peer's window, bytes.
    pub snd_wnd: u32,
    /// RCV.NXT: the next number expected.
    pub rcv_nxt: SeqNum,
    /// RCV.WND: how many numbers from there on are accepted.
    pub rcv_wnd: u32,
    /// TS.Recent: the timestamp that is echoed, if timestamps were agreed.
    pub ts_recent: Option<u32>,
}

impl Connection {
    /// The current variables (RFC 9293 §3.10.6, STATUS). Those of the receiving side have no meaning before the
    /// peer's SYN.
    #[must_use]
    pub fn variables(&self) -> Variables {
        Variables {
            snd_una: self.snd.una,
            snd_nxt: self.snd.nxt,
            snd_wnd: self.snd.wnd,
            rcv_nxt: self.rcv.nxt,
            rcv_wnd: self.rcv.edge.distance_from(self.rcv.nxt),
            ts_recent: self.facts.timestamps.then_some(self.rcv.ts_recent),
        }
    }
}
