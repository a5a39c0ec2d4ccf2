//! Requests inside lookups, with resolvers that refuse, lose or limit questions: what happens to the request, and
//! what the client learns. Runs in virtual time on an emulated path. The resolver and the front are in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::limits;
use super::limits::{A, Act, B, C, D, Excess, Limit, NAMES, Question, REFUSES, World, run};
use crate::dns_path::{HeldBack, LookupWay, Restraint};
use firstflight::link::VirtualTime;
use std::io::ErrorKind;
use std::time::Duration;

/// An ordinary fetch: the address arrives after 60 ms, and the direct copy takes 50 ms.
const DIRECT: Duration = Duration::from_millis(110);

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn the_question_for_the_address_leaves_before_the_names() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |_, _| Act::Pass);
        world.fetch(A).await.unwrap();
        let sent = world.sent();
        assert_eq!(sent[0], Question::Address, "{sent:?}");
        assert_eq!(sent[1..], [Question::Name; NAMES], "{sent:?}");
    });
}

#[test]
fn an_executed_request_is_not_reported_as_failed_when_the_resolver_refuses_the_address() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |question, _| match question {
            Question::Address => Act::Code(5),
            Question::Name => Act::Pass,
        });
        let fetched = world.fetch(A).await.expect("the server has executed the request");
        assert_eq!((fetched.way, world.executed()), (LookupWay::Lookup, 1));
        assert!(fetched.took < millis(70), "{:?}", fetched.took);
    });
}

#[test]
fn an_executed_request_is_not_reported_as_failed_when_the_name_has_no_address() {
    for addresses in [&[][..], &["2001:db8::1"]] {
        run(async |time: VirtualTime| {
            let mut world = World::new(&time, |question, _| match question {
                // Faster than the server's answer.
                Question::Address => Act::Cached,
                Question::Name => Act::Pass,
            });
            world.addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
            let fetched = world.fetch(A).await.expect("the server has executed the request");
            assert_eq!((fetched.way, world.executed()), (LookupWay::Lookup, 1));
        });
    }
}

#[test]
fn an_executed_request_is_not_reported_as_failed_when_the_address_refuses_the_direct_copy() {
    for addresses in [vec![REFUSES], vec![REFUSES, REFUSES]] {
        run(async |time: VirtualTime| {
            let mut world = World::new(&time, |question, _| match question {
                Question::Address => Act::Cached,
                // The server's RST arrives first.
                Question::Name => Act::Late,
            });
            world.addresses = addresses;
            let fetched = world.fetch(A).await.expect("the server has executed the request");
            assert_eq!((fetched.way, world.executed()), (LookupWay::Lookup, 1));
            assert!(fetched.took > millis(100), "{:?}", fetched.took);
        });
    }
}

#[test]
fn a_request_fails_when_the_address_refuses_it_and_no_answer_comes() {
    for addresses in [vec![REFUSES], vec![REFUSES, REFUSES]] {
        run(async |time: VirtualTime| {
            let mut world = World::new(&time, |question, _| match question {
                Question::Address => Act::Cached,
                Question::Name => Act::Drop,
            });
            world.addresses = addresses;
            let error = world.fetch(A).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!((5000..5100).contains(&world.elapsed().as_millis()), "{:?}", world.elapsed());
            assert_eq!(world.executed(), 0);
        });
    }
}

#[test]
fn a_connection_that_is_given_up_at_any_time_leaves_nothing() {
    for act in [Act::Pass, Act::Code(5), Act::Drop] {
        for ms in 0..150 {
            run(async |time: VirtualTime| {
                let world = World::new(&time, move |question, _| match question {
                    Question::Address => act,
                    Question::Name => Act::Pass,
                });
                tokio::select! {
                    biased;
                    _ = world.fetch(A) => {}
                    () = world.pause(millis(ms)) => {}
                }
                world.pause(Duration::from_secs(300)).await;
                assert!(world.connections() == 0 && world.executed() <= 1, "{act:?} {ms}");
            });
        }
    }
}

#[test]
fn a_refused_address_is_asked_for_once_more() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |question, sent| match question {
            Question::Address if sent > millis(400) => Act::Pass,
            Question::Address => Act::Code(5),
            Question::Name => Act::Drop,
        });
        let fetched = world.fetch(A).await.unwrap();
        assert_eq!((fetched.way, world.executed()), (LookupWay::Direct, 1));
        assert_eq!(world.sent().iter().filter(|sent| **sent == Question::Address).count(), 2);
    });
}

#[test]
fn a_request_fails_when_its_address_is_refused_twice_and_no_answer_comes() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |question, _| match question {
            Question::Address => Act::Code(5),
            Question::Name => Act::Drop,
        });
        let error = world.fetch(A).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), world.executed()), ("refused", 0));
        // The client waits five seconds for an answer to the first flight.
        let took = world.elapsed();
        assert!((millis(5000)..millis(5100)).contains(&took), "{took:?}");
    });
}

/// Without names, nothing can have used up the resolver's limit.
#[test]
fn an_ordinary_lookup_that_fails_is_reported_at_once() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |_, _| Act::Code(5));
        world.ordinary().await.unwrap_err();
        assert_eq!(world.elapsed(), millis(10));
    });
}

#[test]
fn no_request_fails_at_a_limiter_that_refuses() {
    run(async |time: VirtualTime| {
        let mut limit = Limit::new(5, Excess::Refuse);
        let world = World::new(&time, move |_, sent| limit.decide(sent));
        let mut ways = Vec::new();
        for _ in 0..8 {
            ways.push(world.fetch(A).await.unwrap().way);
        }
        assert_eq!(world.executed(), 8);
        // The names of the first request are refused. The later requests send none.
        assert_eq!(ways, [&[LookupWay::Direct][..], &[LookupWay::Ordinary; 7]].concat());
    });
}

#[test]
fn a_limiter_that_drops_does_not_delay_a_request() {
    run(async |time: VirtualTime| {
        let mut limit = Limit::new(5, Excess::Drop);
        let world = World::new(&time, move |_, sent| limit.decide(sent));
        for _ in 0..4 {
            let fetched = world.fetch(A).await.unwrap();
            assert!(fetched.took <= DIRECT, "{:?}", fetched.took);
            // The limit has recovered.
            world.pause(millis(2000)).await;
        }
    });
}

#[test]
fn a_limiter_that_drops_is_learnt() {
    run(async |time: VirtualTime| {
        let mut limit = Limit::new(5, Excess::Drop);
        let world = World::new(&time, move |_, sent| limit.decide(sent));
        // The names share what the four address questions left of the limit.
        for fetched in world.four_at_once().await {
            assert_eq!(fetched.way, LookupWay::Direct);
            assert!(fetched.took <= DIRECT, "{:?}", fetched.took);
        }
        world.pause(millis(6000)).await;
        assert!(world.path.is_stopped(limits::zone(A)));
        for round in 0..10 {
            for fetched in world.four_at_once().await {
                assert_eq!(fetched.way, LookupWay::Ordinary, "round {round}");
                assert!(fetched.took <= DIRECT, "round {round}: {:?}", fetched.took);
            }
            world.pause(millis(2000)).await;
        }
    });
}

#[test]
fn while_names_are_late_further_first_flights_are_held_back() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |question, _| match question {
            Question::Address => Act::Pass,
            Question::Name => Act::Drop,
        });
        world.fetch(A).await.unwrap();
        world.pause(millis(200)).await;
        let held_back = world.fetch(B).await.unwrap().held_back.unwrap();
        assert!(matches!(held_back, HeldBack::Manners(Restraint::Unanswered)), "{held_back:?}");
        assert_eq!(held_back.as_str(), "names-unanswered");
    });
}

#[test]
fn one_servfail_does_not_stop_the_dns_path() {
    run(async |time: VirtualTime| {
        let mut names = 0;
        let world = World::new(&time, move |question, _| {
            names += usize::from(question == Question::Name);
            if question == Question::Name && names % NAMES == 1 { Act::Code(2) } else { Act::Pass }
        });
        for _ in 0..4 {
            let fetched = world.fetch(A).await.unwrap();
            assert!(fetched.held_back.is_none(), "{:?}", fetched.held_back);
            world.pause(millis(1000)).await;
        }
        assert!(!world.path.is_stopped(limits::zone(A)));
        assert_eq!(world.path.stops(), []);
    });
}

#[test]
fn another_zones_nxdomain_stops_nothing_here() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |_, _| Act::Pass);
        for (at, other) in [B, C, D].into_iter().enumerate() {
            world.set_zone(other, Act::Code(3));
            assert_eq!(world.fetch(other).await.unwrap().way, LookupWay::Direct);
            world.pause(millis(1000)).await;
            assert!(world.path.is_stopped(limits::zone(other)), "zone {at}");
        }
        let fetched = world.fetch(A).await.unwrap();
        assert_eq!(fetched.way, LookupWay::Lookup, "{:?}", fetched.held_back);
    });
}

#[test]
fn three_stopped_zones_stop_the_resolver() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |_, _| Act::Pass);
        for other in [B, C, D] {
            world.set_zone(other, Act::Code(5));
            assert!(!world.path.is_stopped(limits::zone(A)));
            world.fetch(other).await.unwrap();
            world.pause(millis(1000)).await;
        }
        let held_back = world.fetch(A).await.unwrap().held_back.unwrap();
        assert!(matches!(held_back, HeldBack::Manners(Restraint::Resolver)), "{held_back:?}");
        assert_eq!(held_back.as_str(), "resolver-stopped");
        // Two minutes later:
        world.pause(millis(120_000)).await;
        assert_eq!(world.fetch(A).await.unwrap().way, LookupWay::Lookup);
    });
}

#[test]
fn a_stop_ends_after_minutes_and_one_first_flight_tries_again() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |_, _| Act::Pass);
        world.set_zone(A, Act::Code(5));
        world.fetch(A).await.unwrap();
        world.pause(millis(60_000)).await;
        let held_back = world.fetch(A).await.unwrap().held_back.unwrap();
        assert!(matches!(held_back, HeldBack::Manners(Restraint::Stopped)), "{held_back:?}");
        assert_eq!(held_back.as_str(), "zone-stopped");
        world.set_zone(A, Act::Pass);
        world.pause(millis(60_000)).await;
        assert_eq!(world.fetch(A).await.unwrap().way, LookupWay::Lookup);
        // Once the answers to all names have arrived, nothing is remembered against the resolver.
        world.pause(millis(100)).await;
        assert_eq!(world.path.stops(), []);
    });
}

/// The server's answer shows that the front received the names, so the resolver loses only answers.
#[test]
fn a_resolver_whose_answers_are_lost_is_asked_again() {
    run(async |time: VirtualTime| {
        let world = World::new(&time, |question, _| match question {
            Question::Address => Act::Pass,
            Question::Name => Act::PassInSilence,
        });
        for _ in 0..4 {
            assert_eq!(world.fetch(A).await.unwrap().way, LookupWay::Lookup);
            world.pause(millis(6000)).await;
        }
        assert_eq!(world.path.stops(), []);
    });
}
