use super::lateness::Lateness;
use super::settings::{DeviceEnd, probability, rate};
use super::*;
use clap::Parser;
use firstflight_link::PathConfig;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    wire: Wire,
}

fn parse(text: &str) -> Result<Wire, clap::Error> {
    Line::try_parse_from(["wire", "--a", "x:a0", "--b", "y:b0"].into_iter().chain(text.split_whitespace()))
        .map(|line| line.wire)
}

#[test]
fn an_end_is_a_namespace_and_a_device() {
    let end =
        |namespace: &str, device: &str| DeviceEnd { namespace: namespace.into(), device: device.into() };
    assert_eq!("blue:eth7".parse(), Ok(end("blue", "eth7")));
    assert_eq!(":eth7".parse(), Ok(end("", "eth7")));
    assert_eq!("/proc/1/ns/net:eth7".parse(), Ok(end("/proc/1/ns/net", "eth7")));
    assert!("eth7".parse::<DeviceEnd>().is_err());
    assert!("blue:".parse::<DeviceEnd>().is_err());
    assert_eq!(end("blue", "eth7").to_string(), "blue:eth7");
    assert!(end("", "eth7").open().unwrap().is_none());
    assert_eq!(end("no such namespace", "eth7").open().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn rates_and_shares_are_as_people_write_them() {
    for (text, bits) in [("1", 1), ("512k", 512_000), ("1.5M", 1_500_000), ("2G", 2_000_000_000)] {
        assert_eq!(rate(text), Ok(bits), "{text}");
    }
    for text in ["", "0", "-1", "k", "NaN", "inf", "0.1", "1e30G", "10 M", "5m"] {
        assert!(rate(text).is_err(), "{text:?}");
    }
    for (text, share) in [("0", 0.0), ("0.25", 0.25), ("1%", 0.01), ("100%", 1.0)] {
        assert_eq!(probability(text), Ok(share), "{text}");
    }
    for text in ["", "2", "-0.1", "NaN", "101%", "%"] {
        assert!(probability(text).is_err(), "{text:?}");
    }
}

#[test]
fn options_become_paths() {
    let wire = parse(
        "--rtt 15ms --jitter 2ms --rate-up 1M --rate-down 20M --queue 9000 --loss 1% --loss-burst 2.5 \
         --reorder 0.02 --reorder-delay 3ms --dup 3% --corrupt 4% --corrupt-bits 2 --mtu 1400",
    )
    .unwrap();
    let (up, down) = wire.impairments.paths();
    assert_eq!(up.delay, Duration::from_micros(7500));
    assert_eq!((up.rate_bits_per_s, down.rate_bits_per_s), (Some(1_000_000), Some(20_000_000)));
    for path in [up, down] {
        assert_eq!((path.jitter, path.reorder_delay), (Duration::from_millis(2), Duration::from_millis(3)));
        assert_eq!((path.queue_bytes, path.mtu), (9000, 1400));
        assert_eq!((path.loss, path.reorder, path.duplicate, path.corrupt), (0.01, 0.02, 0.03, 0.04));
        assert_eq!((path.loss_burst, path.corrupt_bits), (2.5, 2));
    }
    let (up, down) = parse("--fragment 1000").unwrap().impairments.paths();
    assert_eq!([(up.mtu, up.fragments), (down.mtu, down.fragments)], [(1000, true); 2]);
    // No nanosecond of an odd round-trip time is lost.
    let (up, down) = parse("--rtt 3ns").unwrap().impairments.paths();
    assert_eq!(up.delay + down.delay, Duration::from_nanos(3));
    let (up, down) = parse("").unwrap().impairments.paths();
    assert_eq!((&up, &down), (&PathConfig::default(), &PathConfig::default()));
    for text in [
        "--rtt 2d",
        "--rtt fast",
        "--loss 2",
        "--rate-up 0",
        "--mtu 70000",
        "--loss-burst 0.5",
        "--corrupt-bits 0",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn quantiles_of_lateness() {
    let mut late = Lateness::new();
    assert_eq!((late.quantile(0.5), late.longest()), (0, Duration::ZERO));
    for micros in (1..=99).chain([5000]) {
        late.add(Duration::from_micros(micros) + Duration::from_nanos(999));
    }
    assert_eq!([0.5, 0.99, 1.0].map(|share| late.quantile(share)), [50, 99, 2000]);
    assert_eq!(late.longest(), Duration::from_nanos(5_000_999));
}
