//! A farm whose members share a strike register: each sealed request runs at one of them, whatever the table does.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::sealed::{ONCE, Parts, SAFE, Sealed, acceptor, finishes, keys, rng, send};
use crate::common::wire;
use firstflight::Time;
use firstflight::credential::asap::Identity;
use firstflight::wire::Clock;
use firstflight_tls::seal::{
    Bind, Flags, MemoryRegister, Question, RegisterAnswer, RegisterFuture, RegisterLimits,
    SharedStrikeRegister, StrikeRegister, Why,
};
use firstflight_tls::{AcceptError, Acceptor, SealServer, SealedInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// A table in memory as a store across the network, which can stop to answer.
#[derive(Debug)]
struct Store {
    table: Mutex<MemoryRegister>,
    silent: AtomicBool,
}

impl Store {
    fn new() -> Arc<Self> {
        let time = Time::system();
        let clock = Clock {
            mono: time.now(),
            unix_ms: time.unix().as_millis() as u64,
            uncertainty: Duration::from_secs(1),
        };
        let table = MemoryRegister::new(RegisterLimits::default(), &clock, true, &mut rng(1));
        Arc::new(Self { table: Mutex::new(table), silent: AtomicBool::new(false) })
    }
}

impl SharedStrikeRegister for Store {
    fn test_and_set(&self, question: &Question) -> RegisterFuture<'_> {
        let question = *question;
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.silent.load(Ordering::Relaxed) {
                std::future::pending().await
            }
            self.table.lock().unwrap().test_and_set(&question, Time::system().now())
        })
    }
}

struct Farm {
    world: Sealed,
    store: Arc<Store>,
    members: [Acceptor; 2],
}

impl Farm {
    fn new() -> Self {
        let (world, store) = (Sealed::new(), Store::new());
        let member = || {
            let table = Arc::clone(&store) as Arc<dyn SharedStrikeRegister>;
            let seal = SealServer::builder(keys(7, 5), 443).shared_table(table).build().unwrap();
            acceptor(&world.ca, seal).build().unwrap()
        };
        let members = [member(), member()];
        Self { members, world, store }
    }

    /// A flight of one request comes to a member, and the client of it completes the handshake.
    async fn visit(
        &self,
        member: usize,
        rid: u8,
        flags: Flags,
        bind: Bind,
    ) -> Result<SealedInfo, AcceptError> {
        let mut raw = Parts { rid, bind, ..Parts::new(self.world.config(), flags) }.seal();
        let (mut ours, theirs) = wire();
        ours.write_all(&raw.bytes).await.unwrap();
        let member = self.members[member].clone();
        let serving = tokio::spawn(async move { member.accept_over(theirs).await });
        if finishes(&mut ours, &mut raw.client).await {
            send(&mut ours, &mut raw.client).await;
        }
        serving.await.unwrap().map(|stream| *stream.sealed_info().unwrap())
    }
}

fn bound() -> Bind {
    Bind::new(&[1; 32], &[2; 8], &Identity::name(common::NAME, 443))
}

fn not_run(result: Result<SealedInfo, AcceptError>) -> Why {
    match result {
        Err(AcceptError::NotRun(why)) => why,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_runs_at_one_member() {
    let farm = Farm::new();
    for (rid, flags) in [(1, SAFE), (2, ONCE)] {
        let info = farm.visit(0, rid, flags, Bind::NONE).await.unwrap();
        assert_eq!(info.ran_early, flags.replayable, "no floor of the member's own");
        for member in [0, 1] {
            assert_eq!(not_run(farm.visit(member, rid, flags, Bind::NONE).await), Why::Seen);
        }
    }
}

/// Nothing runs early then. After Finished runs what may run twice, and what cannot have run before.
#[tokio::test(start_paused = true)]
async fn while_the_store_does_not_answer() {
    let farm = Farm::new();
    farm.store.silent.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    let info = farm.visit(0, 1, SAFE, Bind::NONE).await.unwrap();
    assert_eq!((info.ran_early, info.why), (false, Why::NoTable));
    assert_eq!(began.elapsed(), Question::WITHIN, "it is asked once");
    let info = farm.visit(0, 2, ONCE, Bind::NONE).await.unwrap();
    assert_eq!((info.ran_early, info.why), (false, Why::NotReplayable));
    // It may have run under its block, at another member.
    assert_eq!(not_run(farm.visit(0, 3, ONCE, bound()).await), Why::NoTable);
    assert_eq!(began.elapsed(), 3 * Question::WITHIN);
    farm.store.silent.store(false, Ordering::Relaxed);
    assert!(farm.visit(1, 3, ONCE, bound()).await.is_ok());
    assert!(farm.visit(0, 4, SAFE, Bind::NONE).await.unwrap().ran_early);
}

/// An answer that was `Unavailable` is one that was late.
#[tokio::test]
async fn a_store_says_that_it_cannot_answer() {
    #[derive(Debug)]
    struct Lost;
    impl SharedStrikeRegister for Lost {
        fn test_and_set(&self, _: &Question) -> RegisterFuture<'_> {
            Box::pin(std::future::ready(RegisterAnswer::Unavailable))
        }
    }
    let mut farm = Farm::new();
    let seal = SealServer::builder(keys(7, 5), 443).shared_table(Arc::new(Lost)).build().unwrap();
    farm.members[0] = acceptor(&farm.world.ca, seal).build().unwrap();
    let info = farm.visit(0, 1, SAFE, Bind::NONE).await.unwrap();
    assert_eq!((info.ran_early, info.why), (false, Why::NoTable));
}
