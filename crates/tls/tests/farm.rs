//! A farm with a real Redis: two acceptors, each with its own connection to the store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use crate::common::sealed::{ONCE, PROTOCOL, Parts, SAFE, Sealed, acceptor, finishes, keys, send};
use crate::common::{Ca, NAME, exchange, first_write, safe, site, wire};
use crate::process::Redis;
use firstflight::Time;
use firstflight::link::VirtualTime;
use firstflight_redis::{Options, RedisSessions, RedisStore};
use firstflight_tls::seal::{Flags, Why};
use firstflight_tls::{
    AcceptError, Acceptor, Connector, Early, SealServer, SealedInfo, SessionStore, Tickets,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeroize::Zeroizing;

const KEY: [u8; 32] = [4; 32];

/// With a long time limit: these tests check the answers, not their time.
async fn member(redis: &Redis) -> Arc<RedisStore> {
    let options = Options { within: Duration::from_secs(10), ..Options::default() };
    Arc::new(RedisStore::connect(&redis.url(), options).await.unwrap())
}

/// Two members that have met the same memory: the second one has begun a new one, as it has no state file.
async fn members(redis: &Redis) -> [Arc<RedisStore>; 2] {
    let members = [member(redis).await, member(redis).await];
    for member in &members {
        let sessions = RedisSessions::new(Arc::clone(member), &KEY, RedisSessions::BYTES);
        loop {
            let _ = sessions.take([0; 32]).await;
            if member.is_connected() {
                break;
            }
            while !member.is_connected() {
                tokio::task::yield_now().await;
            }
        }
    }
    members
}

struct Farm {
    redis: Redis,
    world: Sealed,
    stores: [Arc<RedisStore>; 2],
    members: [Acceptor; 2],
}

impl Farm {
    async fn start() -> Option<Self> {
        let redis = Redis::start(&[])?;
        let stores = members(&redis).await;
        let world = Sealed::new();
        let members = [0, 1].map(|at: usize| {
            // Its time stands still, so that a slow machine is not a store without an answer.
            let time = Time::from(VirtualTime::new(Time::system().unix()));
            let seal =
                SealServer::builder(keys(7, 5), 443).shared_table(Arc::clone(&stores[at]) as _).time(time);
            // A restart of the store may take many flights.
            let seal = seal.openings(NonZeroU32::MAX);
            let sessions = RedisSessions::new(Arc::clone(&stores[at]), &KEY, RedisSessions::BYTES);
            let tickets = Tickets::Sessions(Arc::new(sessions));
            acceptor(&world.ca, seal.build().unwrap()).tickets(tickets).build().unwrap()
        });
        Some(Self { redis, world, stores, members })
    }

    /// A flight comes to a member, and its client completes the handshake.
    async fn flight(&self, member: usize, rid: u8, flags: Flags) -> Result<SealedInfo, AcceptError> {
        let mut raw = Parts { rid, ..Parts::new(self.world.config(), flags) }.seal();
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

fn why(result: Result<SealedInfo, AcceptError>) -> (bool, Why) {
    match result {
        Ok(info) => (true, info.why),
        Err(AcceptError::NotRun(why)) => (false, why),
        Err(other) => unreachable!("{other:?}"),
    }
}

/// The memory in Redis is new, so nothing runs early. Each request runs at one member all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_request_runs_at_one_member() {
    let Some(mut farm) = Farm::start().await else { return };
    for (rid, flags, expected) in [(1, SAFE, Why::Floor), (2, ONCE, Why::NotReplayable)] {
        assert_eq!(why(farm.flight(0, rid, flags).await), (true, expected));
        assert_eq!(why(farm.flight(1, rid, flags).await), (false, Why::Seen));
    }
    // Both at once.
    for rid in 10..20 {
        let (one, two) = tokio::join!(farm.flight(0, rid, SAFE), farm.flight(1, rid, SAFE));
        let mut ran = [why(one), why(two)];
        ran.sort_by_key(|(ran, _)| *ran);
        assert_eq!(ran, [(false, Why::Seen), (true, Why::Floor)], "{rid}");
    }
    // Without the store, what may run twice runs after Finished, and is reported later.
    farm.redis.kill();
    assert_eq!(why(farm.flight(0, 30, SAFE).await), (true, Why::NoTable));
    assert!(farm.stores[0].owes());
    farm.redis.restart();
    while !farm.stores.iter().all(|store| store.is_connected()) || farm.stores[0].owes() {
        let _ = farm.flight(1, 40, ONCE).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(why(farm.flight(1, 30, SAFE).await), (false, Why::Seen));
}

/// A member of a farm for TLS without seals.
fn plain(ca: &Ca, store: &Arc<RedisStore>) -> Acceptor {
    let made = ca.certify(NAME);
    let sessions = RedisSessions::new(Arc::clone(store), &KEY, RedisSessions::BYTES);
    let builder = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
    builder.tickets(Tickets::Sessions(Arc::new(sessions))).build().unwrap()
}

/// A visit that ends well. Returns what the client sent first, whether the session was resumed, and what became of early data.
async fn visit(connector: &Connector, member: &Acceptor) -> (Vec<u8>, bool, Early) {
    let (ours, theirs) = wire();
    let writes = Arc::clone(&ours.writes);
    let site = site();
    let (ours, theirs) =
        tokio::join!(connector.connect_over(ours, &site, safe()), member.accept_over(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    exchange(&mut ours, &mut theirs, safe().data()).await;
    let handshake = ours.handshake();
    assert_eq!(handshake.early == Early::Accepted, theirs.early_bytes() > 0);
    (first_write(&writes), handshake.resumed, handshake.early)
}

async fn sessions_in(redis: &Redis, number: usize) {
    while redis.keys("*:session:*").len() != number {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_resumed_with_early_data_at_every_member_and_taken_once() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (ca, stores) = (Ca::new(), members(&redis).await);
    let members = stores.each_ref().map(|store| plain(&ca, store));
    let connector = ca.connector().http1().build().unwrap();
    assert!(!visit(&connector, &members[0]).await.1);
    sessions_in(&redis, 2).await;
    for member in [1, 0, 1] {
        let (first, resumed, early) = visit(&connector, &members[member]).await;
        assert!(resumed && early == Early::Accepted);
        // A copy of its first flight, at both members.
        for member in &members {
            let (mut attacker, theirs) = wire();
            attacker.write_all(&first).await.unwrap();
            attacker.shutdown().await.unwrap();
            let mut stream = member.accept_over(theirs).await.unwrap();
            let mut nothing = Vec::new();
            assert!(stream.read_to_end(&mut nothing).await.is_err() && nothing.is_empty());
            assert_eq!(stream.handshake().early, Early::None);
        }
    }
    // Redis does not learn a session, and forgets it after a day.
    for key in redis.keys("*:session:*") {
        assert!((80_000_000..=86_400_000).contains(&redis.ttl_ms(&key)));
    }
}

#[tokio::test]
async fn what_redis_has_is_encrypted_and_bounded() {
    let Some(redis) = Redis::start(&[]) else { return };
    let [store, other] = members(&redis).await;
    let sessions = RedisSessions::new(Arc::clone(&store), &KEY, 1000);
    let secret = Zeroizing::new(b"a very secret session".to_vec());
    for n in 0..9 {
        SessionStore::put(&sessions, [n; 32], secret.clone()).await;
    }
    let keys = redis.keys("*:session:*");
    assert_eq!(keys.len(), 3, "three of 317 bytes");
    for key in &keys {
        let value = redis.get(key);
        assert!(!value.windows(6).any(|part| part == b"secret"));
    }
    // Another key; the right one at another member, once.
    let wrong = RedisSessions::new(Arc::clone(&other), &[5; 32], 1000);
    assert!(SessionStore::take(&wrong, [6; 32]).await.is_none());
    let right = RedisSessions::new(other, &KEY, 1000);
    assert_eq!(SessionStore::take(&right, [8; 32]).await, Some(secret.clone()));
    assert!(SessionStore::take(&sessions, [8; 32]).await.is_none());
    // A value under another name, by somebody who can write to Redis.
    let (from, to) = (name(&keys, 7), name(&keys, 7).replace("07", "01"));
    redis.cli(&["RENAME", &from, &to]);
    assert!(SessionStore::take(&right, [1; 32]).await.is_none());
    // What is too long is not kept.
    SessionStore::put(&right, [9; 32], Zeroizing::new(vec![0; 20_000])).await;
    assert!(SessionStore::take(&right, [9; 32]).await.is_none());
    assert!(store.is_connected());
}

fn name(keys: &[String], number: u8) -> String {
    keys.iter().find(|key| key.ends_with(&format!("{number:02x}").repeat(32))).unwrap().clone()
}

/// A Redis that is gone, or that a replica has replaced with older data: no session, never an old one.
#[tokio::test]
async fn sessions_that_come_back_are_not_valid() {
    let Some(mut redis) = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let [store, _] = members(&redis).await;
    let sessions = RedisSessions::new(Arc::clone(&store), &KEY, 10_000);
    SessionStore::put(&sessions, [1; 32], Zeroizing::new(vec![1])).await;
    redis.kill();
    assert!(SessionStore::take(&sessions, [1; 32]).await.is_none());
    redis.restart();
    while !store.is_connected() {
        tokio::task::yield_now().await;
    }
    assert_eq!(redis.keys("*:session:*").len(), 1, "it came back from the disk");
    assert!(SessionStore::take(&sessions, [1; 32]).await.is_none());
    SessionStore::put(&sessions, [2; 32], Zeroizing::new(vec![2])).await;
    assert_eq!(SessionStore::take(&sessions, [2; 32]).await.as_deref(), Some(&vec![2]));
    // A user that may not GETDEL. First flights go on.
    redis.cli(&["ACL", "SETUSER", "default", "-getdel"]);
    SessionStore::put(&sessions, [3; 32], Zeroizing::new(vec![3])).await;
    assert!(SessionStore::take(&sessions, [3; 32]).await.is_none());
    assert!(store.is_connected());
}
