//! The error queue of a socket (`MSG_ERRQUEUE`), in which SO_TIMESTAMPING reports when data left and was acknowledged.

use crate::address;
use crate::socket::Socket;
use crate::world::World;
use firstflight_stack::Milestone;
use libc::{
    EAGAIN, EINVAL, ENOMSG, EOPNOTSUPP, SO_EE_ORIGIN_TIMESTAMPING, SOF_TIMESTAMPING_OPT_ID,
    SOF_TIMESTAMPING_OPT_ID_TCP, SOF_TIMESTAMPING_OPT_TSONLY, SOF_TIMESTAMPING_SOFTWARE,
    SOF_TIMESTAMPING_TX_ACK, SOF_TIMESTAMPING_TX_SCHED, SOF_TIMESTAMPING_TX_SOFTWARE, c_int,
};
use std::net::{Ipv4Addr, SocketAddr};

/// `SCM_TSTAMP_*`: a segment left the device, was given to its queue, was acknowledged.
const SENT: u32 = 0;
const QUEUED: u32 = 1;
const ACKNOWLEDGED: u32 = 2;

/// SO_TIMESTAMPING of a socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamping {
    flags: u32,
    /// Bytes of the stream before the first one that counts.
    base: u64,
}

/// A report in the error queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    /// When it happened, ns; 0 if the socket does not want it.
    nanos: u64,
    /// What happened: `SCM_TSTAMP_*`.
    what: u32,
    /// The number of the byte.
    key: u32,
    /// The packet's data is cut off. (It is not kept.)
    pub cut: bool,
}

impl Stamping {
    fn wants(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether times of what is sent are wanted.
    fn is_on(&self) -> bool {
        self.wants(SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_ACK)
    }
}

impl Report {
    /// `struct scm_timestamping`: three times, of which the first is the software's.
    pub(crate) fn times(&self) -> Vec<u8> {
        let [seconds, nanos] = [self.nanos / 1_000_000_000, self.nanos % 1_000_000_000];
        [seconds, nanos, 0, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// `struct sock_extended_err`, and behind it the address of a sender, who is nobody.
    pub(crate) fn extended(&self, v6: bool) -> Vec<u8> {
        let mut bytes = ENOMSG.to_ne_bytes().to_vec();
        bytes.extend([SO_EE_ORIGIN_TIMESTAMPING, 0, 0, 0]);
        bytes.extend([self.what, self.key].iter().flat_map(|word| word.to_ne_bytes()));
        let nobody = address::emit(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), v6);
        bytes.extend(std::iter::repeat_n(0, nobody.len()));
        bytes
    }
}

impl World {
    /// SO_TIMESTAMPING.
    pub(crate) fn set_stamping(&mut self, fd: c_int, flags: u32) -> Result<(), c_int> {
        let known = SOF_TIMESTAMPING_TX_SCHED
            | SOF_TIMESTAMPING_TX_SOFTWARE
            | SOF_TIMESTAMPING_TX_ACK
            | SOF_TIMESTAMPING_SOFTWARE
            | SOF_TIMESTAMPING_OPT_ID
            | SOF_TIMESTAMPING_OPT_ID_TCP
            | SOF_TIMESTAMPING_OPT_TSONLY;
        if flags & !known != 0 {
            return Err(EOPNOTSUPP);
        }
        let mut stamping = Stamping { flags, base: 0 };
        let machine = self.socket(fd)?.connection().and_then(|id| self.machine(id));
        if stamping.wants(SOF_TIMESTAMPING_OPT_ID) {
            let machine = machine.ok_or(EINVAL)?;
            let whole = stamping.wants(SOF_TIMESTAMPING_OPT_ID_TCP);
            let waiting = if whole { machine.unacknowledged() } else { 0 };
            stamping.base = machine.totals().bytes_acked + waiting as u64;
        }
        self.socket_mut(fd)?.stamping = stamping;
        Ok(())
    }

    /// A call has written data: follows its last byte.
    pub(crate) fn follow_write(&mut self, fd: c_int) {
        let now = self.now();
        if let Ok(socket) = self.socket(fd)
            && socket.stamping.is_on()
            && let Some(id) = socket.connection()
        {
            // An application that does not read its reports gets no more of them.
            self.stack.stamp(id, now);
        }
    }

    /// Moves what the stack has to report into the socket's queue.
    pub(crate) fn collect_reports(&mut self, fd: c_int) {
        let Ok(Some(id)) = self.socket(fd).map(Socket::connection) else { return };
        while let Some(stamp) = self.stack.poll_stamp(id) {
            let Ok(socket) = self.socket_mut(fd) else { return };
            let stamping = socket.stamping;
            let nanos = if stamping.wants(SOF_TIMESTAMPING_SOFTWARE) { stamp.at.as_nanos() } else { 0 };
            let numbered = stamping.wants(SOF_TIMESTAMPING_OPT_ID);
            let key = if numbered { stamp.offset.wrapping_sub(stamping.base + 1) as u32 } else { 0 };
            // The stack has no queue in front of its device.
            let happened: &[_] = match stamp.milestone {
                Milestone::Sent => {
                    &[(SOF_TIMESTAMPING_TX_SCHED, QUEUED), (SOF_TIMESTAMPING_TX_SOFTWARE, SENT)]
                }
                Milestone::Acknowledged => &[(SOF_TIMESTAMPING_TX_ACK, ACKNOWLEDGED)],
            };
            let cut = !stamping.wants(SOF_TIMESTAMPING_OPT_TSONLY);
            let wanted = happened.iter().filter(|(flag, _)| stamping.wants(*flag));
            socket.reports.extend(wanted.map(|&(_, what)| Report { nanos, what, key, cut }));
        }
    }

    /// `recvmsg` with MSG_ERRQUEUE, which never blocks: the oldest report, and whether the socket is an `AF_INET6` one.
    pub(crate) fn take_report(&mut self, fd: c_int) -> Result<(Report, bool), c_int> {
        self.collect_reports(fd);
        let socket = self.socket_mut(fd)?;
        Ok((socket.reports.pop_front().ok_or(EAGAIN)?, socket.v6))
    }
}
