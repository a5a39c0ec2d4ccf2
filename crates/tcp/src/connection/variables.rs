//! The variables of a connection, by their names in the RFC.

use super::Connection;
use firstflight_wire::SeqNum;

/// What RFC 9293 §3.3.1 and RFC 7323 §4.3 remember of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// SND.UNA: the oldest number that is not acknowledged.
    pub snd_una: SeqNum,
    /// SND.NXT: behind the highest number sent.
    pub snd_nxt: SeqNum,
    /// SND.WND: the peer's window, bytes.
    pub snd_wnd: u32,
    /// RCV.NXT: the next number expected.
    pub rcv_nxt: SeqNum,
    /// RCV.WND: the numbers from there on that are taken.
    pub rcv_wnd: u32,
    /// TS.Recent: the timestamp that is echoed, if timestamps were agreed.
    pub ts_recent: Option<u32>,
}

impl Connection {
    /// Its variables now (RFC 9293 §3.10.6, STATUS). Those of the receiving side mean nothing before the peer's
    /// SYN.
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
