//! Each row does the work that its figures describe. No test asserts a time.

use super::flood::{self, Flood};
use super::work::Work;
use super::{BATCH, BUDGETS, Row};
use std::num::NonZeroU32;
use std::time::Duration;

/// A step fails if something was not opened, answered or verified.
#[test]
fn every_row_does_its_work() {
    let mut work = Work::new().unwrap();
    for row in Row::ALL {
        let (done, took) = work.step(row).unwrap_or_else(|error| panic!("{row:?}: {error}"));
        assert!(done == BATCH && took > Duration::ZERO, "{row:?}");
    }
}

/// Whatever the machine's speed: without a flood no honest client is rejected, and the budget bounds the openings.
#[test]
fn the_budget_bounds_openings() {
    let lasts = Duration::from_millis(200);
    for (_, openings) in BUDGETS {
        let outcome = flood::run(Flood::None, openings, lasts).unwrap();
        assert!(outcome.early > 0.0 && outcome.ordinary == 0.0, "{outcome:?}");
    }
    let few = NonZeroU32::new(400).unwrap();
    for flood in [Flood::Garbage(1), Flood::Copies(1), Flood::Copies(64)] {
        let outcome = flood::run(flood, few, lasts).unwrap();
        // The burst of a tenth of a second comes on top.
        assert!(outcome.openings_per_s <= 400.0 + 200.0, "{flood:?}: {outcome:?}");
        let all = outcome.early + outcome.ordinary + outcome.late;
        assert!((all - 1.0).abs() < 1e-9, "{flood:?}: {outcome:?}");
    }
}
