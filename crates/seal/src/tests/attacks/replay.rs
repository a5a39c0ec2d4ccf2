//! Copies, clocks, restarts, floods.

use super::{Did, Host, VICTIM, clock, needs, table, whole};
use crate::bind::Bind;
use crate::budget::OpeningBudget;
use crate::client::sent::{Event, Sent, Then};
use crate::client::trust::NamePolicy;
use crate::defence::Defence;
use crate::farm::Farm;
use crate::fixtures::{BOTH, COMPLETE, NOW, Parts, rng};
use crate::plain::{Flags, Rid};
use crate::run::admission::{BlockState, Runs, Server, Why};
use crate::run::strike_register::{Question, RegisterAnswer, StrikeRegister};
use crate::run::waiting::{Finished, Waiting};
use core::hash::BuildHasher;
use core::net::IpAddr;
use firstflight_wire::Instant;
use std::time::Duration;

/// How often a request runs when its flight comes at these times, seconds, each on a connection of its own.
fn runs_at(host: &mut Host, bytes: &[u8], block: &BlockState, times: &[u64]) -> usize {
    let mut runs = 0;
    for &at in times {
        host.clock = clock(at);
        runs += usize::from(host.connect(bytes, block.clone()).ran());
    }
    runs
}

#[test]
fn a_copy_from_anywhere() {
    let flight = Parts::new(b"GET", BOTH).flight(&mut rng(1));
    needs(Defence::Table, || {
        runs_at(&mut Host::new(), whole(&flight), &BlockState::None, &[0, 0, 5, 299]) > 1
    });
    // On another encapsulation the client makes another seal, under another block, with the same rid.
    let copy = Parts { bind: VICTIM.bind(), ..Parts::new(b"GET", BOTH) }.flight(&mut rng(2));
    needs(Defence::Table, || {
        let mut host = Host::new();
        let first = host.connect(whole(&flight), BlockState::None).ran();
        first && host.connect(whole(&copy), VICTIM.accepted(99)).ran()
    });
}

/// A copy runs before the client's own flight arrives. If the client learnt 425, it would repeat by itself (RFC 8470
/// section 5.2), and the request would run twice.
#[test]
fn a_copy_with_425() {
    let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
    needs(Defence::SilentCopies, || {
        let mut host = Host::new();
        let copy = host.connect(whole(&flight), VICTIM.accepted(99)).ran();
        let own = host.connect(whole(&flight), VICTIM.accepted(99));
        // In ordinary TLS nothing remembers it.
        let runs_again = match own {
            Did::Status425 => true,
            Did::Closed => {
                let mut sent =
                    Sent::new(COMPLETE, VICTIM.bind(), b"http/1.1", NamePolicy::Visible, clock(0).mono);
                matches!(sent.handle(Event::Close, clock(0).mono), Then::Again(_))
            }
            _ => false,
        };
        copy && runs_again
    });
}

#[test]
fn t_far_ahead_and_far_behind() {
    for t_ms in [(NOW - 400) * 1000, (NOW + 400) * 1000, 1, (1 << 48) - 1] {
        needs(Defence::Window, || {
            let flight = Parts { t_ms, ..Parts::new(b"GET", BOTH) }.flight(&mut rng(1));
            Host::new().connect(whole(&flight), BlockState::None).ran()
        });
    }
}

/// The attacker drops a SYN with a block and keeps it, so that the flight follows the handshake, minutes later. In between
/// the attacker sends the SYN.
#[test]
fn a_kept_syn_and_a_slow_handshake() {
    let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
    needs(Defence::Lifetime, || {
        let mut host = Host::new();
        host.clock = clock(10);
        let early = host.connect(whole(&flight), VICTIM.accepted(99)).ran();
        host.clock = clock(250);
        let Did::Waits(waiting, _) = host.connect(whole(&flight), BlockState::None) else { return false };
        early && host.finish(&waiting)
    });
}

/// The wall clock jumps back, so that t of a request that was forgotten is in the window again.
#[test]
fn a_clock_that_jumps_back() {
    needs(Defence::Floor, || {
        let flight = Parts::new(b"GET", BOTH).flight(&mut rng(1));
        let mut host = Host::new();
        let first = host.connect(whole(&flight), BlockState::None).ran();
        host.clock.mono += Duration::from_secs(3600);
        first && host.connect(whole(&flight), BlockState::None).ran()
    });
}

/// And forward and back.
#[test]
fn a_clock_that_jumps_forward_and_back() {
    needs(Defence::Floor, || {
        let flight = Parts { t_ms: (NOW + 86_400) * 1000, ..Parts::new(b"GET", BOTH) }.flight(&mut rng(1));
        let mut host = Host::new();
        host.keys = crate::keys::KeySet::new(host.keys.name().clone());
        host.keys.add(crate::fixtures::id(7), crate::fixtures::key(5), (NOW + 86_400) as u32, NOW).unwrap();
        let mut ran = 0;
        // A day ahead for a moment; then right; a day later the copy.
        for (mono, unix) in [(0, 86_400), (1, 1), (86_000, 86_200)] {
            host.clock = clock(mono);
            host.clock.unix_ms = (NOW + unix) * 1000;
            ran += usize::from(host.connect(whole(&flight), BlockState::None).ran());
        }
        ran > 1
    });
}

/// The predecessor ran a request whose t was four minutes ahead. A pause of five minutes after the start would not do: the
/// copy comes six minutes after it.
#[test]
fn a_copy_after_a_restart() {
    let flight = Parts { t_ms: (NOW + 240) * 1000, ..Parts::new(b"GET", BOTH) }.flight(&mut rng(1));
    for later in [1, 301, 360, 500] {
        needs(Defence::Floor, || {
            let mut host = Host::new();
            let first = host.connect(whole(&flight), BlockState::None).ran();
            host.table = table(false, 1);
            host.clock = clock(later);
            first && host.connect(whole(&flight), BlockState::None).ran()
        });
    }
}

/// The attacker holds Finished back, and lets it through when the entry of another run is forgotten.
#[test]
fn a_finished_held_back_for_minutes() {
    needs(Defence::Deadline, || {
        let parts = Parts::new(b"POST", COMPLETE);
        let mut host = Host::new();
        let Did::Waits(held, _) = host.connect(whole(&parts.flight(&mut rng(1))), BlockState::None) else {
            return false;
        };
        // The client has given up, and its application sent the request again, which ran.
        host.clock = clock(1);
        let Did::Waits(again, _) = host.connect(whole(&parts.flight(&mut rng(2))), BlockState::None) else {
            return false;
        };
        let ran = host.finish(&again);
        host.clock = clock(16 * 60);
        ran && host.finish(&held)
    });
}

/// The same request early on one connection and after Finished on another one.
#[test]
fn early_and_after_finished() {
    needs(Defence::Table, || {
        let bound = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) };
        let mut host = Host::new();
        // The SYN was dropped and kept by the attacker; the client's data comes by the handshake.
        let Did::Waits(waiting, _) = host.connect(whole(&bound.flight(&mut rng(1))), BlockState::None) else {
            return false;
        };
        let early = host.connect(whole(&bound.flight(&mut rng(1))), VICTIM.accepted(99)).ran();
        early && host.finish(&waiting)
    });
}

/// A listener for client certificates: a ticket restores an identity that is not visible before Finished.
#[test]
fn an_early_request_where_client_certificates_are_asked_for() {
    needs(Defence::ClientCertificates, || {
        let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
        let mut host = Host::new();
        host.listener = Server { client_certificates: true, several_tables: false };
        host.connect(whole(&flight), VICTIM.accepted(99)).ran()
    });
}

/// Each member of a farm without a shared table would run the request once.
#[test]
fn a_copy_at_another_member_without_a_shared_table() {
    needs(Defence::PerSite, || {
        let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
        let run = || {
            let mut host = Host::new();
            host.listener = Server { client_certificates: false, several_tables: true };
            host.connect(whole(&flight), VICTIM.accepted(99)).ran()
        };
        run() && run()
    });
}

/// With a shared table every member knows it.
#[test]
fn a_copy_at_another_member_with_a_shared_table() {
    needs(Defence::Table, || {
        let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
        let (mut one, mut two) = (Host::new(), Host::new());
        let first = one.connect(whole(&flight), VICTIM.accepted(99)).ran();
        two.table = one.table;
        first && two.connect(whole(&flight), VICTIM.accepted(99)).ran()
    });
}

/// A table whose store does not answer.
struct LostStore;

impl StrikeRegister for LostStore {
    fn test_and_set(&mut self, _: &Question, _: Instant) -> RegisterAnswer {
        RegisterAnswer::Unavailable
    }
}

/// The attacker cuts a member from the store, and sends a copy there, early or after Finished.
#[test]
fn a_copy_at_a_member_that_lost_the_store() {
    let bound = |flags: Flags| {
        let inner = crate::Inner {
            rid: Rid([1; 16]),
            bind: VICTIM.bind(),
            t_ms: NOW * 1000,
            flags,
            hello: b"",
            request: b"POST",
        };
        let identities = [super::Identity::name(super::NAME, 443), super::Identity::name("p.example", 443)];
        crate::Request::new(&inner, VICTIM.accepted(99), identities, clock(0).mono)
    };
    let server = Server { client_certificates: false, several_tables: false };
    needs(Defence::StoreLost, || {
        matches!(bound(COMPLETE).judge_with(&server, &clock(0), &mut LostStore), Runs::Now(_))
    });
    needs(Defence::StoreLost, || {
        let waiting = Waiting::new(Rid([1; 16]), NOW * 1000, COMPLETE, VICTIM.bind(), true, clock(0).mono);
        waiting.finished_with(&clock(0), &mut LostStore) == Finished::Run
    });
    // What was never able to run early needs no table, and replayable requests go on.
    let waiting = Waiting::new(Rid([1; 16]), NOW * 1000, COMPLETE, Bind::NONE, false, clock(0).mono);
    assert_eq!(waiting.finished_with(&clock(0), &mut LostStore), Finished::Run);
    let Runs::AfterFinished(waiting, Why::NoTable) =
        bound(BOTH).judge_with(&server, &clock(0), &mut LostStore)
    else {
        panic!("early without an entry: as often as there are copies")
    };
    assert_eq!(waiting.finished_with(&clock(0), &mut LostStore), Finished::Run);
}

/// Many clients without blocks: those with blocks still have room.
#[test]
fn a_flood_without_blocks() {
    needs(Defence::Quota, || {
        let mut host = Host::new();
        for n in 0..200u64 {
            let rid = Rid([n as u8; 16]);
            let _ = host.connect(
                whole(&Parts { rid, ..Parts::new(b"GET", BOTH) }.flight(&mut rng(n))),
                BlockState::None,
            );
        }
        let bound = Parts { rid: Rid([250; 16]), bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) };
        !host.connect(whole(&bound.flight(&mut rng(1))), VICTIM.accepted(99)).ran()
    });
}

/// A flood of flights without blocks from one network, and from the many networks of one region: what is left for the others.
#[test]
fn a_flood_that_uses_up_the_openings() {
    let left_for_others = |flood: &dyn Fn(u32) -> IpAddr| {
        let mut budget = OpeningBudget::default();
        let (mut honest, mut opened) = (0u32, 0);
        for n in 0..20_000u32 {
            let now = Instant::from_secs(1000) + Duration::from_micros(u64::from(n) * 50);
            let _ = (0..3).filter(|k| budget.take(flood(3 * n + k), now)).count();
            // 100 honest flights a second, each from a network and region of its own.
            if n % 200 == 0 {
                honest += 1;
                opened += u32::from(budget.take(IpAddr::from(((60 + n / 200) << 16).to_be_bytes()), now));
            }
        }
        f64::from(opened) / f64::from(honest)
    };
    let one = IpAddr::from([192, 0, 2, 1]);
    needs(Defence::Shares, || left_for_others(&|_| one) < 0.5);
    // A /40 of IPv6 has 65,536 networks.
    let many = |n: u32| {
        IpAddr::from(((0x2001_0db8_0000_0000_u128 << 64) | u128::from(n % 65_536) << 72).to_be_bytes())
    };
    needs(Defence::Regions, || left_for_others(&many) < 0.5);
}

/// A farm whose record lives longer than its period has more keys that must open than a set holds. The newest one was left
/// out, so members that publish it reject flights to it.
#[test]
fn a_farm_whose_ttl_is_above_its_period() {
    needs(Defence::FarmTtl, || {
        let Ok(farm) = Farm::generate(super::name(super::NAME), 3600, 36_000, NOW, &mut rng(1)) else {
            return false;
        };
        let now = (farm.index() + 20) * 3600 + 1800;
        let id = 1 + (now / 3600 % 255) as u8;
        !farm.keys(now).unwrap().knows(id.try_into().unwrap(), now)
    });
}

/// The attacker chooses rids that share a bucket under the hash that it knows.
#[test]
fn rids_that_collide() {
    needs(Defence::KeyedHash, || {
        let known = crate::run::strike_register::Keyed([0; 16]);
        let bucket = |hash: &crate::run::strike_register::Keyed, rid: &Rid| hash.hash_one(rid.0) & 0x3ff;
        let rids = (0u32..).map(|n| Rid([n.to_be_bytes(); 4].concat().try_into().unwrap()));
        let chosen: Vec<_> = rids.filter(|rid| bucket(&known, rid) == 0).take(20).collect();
        let table = table(true, 0);
        chosen.iter().all(|rid| bucket(table.hasher(), rid) == 0)
    });
}
