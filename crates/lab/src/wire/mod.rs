//! A wire between two network namespaces that treats packets as the simulator's paths do, in real time.

pub mod accuracy;
mod carry;
mod flow;
mod lateness;
mod report;
mod settings;
#[cfg(test)]
mod tests;

use carry::{Carrier, Ending};
use clap::Args;
use firstflight_link::path::{Duplex, PathError};
use firstflight_link::{TunDevice, TunError};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use settings::{DeviceEnd, Impairments};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// Joins two network namespaces with a wire that has a round-trip time, and optionally loss and other impairments.
///
/// In each namespace it creates a TUN device, which is down and has no address: add one with
/// `ip -n NETNS addr add … dev DEV` and bring it up with `ip -n NETNS link set DEV up`. TUN devices carry IP packets,
/// no Ethernet, and cannot be put into a bridge. When the wire ends, by SIGINT or SIGTERM or because one of the
/// namespaces was deleted, both devices are removed. Prints a line that begins with `ready` when packets pass, and
/// figures at the end.
///
/// One process is one wire, with one thread that sleeps while there is nothing to carry. On a busy machine start it
/// with `chrt -f 10`, because packets are late when it cannot run.
#[derive(Debug, Args)]
pub struct Wire {
    /// One end: the namespace's name, or the path of its file, and the device to create there; `:DEV` is this
    /// namespace
    #[arg(long, value_name = "NETNS:DEV")]
    a: DeviceEnd,
    /// The other end
    #[arg(long, value_name = "NETNS:DEV")]
    b: DeviceEnd,
    #[command(flatten)]
    impairments: Impairments,
    /// Seed of all random events
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print JSON at the end
    #[arg(long)]
    json: bool,
}

/// Why a wire cannot start, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A namespace cannot be opened. The caller is at fault.
    #[error("no network namespace for {0}: {1}; `ip netns list` shows those that have names")]
    Namespace(DeviceEnd, io::Error),
    /// A device cannot be created.
    #[error("{0}: {1}")]
    Device(DeviceEnd, TunError),
    /// The settings are not valid. The caller is at fault.
    #[error("{0}")]
    Path(PathError),
    /// The system refused a step.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A measurement has no result.
    #[error("nothing measured: {0}")]
    Measurement(String),
}

impl WireError {
    fn system<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System(step, error.into())
    }
}

/// Carries packets until a signal arrives or a device is gone. Returns the text to print.
pub fn run(options: &Wire) -> Result<String, WireError> {
    let (up, down) = options.impairments.paths();
    let paths = Duplex::new(up, down, options.seed).map_err(WireError::Path)?;
    // Block the signals before the devices exist, so that a signal from now on ends the wire in order.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().map_err(WireError::system("block signals"))?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)
        .map_err(WireError::system("wait for signals"))?;

    let devices = [device(&options.a, &options.impairments)?, device(&options.b, &options.impairments)?];
    let mut carrier = Carrier::new(devices, paths)?;
    announce(options).map_err(WireError::system("print"))?;
    let ending = carrier.run(stop.as_fd())?;
    if let Ending::Gone(side) = ending {
        crate::output::complain(&format_args!("the device of {} is gone", [&options.a, &options.b][side]));
    }
    let figures = carrier.figures()?;
    Ok(if options.json { report::json(&figures) } else { report::text(&figures) })
}

fn device(end: &DeviceEnd, impairments: &Impairments) -> Result<TunDevice, WireError> {
    let namespace = end.open().map_err(|error| WireError::Namespace(end.clone(), error))?;
    let namespace = namespace.as_ref().map(AsFd::as_fd);
    TunDevice::create(&end.device, impairments.mtu, namespace)
        .map_err(|error| WireError::Device(end.clone(), error))
}

fn announce(options: &Wire) -> io::Result<()> {
    let rtt: Duration = options.impairments.rtt;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "ready {} {} rtt {} seed {}",
        options.a,
        options.b,
        humantime::format_duration(rtt),
        options.seed
    )?;
    out.flush()
}
