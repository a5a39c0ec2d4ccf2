//! The accuracy of a wire: its delay and its rate, compared with the settings.

use super::WireError;
use super::carry::Carrier;
use super::flow::{DEVICE, Flow, PACKET, WireArrival};
use super::settings::DeviceEnd;
use crate::figure::Figure;
use crate::namespaces::UnnamedNamespace;
use clap::Args;
use firstflight_link::TunDevice;
use firstflight_link::path::{Duplex, PathConfig};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::gettid;
use serde_json::json;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How late packets are on `wire`, and how exact its rate is.
///
/// Sends packets of 200 bytes from one network namespace to another, by the kernel's UDP, and compares the time before
/// each was sent with the time at which the other kernel got it. The rate is measured with a quarter more packets than
/// it lets through. Needs root. Busy machines give larger figures: it is their scheduler that is late, see --realtime.
#[derive(Debug, Args)]
pub struct WireAccuracy {
    /// Packets a second; several numbers with commas
    #[arg(long, value_name = "N", default_value = "1000,10000,100000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    packets: Vec<u32>,
    /// One-way delay
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// Duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Run the wire with real-time priority, as with `chrt -f 10`
    #[arg(long)]
    realtime: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the table.
#[derive(Debug, PartialEq)]
pub struct Line {
    packets: u32,
    /// How much later than the delay, µs: median, 99 %, and maximum.
    late: [f64; 3],
    /// Share of the packets sent that did not arrive.
    missing: f64,
    /// CPU time of the wire in a second.
    cpu: f64,
    /// Relative error of the rate.
    rate: f64,
}

/// Measures. Returns the text to print.
pub fn run(options: &WireAccuracy) -> Result<String, WireError> {
    let lines = options.packets.iter().map(|&packets| line(options, packets));
    let lines = lines.collect::<Result<Vec<Line>, WireError>>()?;
    Ok(if options.json { json_text(&lines) } else { table(options, &lines) })
}

fn line(options: &WireAccuracy, packets: u32) -> Result<Line, WireError> {
    let perfect = PathConfig::with_delay(options.delay);
    let (sent, arrivals, cpu) = over_a_wire(options, perfect.clone(), f64::from(packets))?;
    let late = quantiles(&arrivals, options.delay)?;
    let limited = perfect.rate_bits_per_s(Some(u64::from(packets) * PACKET as u64 * 8));
    let (_, through, _) = over_a_wire(options, limited, f64::from(packets) * 1.25)?;
    Ok(Line {
        packets,
        late,
        missing: 1.0 - arrivals.len() as f64 / sent as f64,
        cpu,
        rate: rate(&through)? / f64::from(packets) - 1.0,
    })
}

/// Sends `a_second` packets per second over a wire for a while. Returns the number sent, the packets that arrived,
/// and the wire's CPU time per second.
fn over_a_wire(
    options: &WireAccuracy,
    config: PathConfig,
    a_second: f64,
) -> Result<(u64, Vec<WireArrival>, f64), WireError> {
    let room = || UnnamedNamespace::new().map_err(WireError::system("make a network namespace (needs root)"));
    let rooms = [room()?, room()?];
    let device = |room: &UnnamedNamespace| {
        let end = DeviceEnd { namespace: "(unnamed)".to_owned(), device: DEVICE.to_owned() };
        TunDevice::create(DEVICE, 1500, Some(room.0.as_fd())).map_err(|error| WireError::Device(end, error))
    };
    let devices = [device(&rooms[0])?, device(&rooms[1])?];
    let paths = Duplex::new(config, PathConfig::default(), 1).map_err(WireError::Path)?;
    let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(WireError::system("make an eventfd"))?;
    thread::scope(|scope| {
        let wire = scope.spawn(|| {
            if options.realtime {
                real_time().map_err(WireError::system("run with priority"))?;
            }
            let mut carrier = Carrier::new(devices, paths)?;
            carrier.run(stop.as_fd())?;
            carrier.figures()
        });
        let count = (a_second * options.time.as_secs_f64()).ceil() as u64;
        let arrivals = Flow::new(&rooms)
            .and_then(|flow| flow.exchange(count, Duration::from_secs_f64(1.0 / a_second), options.delay));
        stop.write(1).map_err(WireError::system("end the wire"))?;
        let figures = wire
            .join()
            .unwrap_or_else(|_| Err(WireError::Measurement("the wire's thread panicked".to_owned())))?;
        Ok((count, arrivals?, figures.cpu.as_secs_f64() / figures.wall.as_secs_f64()))
    })
}

/// Gives this thread the priority that a user gives to a wire. Only an unsafe call sets it directly.
fn real_time() -> io::Result<()> {
    let thread = gettid().to_string();
    let done = Command::new("chrt").args(["-f", "-p", "10", &thread]).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

/// How much later than `delay` packets arrived, in µs: median, 99 %, and maximum.
fn quantiles(arrivals: &[WireArrival], delay: Duration) -> Result<[f64; 3], WireError> {
    let wanted = delay.as_nanos() as f64;
    let error = |arrival: &WireArrival| (arrival.received as f64 - arrival.sent as f64 - wanted) / 1000.0;
    if arrivals.is_empty() {
        return Err(WireError::Measurement("no packet arrived".to_owned()));
    }
    let errors = Figure::new(arrivals.iter().map(error));
    Ok([0.5, 0.99, 1.0].map(|share| errors.quantile(share)))
}

/// Packets per second that arrived, without the first and the last tenth.
fn rate(arrivals: &[WireArrival]) -> Result<f64, WireError> {
    let cut = arrivals.len() / 10;
    let middle = arrivals.get(cut..arrivals.len() - cut).unwrap_or_default();
    let (Some(first), Some(last)) = (middle.first(), middle.last()) else {
        return Err(WireError::Measurement("no packet arrived".to_owned()));
    };
    if last.received <= first.received {
        return Err(WireError::Measurement("too few packets arrived; make --time longer".to_owned()));
    }
    Ok((middle.len() - 1) as f64 * 1e9 / (last.received - first.received) as f64)
}

fn table(options: &WireAccuracy, lines: &[Line]) -> String {
    let mut out = format!(
        "packets of {PACKET} bytes, {} one way, {} a measurement\n\n\
         | packets/s | late, median | 99 % | most | missing | CPU of the wire | rate, error |\n\
         |---|---|---|---|---|---|---|\n",
        humantime::format_duration(options.delay),
        humantime::format_duration(options.time)
    );
    for line in lines {
        let Line { packets, late: [median, p99, most], missing, cpu, rate } = line;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {packets} | {median:.0} µs | {p99:.0} µs | {most:.0} µs | {:.2} % | {:.0} % | {:+.3} % |",
            100.0 * missing,
            100.0 * cpu,
            100.0 * rate
        );
    }
    out.truncate(out.trim_end().len());
    out
}

fn json_text(lines: &[Line]) -> String {
    let lines = lines.iter().map(|line| {
        json!({
            "packets_per_s": line.packets,
            "late_us": { "median": line.late[0], "p99": line.late[1], "max": line.late[2] },
            "missing": line.missing,
            "cpu": line.cpu,
            "rate_error": line.rate,
        })
    });
    json!({ "lines": lines.collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_packets() {
        let arrivals: Vec<WireArrival> = (0..=100)
            .map(|n| WireArrival { sent: n * 10_000, received: n * 10_000 + 1_000_000 + n * 1000 })
            .collect();
        assert_eq!(quantiles(&arrivals, Duration::from_millis(1)).unwrap(), [50.0, 99.0, 100.0]);
        // One packet every 11 µs.
        assert!((rate(&arrivals).unwrap() - 1e9 / 11_000.0).abs() < 1e-6);
        assert!(quantiles(&[], Duration::ZERO).is_err());
        assert!(rate(&arrivals[..1]).is_err());
    }
}
