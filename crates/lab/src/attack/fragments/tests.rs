use super::*;

fn run(kind: Option<Kind>) -> FragmentDamage {
    let limits = FragmentLimits::default();
    let damage = Flood { kind, rate: RATE, seconds: 2, limits }.run().unwrap();
    println!("{kind:?} {damage:?}");
    assert!(damage.peak <= limits.bytes, "{damage:?}");
    assert_eq!(damage.left, 0, "{damage:?}");
    damage
}

#[test]
fn without_a_flood_every_upload_is_done() {
    let damage = run(None);
    assert_eq!(damage.done, UPLOADS as usize);
    assert!(damage.counters.packets_reassembled > 50 * 130, "{damage:?}");
    assert_eq!(damage.counters.reassembly_evicted + damage.counters.reassembly_timeouts, 0);
}

#[test]
fn without_reassembly_none_is_done() {
    let flood = Flood { kind: None, rate: RATE, seconds: 2, limits: FragmentLimits::OFF };
    assert_eq!(flood.run().unwrap().done, 0);
}

/// One source gets at most a sixteenth of the memory. Beyond that its own oldest packets are evicted.
#[test]
fn one_source_harms_nobody() {
    let most = FragmentLimits::default().bytes_per_source;
    for kind in [Kind::First, Kind::Tiny, Kind::Pieces, Kind::Overlaps, Kind::Copies] {
        let damage = run(Some(kind));
        assert_eq!(damage.done, UPLOADS as usize, "{kind:?}");
        // The rest is data that honest clients have under way.
        assert!(damage.peak < most + 100_000, "{kind:?} {damage:?}");
    }
}

/// The flood fills the table, but an honest packet is complete before it becomes the oldest.
#[test]
fn many_sources_fill_the_table_and_uploads_are_done() {
    for kind in [Kind::FirstOfMany, Kind::TinyLastOfMany] {
        let damage = run(Some(kind));
        assert_eq!(damage.done, UPLOADS as usize, "{kind:?}");
        assert!(damage.counters.reassembly_evicted > 1000, "{kind:?} {damage:?}");
    }
}

/// A forged fragment with the identification of an honest packet destroys that packet. TCP sends its data again.
#[test]
fn forged_honest_addresses_do_not_stop_uploads() {
    assert_eq!(run(Some(Kind::Impersonating)).done, UPLOADS as usize);
}
