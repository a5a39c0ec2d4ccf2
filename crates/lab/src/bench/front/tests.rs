//! The rows do what the figures are said to be of. No test asserts a time.

use super::work::{BATCH, PARTS, Work};
use super::{Row, SEED};

/// A step fails if something was not answered, put together, opened or taken; more than all first flights come, so
/// that each comes again.
#[test]
fn every_row_does_its_work() {
    let mut work = Work::new(SEED).unwrap();
    for round in 0..70 {
        for row in Row::ALL {
            let (done, _) = work.step(row).unwrap_or_else(|error| panic!("{row:?}, round {round}: {error}"));
            let each = if row == Row::Waits { PARTS - 2 } else { 1 };
            assert_eq!(done, (BATCH * each) as u64, "{row:?}");
        }
    }
}
