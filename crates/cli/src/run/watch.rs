//! Signals that are for the command.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use std::io;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals that end, stop or tell a command something.
pub struct Signals {
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    first: unix::Signal,
    second: unix::Signal,
}

impl Signals {
    /// They no longer end this process.
    /// Errors: when the system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            first: signal(SignalKind::user_defined1())?,
            second: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for one.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.quit.recv() => Signal::SIGQUIT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
            _ = self.first.recv() => Signal::SIGUSR1,
            _ = self.second.recv() => Signal::SIGUSR2,
        }
    }
}

/// Gives the command a signal. Those that a terminal sends reach it without our help, because it is in our process group.
pub fn pass_on(child: Option<u32>, signal: Signal) {
    let by_terminal = matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && is_in_foreground();
    let Some(id) = child.and_then(|id| i32::try_from(id).ok()).filter(|_| !by_terminal) else { return };
    // It may have ended.
    let _ = kill(Pid::from_raw(id), signal);
}

/// Whether a terminal's keys send signals to this process.
fn is_in_foreground() -> bool {
    // Standard input may be a pipe.
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}
