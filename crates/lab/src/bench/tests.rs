//! Each world does the work that its figures describe. No test asserts a time.

use super::ours::OpenBy;
use super::smoltcp::Drive;
use super::{Budget, Pattern, Sample, World, measure, ours, ours_bulk, smoltcp, smoltcp_bulk};

fn run(world: &mut dyn World, units: u64) -> Sample {
    measure(world, Budget::units(units)).unwrap()
}

#[test]
fn our_connections_take_as_few_packets_as_promised() {
    for (open, packets) in
        [(OpenBy::Handshake, 6.0), (OpenBy::Cookie, 5.0), (OpenBy::CookieAndDataInSynAck, 4.0)]
    {
        let mut world = ours::Connections::new(open, 0).unwrap();
        run(&mut world, 1000);
        let each = run(&mut world, 1000).packets_per_unit();
        assert!((each - packets).abs() < 0.1, "{}: {each} packets, not {packets}", world.name());
    }
}

#[test]
fn smoltcp_connections_take_the_packets_that_its_drive_makes() {
    for (drive, packets) in [(Drive::Best, 6.0), (Drive::Documented, 9.0)] {
        let mut world = smoltcp::Connections::new(drive, 0).unwrap();
        run(&mut world, 1000);
        let each = run(&mut world, 1000).packets_per_unit();
        assert!((each - packets).abs() < 0.1, "{}: {each} packets, not {packets}", world.name());
    }
}

#[test]
fn idle_connections_stay_on_both_stacks() {
    run(&mut ours::Connections::new(OpenBy::Cookie, 200).unwrap(), 1000);
    run(&mut smoltcp::Connections::new(Drive::Best, 200).unwrap(), 1000);
}

#[test]
fn bulk_bytes_arrive_in_order() {
    run(&mut ours_bulk::Bulk::new(false).unwrap(), 1 << 22);
    run(&mut ours_bulk::Bulk::new(true).unwrap(), 1 << 22);
    run(&mut smoltcp_bulk::Bulk::new().unwrap(), 1 << 22);
}

#[test]
fn the_pattern_notices_a_shift() {
    let pattern = Pattern::new();
    for offset in [0, 1 << 20, 1 << 30] {
        let chunk = pattern.chunk(offset);
        assert!(pattern.verify(offset, chunk).is_ok());
        assert!(pattern.verify(offset + 1, chunk).is_err());
        assert!(pattern.verify(offset, &pattern.chunk(offset + 1448)[..1448]).is_err());
    }
}
