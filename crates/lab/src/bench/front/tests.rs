//! Each row does the work that its figures describe. No test asserts a time.

use super::work::{BATCH, PARTS, Work};
use super::{Row, SEED};

/// A step fails if something was not answered, reassembled, opened or accepted. More steps run than there are first
/// flights, so that each flight is repeated.
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
