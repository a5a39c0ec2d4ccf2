use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn ten_at_once_then_one_a_second() {
    let start = Instant::now();
    let mut limiter = Limiter::default();
    let written =
        |limiter: &mut Limiter<_>, at: Instant, place| (0..1000).filter(|_| limiter.admit(place, at)).count();
    assert_eq!(written(&mut limiter, start, 1), 10);
    // Another place has its own lines.
    assert_eq!(written(&mut limiter, start, 2), 10);
    assert_eq!(written(&mut limiter, start + 999 * MS, 1), 0);
    assert_eq!(written(&mut limiter, start + 1000 * MS, 1), 1);
    assert_eq!(written(&mut limiter, start + 3500 * MS, 1), 2);
    assert_eq!(written(&mut limiter, start + 4000 * MS, 1), 1);
    assert_eq!(written(&mut limiter, start + 3_600_000 * MS, 1), 10);
}

/// Regression test: 20,000 bad queries wrote 20,000 lines.
#[test]
fn twenty_thousand_lines_are_few_and_none_is_lost_from_the_count() {
    let start = Instant::now();
    let mut limiter = Limiter::default();
    let (mut written, mut told) = (0, Vec::new());
    for n in 0..20_000 {
        let now = start + n * MS;
        written += u64::from(limiter.admit("place", now));
        if n % 1000 == 999 {
            told.extend(limiter.due(now));
        }
    }
    // In 20 s: ten lines at once, and one for each second that had passed.
    assert_eq!(written, 10 + 19);
    assert!(told.is_empty() && !limiter.is_told(), "{told:?}");
    assert!(limiter.due(start + 20_900 * MS).is_empty());
    told.extend(limiter.due(start + 21_000 * MS));
    assert_eq!(told, [LeftOut { place: "place", lines: 20_000 - written }]);
    assert!(limiter.is_told() && limiter.rest().is_empty());
}

#[test]
fn a_flood_without_end_is_told_each_minute() {
    let start = Instant::now();
    let mut limiter = Limiter::default();
    let mut told = 0;
    for n in 0..600_u32 {
        limiter.admit(0, start + n * 1000 * MS);
        for _ in 0..9 {
            limiter.admit(0, start + n * 1000 * MS + MS);
        }
        told += limiter.due(start + n * 1000 * MS + 2 * MS).len();
    }
    assert!((9..=10).contains(&told), "{told}");
}
