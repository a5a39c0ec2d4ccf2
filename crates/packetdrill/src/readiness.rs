//! `poll` and `epoll`: what a socket is ready for, in Linux' terms.

use crate::settings::CLIENT;
use crate::socket::{Kind, Socket};
use crate::world::{Descriptor, World};
use firstflight_stack::StateName;
use libc::{
    EEXIST, EINVAL, ENOENT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, POLLERR,
    POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, c_int, c_short,
};
use std::collections::BTreeMap;

/// The events that are awaited on one descriptor.
#[derive(Debug, Clone, Copy)]
struct Interest {
    events: u32,
    data: u64,
    /// With EPOLLET: the edges that were already reported.
    seen: [u64; 2],
    /// With EPOLLONESHOT: the event was reported once and no longer counts.
    spent: bool,
}

impl Interest {
    /// Whether an awaited event has a new edge since the last check. `edges` are the socket's counts.
    fn has_edge(&self, edges: [u64; 2]) -> bool {
        let [inward, outward] = [0, 1].map(|i| self.seen.get(i) != edges.get(i));
        let reads = self.events & (POLLIN | POLLRDHUP | POLLRDNORM) as u32 != 0;
        let writes = self.events & (POLLOUT | POLLWRNORM) as u32 != 0;
        inward && reads || outward && writes || self.seen == UNSEEN
    }
}

/// A set of descriptors.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    interests: BTreeMap<c_int, Interest>,
}

impl Epoll {
    /// Removes a descriptor that was closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.interests.remove(&fd);
    }
}

/// The value before the first edge.
const UNSEEN: [u64; 2] = [u64::MAX; 2];

impl World {
    /// What a socket is ready for.
    fn readiness(&mut self, fd: c_int) -> c_short {
        if self.settle(fd).is_err() {
            return POLLNVAL;
        }
        self.collect_reports(fd);
        let Ok(socket) = self.socket(fd) else { return POLLNVAL };
        let mut mask = match socket.kind {
            Kind::Listener { id, .. } => {
                let waiting = self.stack.queues(id).is_some_and(|(accept, _)| accept > 0);
                return if waiting { POLLIN | POLLRDNORM } else { 0 };
            }
            Kind::Fresh => POLLHUP | POLLOUT | POLLWRNORM,
            Kind::Deferred { .. } if self.sysctl.fast_open & CLIENT != 0 => POLLOUT | POLLWRNORM,
            Kind::Deferred { .. } => 0,
            Kind::Connection { .. } => self.connection_readiness(socket),
        };
        if socket.error.is_some() || !socket.reports.is_empty() {
            mask |= POLLERR;
        }
        if mask & POLLOUT == 0
            && let Ok(socket) = self.socket_mut(fd)
        {
            socket.wants_room = true;
        }
        mask
    }

    fn connection_readiness(&self, socket: &Socket) -> c_short {
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else {
            return POLLHUP | POLLIN | POLLRDNORM | POLLRDHUP | POLLOUT | POLLWRNORM;
        };
        let state = machine.state();
        let over = matches!(state, StateName::Closed);
        let no_more_in = socket.read_closed || machine.peer_closed() || over;
        let no_more_out = socket.write_closed || over;
        let mut mask = 0;
        if no_more_in && no_more_out {
            mask |= POLLHUP;
        }
        if no_more_in {
            mask |= POLLIN | POLLRDNORM | POLLRDHUP;
        }
        if matches!(state, StateName::SynSent) || (state == StateName::SynRcvd && !machine.is_early()) {
            return mask;
        }
        if machine.readable() > 0 && machine.readable() >= socket.options.receive_lowat.unwrap_or(1) as usize
        {
            mask |= POLLIN | POLLRDNORM;
        }
        let writable = self.is_writable(socket);
        if no_more_out || writable {
            mask |= POLLOUT | POLLWRNORM;
        }
        mask
    }

    /// Fills in the events that the descriptors are ready for; `None` if none is ready.
    pub(crate) fn poll(&mut self, fds: &mut [libc::pollfd]) -> Option<c_int> {
        let mut ready = 0;
        for entry in fds.iter_mut() {
            entry.revents = match entry.fd {
                ..0 => 0,
                fd => self.readiness(fd) & (entry.events | POLLERR | POLLHUP | POLLNVAL),
            };
            ready += c_int::from(entry.revents != 0);
        }
        (ready > 0).then_some(ready)
    }

    /// `epoll_create`.
    pub(crate) fn make_epoll(&mut self, fd: c_int) {
        self.insert(fd, Descriptor::Epoll(Epoll::default()));
    }

    /// `epoll_ctl`.
    pub(crate) fn epoll_control(
        &mut self,
        epoll: c_int,
        operation: c_int,
        fd: c_int,
        event: Option<(u32, u64)>,
    ) -> Result<(), c_int> {
        self.socket(fd)?;
        let set = self.epoll_mut(epoll)?;
        let known = set.interests.contains_key(&fd);
        match operation {
            EPOLL_CTL_ADD if known => return Err(EEXIST),
            EPOLL_CTL_MOD | EPOLL_CTL_DEL if !known => return Err(ENOENT),
            EPOLL_CTL_DEL => {
                set.interests.remove(&fd);
            }
            EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
                let (events, data) = event.ok_or(EINVAL)?;
                set.interests.insert(fd, Interest { events, data, seen: UNSEEN, spent: false });
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    /// Up to `most` events; `None` if there is none.
    /// Errors: if the descriptor is not an epoll set.
    pub(crate) fn epoll_events(
        &mut self,
        epoll: c_int,
        most: usize,
    ) -> Result<Option<Vec<(u32, u64)>>, c_int> {
        let interests: Vec<(c_int, Interest)> =
            self.epoll_mut(epoll)?.interests.iter().map(|(fd, interest)| (*fd, *interest)).collect();
        let mut events = Vec::new();
        for (fd, mut interest) in interests {
            if interest.spent || events.len() >= most {
                continue;
            }
            let edges = self.socket(fd).map(|socket| socket.edges).unwrap_or_default();
            // Without a new edge the socket is not checked.
            if interest.events & EPOLLET as u32 != 0 && !interest.has_edge(edges) {
                continue;
            }
            let wanted = interest.events | (POLLERR | POLLHUP) as u32;
            let ready = self.readiness(fd) as u16 as u32 & wanted;
            if ready == 0 {
                continue;
            }
            interest.seen = edges;
            interest.spent = interest.events & EPOLLONESHOT as u32 != 0;
            events.push((ready, interest.data));
            self.epoll_mut(epoll)?.interests.insert(fd, interest);
        }
        Ok((!events.is_empty()).then_some(events))
    }
}
