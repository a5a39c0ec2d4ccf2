//! Converts the command line to settings of paths.

use clap::Args;
use firstflight_link::PathConfig;
use firstflight_link::path::{MAX_BURST, MAX_DELAY, MAX_FLIPS};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// One end of a wire: a device in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEnd {
    /// Name or file of the namespace; empty for the namespace of this process.
    pub namespace: String,
    /// The device to create there.
    pub device: String,
}

impl DeviceEnd {
    /// The namespace's file; `None` for the namespace of this process.
    pub fn open(&self) -> io::Result<Option<File>> {
        if self.namespace.is_empty() {
            return Ok(None);
        }
        let path = if self.namespace.contains('/') {
            PathBuf::from(&self.namespace)
        } else {
            PathBuf::from("/run/netns").join(&self.namespace)
        };
        File::open(path).map(Some)
    }
}

impl FromStr for DeviceEnd {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, device) =
            text.rsplit_once(':').ok_or("write NETNS:DEV, or :DEV for the namespace that this runs in")?;
        if device.is_empty() {
            return Err("the name of the device is missing: write NETNS:DEV");
        }
        Ok(Self { namespace: namespace.to_owned(), device: device.to_owned() })
    }
}

impl fmt::Display for DeviceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.namespace, self.device)
    }
}

/// What the wire does to packets. Probabilities are equal in both directions, with separate random numbers.
#[derive(Clone, Debug, Args)]
pub struct Impairments {
    /// Round-trip time, as 20ms or 1500us; half of it each way
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration)]
    pub rtt: Duration,
    /// Maximum random addition to the delay each way, drawn for each packet; order is kept
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration)]
    pub jitter: Duration,
    /// Bits of IP packets in a second from A to B, as 512k, 10M or 1G [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate_up: Option<u64>,
    /// Bits of IP packets in a second from B to A, in the same form
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate_down: Option<u64>,
    /// Bytes that may wait in front of each rate; what does not fit is dropped
    #[arg(long, value_name = "BYTES", default_value_t = PathConfig::default().queue_bytes)]
    pub queue: usize,
    /// Share of packets lost, as 0.01 or 1%
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    pub loss: f64,
    /// How many packets are lost in a row on average, as 5; the share stays [default: each by itself]
    #[arg(long, value_name = "PACKETS", default_value_t = 1.0, hide_default_value = true, value_parser = burst)]
    pub loss_burst: f64,
    /// Share of packets held back by --reorder-delay, so that others overtake them
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    pub reorder: f64,
    /// How long they are held back
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    pub reorder_delay: Duration,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    pub dup: f64,
    /// Share of packets with bits flipped
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = probability)]
    pub corrupt: f64,
    /// Most bits flipped in one of them; TCP's checksum finds every single flip, but not every pair
    #[arg(long, value_name = "N", default_value_t = MAX_FLIPS, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_FLIPS)))]
    pub corrupt_bits: u8,
    /// Largest packet, bytes. Devices with a larger MTU, set later with `ip link`, make the wire a black hole
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u16,
    /// Fragment packets larger than this, whatever their DF flag says [default: none]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub fragment: Option<u16>,
}

impl Impairments {
    /// The paths from A to B, and from B to A. Their delays add up exactly to the round-trip time.
    pub fn paths(&self) -> (PathConfig, PathConfig) {
        let half = self.rtt / 2;
        let both = PathConfig::default()
            .jitter(self.jitter)
            .queue_bytes(self.queue)
            .loss(self.loss)
            .loss_burst(self.loss_burst)
            .reorder(self.reorder)
            .reorder_delay(self.reorder_delay)
            .duplicate(self.dup)
            .corrupt(self.corrupt)
            .corrupt_bits(self.corrupt_bits)
            .mtu(usize::from(self.fragment.unwrap_or(self.mtu)))
            .fragments(self.fragment.is_some());
        let up = both.clone().delay(half).rate_bits_per_s(self.rate_up);
        let down = both.delay(self.rtt - half).rate_bits_per_s(self.rate_down);
        (up, down)
    }
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= MAX_DELAY => Ok(time),
        Ok(_) => Err("a packet is a day late at most"),
        Err(_) => Err("write a time as 20ms, 1500us or 1s"),
    }
}

/// Bits per second, at least 1.
pub fn rate(text: &str) -> Result<u64, &'static str> {
    const ADVICE: &str = "write a rate in bits a second as 512k, 10M or 1G, at least 1";
    let (number, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(number) if text.ends_with('k') => (number, 1_000),
        Some(number) if text.ends_with('M') => (number, 1_000_000),
        Some(number) => (number, 1_000_000_000),
        None => (text, 1),
    };
    let number: f64 = number.parse().map_err(|_| ADVICE)?;
    // The conversion to an integer saturates; NaN becomes 0.
    match (number * f64::from(unit)).round() as u64 {
        0 | u64::MAX => Err(ADVICE),
        rate => Ok(rate),
    }
}

/// A number from 0 to 1.
pub fn probability(text: &str) -> Result<f64, &'static str> {
    const ADVICE: &str = "write a share from 0 to 1, as 0.01 or 1%";
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let share: f64 = number.parse::<f64>().map_err(|_| ADVICE)? / unit;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(ADVICE) }
}

/// A mean number of packets, at least 1.
fn burst(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(packets) if (1.0..=MAX_BURST).contains(&packets) => Ok(packets),
        _ => Err("write a mean number of packets, at least 1, as 2.5"),
    }
}
