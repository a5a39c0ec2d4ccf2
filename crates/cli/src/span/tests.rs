use super::*;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_bare_number_has_its_former_unit_and_any_other_can_be_written() {
    let all = Duration::ZERO..=LONGEST;
    for (unit, expected) in
        [(MS, Duration::from_millis(30)), (SECONDS, seconds(30)), (HOURS, seconds(108_000))]
    {
        let read = or_bare(unit, all.clone());
        assert_eq!(read("30"), Ok(expected));
        assert_eq!(read("30s"), Ok(seconds(30)));
        assert_eq!(read("1h 30m"), Ok(seconds(5400)));
        assert_eq!(read("0"), Ok(Duration::ZERO));
    }
    assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
    for wrong in ["30", "", "-1s", "soon", "1 fortnight"] {
        assert!(parse(wrong).unwrap_err().contains("30s"), "{wrong}");
    }
}

#[test]
fn what_is_outside_of_the_limits_is_told_with_them() {
    let read = or_bare(MS, Duration::from_millis(1)..=seconds(10));
    for wrong in ["0", "10001", "11s", "18446744073709551615", "600000000000y"] {
        assert_eq!(read(wrong).unwrap_err(), "give a time from 1ms to 10s", "{wrong}");
    }
    assert_eq!(or_bare(MS, seconds(1)..=LONGEST)("1ms").unwrap_err(), "give a time of at least 1s");
    for wrong in ["18446744073709551615s", "1000y"] {
        assert_eq!(parse(wrong).unwrap_err(), "that is more than a century", "{wrong}");
    }
    assert!(or_bare(HOURS, Duration::ZERO..=LONGEST)("18446744073709551615").is_err());
}
