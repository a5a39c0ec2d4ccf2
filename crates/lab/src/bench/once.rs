//! A fixed amount of work, so that a profiler sees nothing else and instruction counts repeat.

use super::ours::OpenBy;
use super::smoltcp::Drive;
use super::{BenchError, Budget, World, measure, ours, ours_bulk, smoltcp, smoltcp_bulk, sockets};
use clap::{Args, ValueEnum};

/// What to do.
#[derive(Debug, Args)]
pub struct Once {
    /// Which work.
    #[arg(value_enum)]
    work: Work,
    /// Connections to close, or MB to carry (10^6 bytes).
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    count: u64,
    /// Idle established connections in addition.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    idle: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Connections with Fast Open.
    FastOpen,
    /// Connections with Fast Open, data in the SYN-ACK.
    DataInSynAck,
    /// Connections with an ordinary handshake.
    Handshake,
    /// One connection, many bytes.
    Bulk,
    /// Connections through endpoints, with a task for each.
    Endpoints,
    /// Connections through endpoints, with 64 tasks.
    EndpointsLoops,
    /// smoltcp: connections.
    Smoltcp,
    /// smoltcp, driven by the loop of its documentation: connections.
    SmoltcpDocumented,
    /// smoltcp: one connection, many bytes.
    SmoltcpBulk,
}

/// Does the work. Returns one line about it.
pub fn run(options: &Once) -> Result<String, BenchError> {
    let idle = options.idle as usize;
    let mut world: Box<dyn World> = match options.work {
        Work::FastOpen => Box::new(ours::Connections::new(OpenBy::Cookie, idle)?),
        Work::DataInSynAck => Box::new(ours::Connections::new(OpenBy::CookieAndDataInSynAck, idle)?),
        Work::Handshake => Box::new(ours::Connections::new(OpenBy::Handshake, idle)?),
        Work::Endpoints => sockets::Row::Tasks.world()?,
        Work::EndpointsLoops => sockets::Row::Loops.world()?,
        Work::Smoltcp => Box::new(smoltcp::Connections::new(Drive::Best, idle)?),
        Work::SmoltcpDocumented => Box::new(smoltcp::Connections::new(Drive::Documented, idle)?),
        Work::Bulk => Box::new(ours_bulk::Bulk::new(false)?),
        Work::SmoltcpBulk => Box::new(smoltcp_bulk::Bulk::new()?),
    };
    let bulk = matches!(options.work, Work::Bulk | Work::SmoltcpBulk);
    let units = if bulk { options.count * 1_000_000 } else { options.count };
    let sample = measure(world.as_mut(), Budget::units(units))?;
    let (what, per_second) = if bulk {
        ("bytes", format!("{:.2} Gbit/s", sample.per_second() * 8e-9))
    } else {
        ("connections", format!("{:.0} connections/s", sample.per_second()))
    };
    Ok(format!(
        "{}: {} {what} in {:.3} s of CPU time, {per_second}; {} packets, {:.0} ns each handling, {} allocations",
        world.name(),
        sample.units,
        sample.seconds,
        sample.packets,
        sample.ns_per_packet(),
        sample.allocations
    ))
}
