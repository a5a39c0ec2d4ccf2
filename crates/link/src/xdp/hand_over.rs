//! Which connections of the served ports are the kernel's, where another process has them: before this one took the device, and when it hands
//! that over ([`XdpConfig::hand_over`](super::XdpConfig::hand_over)).

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::thread::sleep;
use std::time::Duration;

use super::attached::Attached;
use super::maps::{ConnectionOwner, Duty, Maps};
use super::{PortHolder, Transport, XdpError, connections};

/// Most connections that are over, of which the program passes packets. Others need the room.
const MOST_ENDED: usize = 1 << 16;
/// Both ends of a connection, ours first.
pub(super) type FourTuple = (SocketAddr, SocketAddr);

/// The connections of the kernel that the program passes because they began before it.
#[derive(Default)]
pub(super) struct PassedConnections {
    known: HashSet<FourTuple>,
    /// Those that the kernel did not show at the last look. A list that goes on after a pause may miss one.
    missed: HashSet<FourTuple>,
    /// The kernel was asked a second time: it has had all of them. Others that it has come another way.
    is_whole: bool,
    /// The device is handed over itself.
    ends: bool,
}

impl PassedConnections {
    pub(super) fn new(known: HashSet<FourTuple>) -> Self {
        Self { known, ..Self::default() }
    }
}

impl Attached {
    /// These are the engine's connections, which it keeps when others are passed. One whose client has begun another one in its place, which
    /// was passed, stays that.
    /// Errors: the first one. It goes on with the others.
    pub(super) fn keep(&self, four_tuples: &[FourTuple]) -> io::Result<()> {
        let Some(maps) = self.maps() else { return Ok(()) };
        // From here on the epoch stays.
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).ends = true;
        let is_passing = maps.has_duty(Duty::PassNew) || maps.has_duty(Duty::PassOthers);
        let mut result = Ok(());
        for (local, remote) in four_tuples {
            let newer = if is_passing { maps.has_passed(*local, *remote) } else { Ok(false) };
            let kept = match newer {
                Ok(true) => Ok(()),
                Ok(false) => maps.own(*local, *remote, ConnectionOwner::Engine),
                Err(error) => Err(error),
            };
            result = result.and(kept);
        }
        result
    }

    pub(super) fn hands_over(&self) -> bool {
        self.maps().is_some_and(|maps| maps.passing().is_some())
    }

    /// The engine needs no packets of these any more. One that stays in the map because of an error does no harm but to its client.
    pub(super) fn let_go(&self, four_tuples: &[FourTuple]) {
        if let Some(maps) = self.maps() {
            four_tuples.iter().for_each(|(local, remote)| drop(maps.disown(*local, *remote)));
        }
    }

    /// New connections are the kernel's from now on, and go to the other sockets that share the ports. False if that was not prepared
    /// ([`XdpConfig::hand_over`]).
    pub(super) fn pass_new(&self) -> bool {
        let Some(maps) = self.maps() else { return false };
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).ends = true;
        maps.set_duty(Duty::PassNew);
        let passes = maps.has_duty(Duty::PassNew);
        if passes {
            self.holders.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        passes
    }

    /// All connections are the kernel's from now on, but those that are kept.
    pub(super) fn pass_others(&self) {
        if let Some(maps) = self.maps() {
            maps.change_duty(Duty::PassNew, Duty::PassOthers);
        }
    }

    #[cfg(test)]
    pub(super) fn has_duty(&self, duty: Duty) -> bool {
        self.maps().is_some_and(|maps| maps.has_duty(duty))
    }

    /// Looks whether the connections of the kernel, which the program passes, are over. When all are, it passes none any more, and this need
    /// not be asked again. The first look must not come before the kernel has all of them.
    pub(super) fn has_settled(&self) -> bool {
        let Some(maps) = self.maps() else { return true };
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = maps.has_duty(Duty::PassKnown) || maps.has_duty(Duty::PassKernels);
        if passed.ends || !passes {
            return true;
        }
        let Ok((live, ended)) = self.kernels_now() else { return false };
        let mut present: HashSet<_> = ended.into_iter().filter(|it| passed.known.contains(it)).collect();
        present.extend(live.into_iter().filter(|it| !passed.is_whole || passed.known.contains(it)));
        let missed: HashSet<_> = passed.known.difference(&present).copied().collect();
        let gone: Vec<_> = missed.intersection(&passed.missed).copied().collect();
        passed.missed = missed;
        for (local, remote) in present {
            if passed.known.contains(&(local, remote)) {
                continue;
            }
            if maps.own(local, remote, ConnectionOwner::Kernel).is_err() {
                return false;
            }
            passed.known.insert((local, remote));
        }
        if !passed.is_whole {
            // From here on a SYN that was passed in the beginning makes no connection the kernel's.
            maps.change_duty(Duty::PassKnown, Duty::PassKernels);
            passed.is_whole = maps.forget_passed().is_ok();
        }
        if !self.let_kernels_go(maps, &mut passed, &gone) {
            return false;
        }
        let is_over = passed.is_whole && passed.known.is_empty();
        if is_over {
            maps.change_duty(Duty::PassKernels, Duty::Take);
        }
        is_over
    }

    /// These connections of the kernel are over: their clients may use the ports again, for connections to the engine. False if
    /// it is not known whether one has done so in this moment.
    fn let_kernels_go(&self, maps: &Maps, passed: &mut PassedConnections, gone: &[FourTuple]) -> bool {
        for (local, remote) in gone {
            let _ = maps.disown(*local, *remote);
            passed.known.remove(&(*local, *remote));
        }
        if gone.is_empty() {
            return true;
        }
        let Ok((live, _)) = self.kernels_now() else { return false };
        for (local, remote) in live.into_iter().filter(|it| gone.contains(it)) {
            let _ = maps.own(local, remote, ConnectionOwner::Kernel);
            passed.known.insert((local, remote));
        }
        true
    }

    /// The kernel's connections of the served ports, without those of this host's own programs, which do not come by the device: those that
    /// begin or are open, and those that are over.
    fn kernels_now(&self) -> io::Result<(Vec<FourTuple>, Vec<FourTuple>)> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut live, mut ended) = (Vec::new(), Vec::new());
        for (at, ..) in served.iter().filter(|(_, of, _)| *of == Transport::Tcp) {
            let (these, those) = connections::peers(*at)?;
            for (all, some) in [(&mut live, these), (&mut ended, those)] {
                let others =
                    some.into_iter().filter(|peer| served.iter().all(|(at, ..)| at.ip() != peer.ip()));
                all.extend(others.map(|peer| (*at, peer)));
            }
        }
        Ok((live, ended))
    }
}

/// Lets the program pass the connections that the kernel has, and take others.
pub(super) fn pass_known(
    maps: &Maps,
    holders: &[PortHolder],
    on_their_way: Duration,
) -> Result<HashSet<FourTuple>, XdpError> {
    let mut known = HashSet::new();
    let mut look = |most_ended: usize| {
        for holder in holders {
            let (live, ended) = connections::peers(holder.at())?;
            // If there is no room for all that are over, the engine answers the others with RST: their data has arrived.
            for peer in live {
                if known.insert((holder.at(), peer)) {
                    maps.own(holder.at(), peer, ConnectionOwner::Kernel)?;
                }
            }
            for peer in ended.into_iter().take(most_ended / holders.len()) {
                if maps.own(holder.at(), peer, ConnectionOwner::Kernel).is_ok() {
                    known.insert((holder.at(), peer));
                }
            }
        }
        Ok(())
    };
    // What the kernel lets in from now on, the program sees. Before, sock_diag does.
    sleep(on_their_way);
    look(MOST_ENDED).map_err(XdpError::at("look for connections"))?;
    maps.set_duty(Duty::PassKnown);
    // Those that a SYN cookie began meanwhile.
    look(0).map_err(XdpError::at("look for connections"))?;
    Ok(known)
}
