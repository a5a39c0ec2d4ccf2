//! Endpoints with several shards, in virtual time: packets come to the wrong queues, get lost, and links fail.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds of the random test instead of the default, `FIRSTFLIGHT_SEED=n` one of them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::queues::{Deal, Dice, Queues, from_port, is_first_flight};
use firstflight::credential::{
    FastOpenPolicy, KeyRing, OneTimeCookies, OneTimeKeys, PendingLimit, Reason, Replays, Scheme, SerialTable,
};
use firstflight::link::{PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{
    Config, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Sharding, Stream, Time, Workers,
    block_on_virtual,
};
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 80));
const SEEDS: u64 = 60;
/// Virtual time that is more than any transfer takes.
const LONG: Duration = Duration::from_secs(3600);

fn fast() -> ConnectConfig {
    ConnectConfig::default().fast_open(true).replay_safe(true)
}

/// A client and a server with several shards, on a path with several queues at both ends.
struct World {
    time: Time,
    client: Endpoint,
    server: Endpoint,
    client_queues: Queues,
    server_queues: Queues,
    shards: [usize; 2],
}

impl World {
    /// Starts both within virtual time. Each packet comes to any queue.
    fn new(clock: &VirtualTime, path: PathConfig, shards: [usize; 2], seed: u64) -> Self {
        Self::dealt(clock, path, shards, seed, Dice::deal)
    }

    fn dealt(
        clock: &VirtualTime,
        path: PathConfig,
        shards: [usize; 2],
        seed: u64,
        deal: fn(Dice) -> Deal,
    ) -> Self {
        Self::on_queues(clock, path, shards, seed, deal, true)
    }

    /// `learn`: the links learn the queues of flows.
    fn on_queues(
        clock: &VirtualTime,
        path: PathConfig,
        shards: [usize; 2],
        seed: u64,
        deal: fn(Dice) -> Deal,
        learn: bool,
    ) -> Self {
        let time = Time::from(clock.clone());
        let (a, b) = virtual_time_pair(path.clone(), path, seed, clock).unwrap();
        let client_queues = Queues::new(a, shards[0], deal(Dice(seed))).learns_flows(learn);
        let server_queues = Queues::new(b, shards[1], deal(Dice(!seed))).learns_flows(learn);
        let start = |queues: &Queues, count, ip, secret: u8| {
            let mut bytes = [secret; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            let workers = Workers::on(vec![Handle::current(); count]).unwrap();
            let sharding = Sharding::new(&workers).time(&time);
            Endpoint::sharded(&Config::new(vec![ip], bytes), &sharding, queues.links()).unwrap()
        };
        let client = start(&client_queues, shards[0], CLIENT, 1);
        let server = start(&server_queues, shards[1], SERVER.ip(), 2);
        Self { time, client, server, client_queues, server_queues, shards }
    }

    fn listen(&self, one_time: bool) -> Listener {
        let keys = Arc::new(KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap()));
        let mut policy = FastOpenPolicy::new(keys, Arc::new(PendingLimit::with_clients(4096, 4096)));
        if one_time {
            let serials = SerialTable::own(1, 1, 100_000);
            serials.extend(100_000);
            let cookies = OneTimeCookies::new(OneTimeKeys::from_bytes([7; 32]), Arc::new(serials));
            policy.verifier = Some(Arc::new(cookies));
            policy.replays = Replays::AtMostOnce;
        }
        self.server.listen(ListenConfig::new(SERVER).fast_open(Some(policy))).unwrap()
    }

    /// A request of five bytes, and its answer. The server closes.
    async fn visit(&self, request: &[u8; 5]) -> Stream {
        let first = FirstFlight::safely_replayable(request);
        let mut stream = self.client.connect(SERVER, first, &fast()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, request);
        stream
    }
}

fn run(clock: &VirtualTime, work: impl Future<Output = ()>) {
    block_on_virtual(clock, work).unwrap();
}

/// Sends each connection what it sends, until its end. `split`: each shard has a listener of its own.
fn echo(listener: Listener, split: bool) {
    let listeners = if split { listener.split() } else { vec![listener] };
    for listener in listeners {
        tokio::spawn(async move {
            while let Ok(stream) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                });
            }
        });
    }
}

/// The bytes of a transfer.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..len).map(|_| dice.roll(256) as u8).collect()
}

/// Executions of each order, as a server that takes a whole request and executes it then.
type Orders = Arc<Mutex<HashMap<Vec<u8>, u32>>>;

/// The first 16 bytes are the order's number, and how many bytes follow. The answer is the same bytes.
fn execute(listener: Listener, split: bool, orders: &Orders) {
    let listeners = if split { listener.split() } else { vec![listener] };
    for listener in listeners {
        let orders = Arc::clone(orders);
        tokio::spawn(async move {
            while let Ok(mut stream) = listener.accept().await {
                let orders = Arc::clone(&orders);
                tokio::spawn(async move {
                    let mut order = vec![0; 16];
                    stream.read_exact(&mut order).await?;
                    let len = u64::from_le_bytes(order[8..].try_into().unwrap()) as usize;
                    order.resize(16 + len, 0);
                    stream.read_exact(&mut order[16..]).await?;
                    *orders.lock().unwrap().entry(order[..8].to_vec()).or_default() += 1;
                    stream.write_all(&order).await?;
                    stream.shutdown().await
                });
            }
        });
    }
}

/// One client task: some orders one after another. Returns how many were answered.
async fn order(client: Endpoint, seed: u64, task: u64) -> u32 {
    let mut dice = Dice(seed ^ task << 32);
    let mut answered = 0;
    for n in 0..3_u64 {
        let len = [0, 300, 1000, 20_000][dice.roll(4)];
        let mut request = (task << 8 | n).to_le_bytes().to_vec();
        request.extend_from_slice(&(len as u64).to_le_bytes());
        request.extend(bytes(seed ^ n, len));
        // Odd ones must not run twice.
        let first = match n % 2 {
            0 => FirstFlight::safely_replayable(&request),
            _ => FirstFlight::at_most_once(&request),
        };
        let Ok(mut stream) = client.connect(SERVER, first, &fast()).await else { continue };
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).await.is_ok() {
            assert!(answer == request, "seed {seed}: another answer");
            answered += 1;
        }
    }
    answered
}

/// Transfers at random under loss, with packets at wrong queues, while links fail and are made again.
fn random(seed: u64) {
    let mut dice = Dice(seed);
    let shards = [[2, 2], [2, 4], [4, 2], [4, 4]][dice.roll(4)];
    let loss = [0.0, 0.02, 0.05][dice.roll(3)];
    let path = PathConfig::with_delay(Duration::from_millis(5)).loss(loss).duplicate(loss).reorder(loss);
    let (split, one_time, tears) = (dice.roll(2) == 0, dice.roll(2) == 0, dice.roll(4));
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let time = Time::from(clock.clone());
    run(&clock, async {
        let path = path.reorder_delay(Duration::from_millis(3));
        let world = World::on_queues(&clock, path, shards, seed, Dice::deal, seed.is_multiple_of(2));
        let orders = Orders::default();
        execute(world.listen(one_time), split, &orders);
        let tasks: Vec<_> = (0..8).map(|n| tokio::spawn(order(world.client.clone(), seed, n))).collect();
        for _ in 0..tears {
            world.time.sleep(Duration::from_millis(dice.roll(60) as u64)).await;
            let end = dice.roll(2);
            let queues = if end == 0 { &world.client_queues } else { &world.server_queues };
            queues.tear(dice.roll(world.shards[end]), dice.roll(4) as u32);
        }
        let all = async {
            let mut answered = 0;
            for task in tasks {
                answered += task.await.unwrap();
            }
            answered
        };
        let answered = time.timeout(LONG, all).await.expect("the transfers hang");
        assert_eq!(answered, 24, "seed {seed}: connections failed");
        for (order, times) in &*orders.lock().unwrap() {
            let safe = order[0] % 2 == 0;
            assert!(safe || *times == 1, "seed {seed}: order {order:?} ran {times} times");
        }
        assert_eq!(orders.lock().unwrap().len(), 24, "seed {seed}");
        let both = [&world.client, &world.server];
        let handed: u64 = both.map(|end| end.counters().handed_over).iter().sum();
        assert!(handed > 0, "seed {seed}: no packet came to a wrong queue");
        // Each packet is counted once, also if it is handed over. Such a path duplicates none.
        for [here, there] in [[0, 1], [1, 0]] {
            let [got, sent] = [both[here].counters().packets_in, both[there].counters().packets_out];
            assert!(loss > 0.0 || got <= sent, "seed {seed}: {got} packets in of {sent}");
        }
        both[0].shutdown(Duration::from_secs(60)).await;
        both[1].shutdown(Duration::from_secs(60)).await;
    });
}

#[test]
fn transfers_stay_whole_and_nothing_runs_twice() {
    if let Some(seed) = std::env::var("FIRSTFLIGHT_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return random(seed);
    }
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        random(seed);
    }
    println!("{seeds} seeds");
}

/// Answers requests of five bytes, and closes. Counts those that came before their handshake was complete.
fn answer(listener: Listener, early: &Arc<Mutex<usize>>) {
    let early = Arc::clone(early);
    tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            let early = Arc::clone(&early);
            tokio::spawn(async move {
                let is_early = stream.is_early();
                let mut request = [0; 5];
                stream.read_exact(&mut request).await?;
                *early.lock().unwrap() += usize::from(is_early);
                stream.write_all(&request).await?;
                stream.shutdown().await
            });
        }
    });
}

/// Runs a visit with a cookie, and 64 copies of its first flight from other ports at all queues. Returns how many of the
/// 65 ran before their handshake was complete.
fn copies_that_run(one_time: bool) -> usize {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let mut ran = 0;
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [1, 4], 7);
        let listener = world.listen(one_time);
        let early = Arc::default();
        answer(listener, &early);
        world.visit(b"hello").await;
        world.client_queues.record();
        let stream = world.visit(b"order").await;
        assert!(stream.outcome().is_accepted());
        let sent = world.client_queues.record();
        let first = sent.iter().find(|packet| is_first_flight(packet)).unwrap();
        for n in 0..64_u16 {
            world.server_queues.inject(usize::from(n) % 4, from_port(first, 2000 + 101 * n));
        }
        world.time.sleep(Duration::from_secs(10)).await;
        let by_shard = world.server.counters_by_shard();
        assert!(by_shard.iter().all(|shard| shard.passive_opens > 0), "the copies reach all shards");
        assert!(world.server.counters().handed_over > 0);
        ran = *early.lock().unwrap();
    });
    ran
}

#[test]
fn a_first_flight_copied_to_other_ports_and_shards_runs_once() {
    assert_eq!(copies_that_run(true), 1);
    // Without one-time cookies every copy runs, so the test sees what it looks for.
    assert_eq!(copies_that_run(false), 65);
}

/// The ACK that makes a one-time cookie good waits in the queue of one shard, and the runtime has not asked the system yet. Then
/// the SYN with that cookie comes to the other shard.
#[test]
fn a_cookie_is_good_although_the_runtime_does_not_know_of_its_ack() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        let syns_apart = |_| -> Deal {
            Box::new(|packet| {
                let tcp = usize::from(packet[0] & 15) * 4;
                usize::from(packet[tcp + 13] & 2 != 0)
            })
        };
        let path = PathConfig::with_delay(Duration::from_millis(5));
        let world = World::dealt(&clock, path, [1, 2], 7, syns_apart);
        answer(world.listen(true), &Arc::default());
        world.visit(b"hello").await;
        world.server_queues.silence(0);
        for visit in 0..3 {
            let outcome = world.visit(b"order").await.outcome();
            assert!(outcome.is_accepted(), "visit {visit}: {outcome}");
        }
    });
}

#[test]
fn a_cookie_that_one_shard_got_is_known_to_all() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        // The flows keep to their queues: a response that overtakes its SYN-ACK is dropped, and counts as a failure.
        let path = PathConfig::with_delay(Duration::from_millis(5));
        let world = World::dealt(&clock, path, [4, 2], 3, Dice::deal_flows);
        answer(world.listen(false), &Arc::default());
        let first = world.visit(b"hello").await;
        assert_eq!(first.outcome().reason(), Some(Reason::NoCredential));
        // Each connect is on the next shard.
        let mut accepted = 0;
        for n in 0..8 {
            let outcome = world.visit(b"hello").await.outcome();
            assert_ne!(outcome.reason(), Some(Reason::NoCredential), "visit {n}: {outcome}");
            accepted += u32::from(outcome.is_accepted());
        }
        assert_eq!(accepted, 8);
        let opened: Vec<_> =
            world.client.counters_by_shard().iter().map(|shard| shard.active_opens).collect();
        assert!(opened.iter().all(|opens| *opens >= 2), "{opened:?}");
        assert!(world.client.counters().handed_over > 0, "no answer came to a wrong queue");
        world.client.forget_credentials();
        let reason = world.visit(b"hello").await.outcome().reason();
        assert_eq!(reason, Some(Reason::NoCredential), "all shards forget");
    });
}

/// A network card keeps a flow on one queue, and learns nothing from what is sent.
#[test]
fn on_a_card_a_flow_stays_with_the_queue_of_its_syn() {
    for (learn, hands_over) in [(false, false), (true, true)] {
        let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
        run(&clock, async {
            let path = PathConfig::with_delay(Duration::from_millis(5));
            let world = World::on_queues(&clock, path, [1, 4], 3, Dice::deal_flows, learn);
            answer(world.listen(false), &Arc::default());
            for _ in 0..40 {
                world.visit(b"hello").await;
            }
            let shards = world.server.counters_by_shard();
            assert!(shards.iter().all(|shard| shard.passive_opens > 0));
            assert_eq!(world.server.counters().handed_over > 0, hands_over);
        });
    }
}

#[test]
fn a_failure_that_one_shard_met_is_known_to_all() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [4, 2], 3);
        answer(world.listen(false), &Arc::default());
        world.visit(b"hello").await;
        world.client_queues.drop_first_flights();
        // The visits go by different shards. Four that are lost one after the other are a failure.
        for _ in 0..4 {
            let reason = world.visit(b"hello").await.outcome().reason();
            assert_eq!(reason, Some(Reason::SynTimedOut));
        }
        for _ in 0..8 {
            let reason = world.visit(b"hello").await.outcome().reason();
            assert_eq!(reason, Some(Reason::FailureMemory));
        }
    });
}

#[test]
fn each_shard_has_a_listener_after_a_split() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [2, 4], 5);
        let listeners = world.listen(false).split();
        assert_eq!((listeners.len(), world.server.shards()), (4, 4));
        let taken = Arc::new(Mutex::new([0; 4]));
        for (index, listener) in listeners.into_iter().enumerate() {
            let taken = Arc::clone(&taken);
            tokio::spawn(async move {
                while let Ok(mut stream) = listener.accept().await {
                    taken.lock().unwrap()[index] += 1;
                    tokio::spawn(async move { stream.shutdown().await });
                }
            });
        }
        for _ in 0..64 {
            let mut stream = world.client.connect(SERVER, FirstFlight::empty(), &fast()).await.unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        }
        let taken = *taken.lock().unwrap();
        assert_eq!(taken.iter().sum::<usize>(), 64);
        assert!(taken.iter().all(|n| *n > 0), "{taken:?}");
    });
}

#[test]
fn a_fixed_local_port_is_used_by_the_shard_that_owns_it() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [4, 4], 5);
        echo(world.listen(false), false);
        for port in 5000..5032 {
            let local = SocketAddr::new(CLIENT, port);
            let config = ConnectConfig::default().local(Some(local));
            let mut stream = world.client.connect(SERVER, FirstFlight::empty(), &config).await.unwrap();
            assert_eq!(stream.local_addr().unwrap(), local);
            stream.write_all(b"abc").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"abc");
        }
    });
}

#[test]
fn shutdown_waits_for_the_connections_of_all_shards() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let time = Time::from(clock.clone());
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [2, 4], 5);
        let listener = world.listen(false);
        let mut pairs = Vec::new();
        for _ in 0..16 {
            // Without Fast Open there is no second attempt, which would be a connection of its own.
            let config = ConnectConfig::default();
            let connect = world.client.connect(SERVER, FirstFlight::empty(), &config);
            let (a, b) = tokio::join!(connect, listener.accept());
            pairs.push((a.unwrap(), b.unwrap()));
        }
        assert_eq!((world.client.connections(), world.server.connections()), (16, 16));
        let server = world.server.clone();
        let stopping = tokio::spawn(async move { server.shutdown(LONG).await });
        time.sleep(Duration::from_secs(5)).await;
        assert!(!stopping.is_finished(), "connections are open on all shards");
        drop(pairs);
        assert!(time.timeout(Duration::from_secs(60), stopping).await.is_some());
        assert_eq!(world.server.connections(), 0);
        assert!(listener.accept().await.is_err(), "the endpoint has stopped");
    });
}

/// The engines of all shards stop when nothing refers to them, and not before: a shard without handles still passes
/// packets on.
#[test]
fn a_stream_keeps_all_shards_alive() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let time = Time::from(clock.clone());
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [4, 2], 9);
        echo(world.listen(false), true);
        let mut stream = world.client.connect(SERVER, FirstFlight::empty(), &fast()).await.unwrap();
        let World { client, server: _server, client_queues, .. } = world;
        drop(client);
        for n in 0..20_u8 {
            time.sleep(Duration::from_millis(100)).await;
            stream.write_all(&[n; 3000]).await.unwrap();
            let mut answer = vec![0; 3000];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, [n; 3000]);
        }
        client_queues.record();
        drop(stream);
        time.sleep(Duration::from_secs(1)).await;
        assert!(!client_queues.record().is_empty(), "it is closed in order");
    });
}

#[test]
fn a_link_that_cannot_be_made_again_stops_the_endpoint() {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    run(&clock, async {
        let world = World::new(&clock, PathConfig::with_delay(Duration::from_millis(5)), [2, 2], 9);
        let listener = world.listen(false);
        world.server_queues.tear(1, u32::MAX);
        let accepted = world.time.timeout(LONG, listener.accept()).await;
        assert!(accepted.is_some_and(|result| result.is_err()));
        let refused = world.server.connect(SERVER, FirstFlight::empty(), &fast()).await;
        assert!(refused.is_err());
    });
}

/// A table of queues, as a card's.
fn table(from: SocketAddr, to: SocketAddr) -> usize {
    const TABLE: [usize; 8] = [3, 1, 0, 2, 2, 0, 3, 1];
    TABLE[usize::from(from.port().wrapping_mul(31) ^ to.port().wrapping_mul(17)) / 5 % 8]
}

/// 60 visits from 4 shards at queues of a card, which have these local ports. Returns how many packets went from one shard to another.
fn by_a_card(ports: std::ops::RangeInclusive<u16>) -> u64 {
    let clock = VirtualTime::new(Duration::from_secs(1_700_000_000));
    let time = Time::from(clock.clone());
    let mut handed_over = 0;
    run(&clock, async {
        let path = PathConfig::with_delay(Duration::from_millis(5));
        let (a, b) = virtual_time_pair(path.clone(), path, 1, &clock).unwrap();
        let queues = Queues::new(a, 4, Dice(1).deal()).steered(table);
        let sharding = Sharding::new(&Workers::on(vec![Handle::current(); 4]).unwrap()).time(&time);
        let config = Config::new(vec![CLIENT], [1; 32]).ports(ports);
        let client = Endpoint::sharded(&config, &sharding, queues.links()).unwrap();
        let server = Endpoint::in_time(Config::new(vec![SERVER.ip()], [2; 32]), b, &time);
        echo(server.listen(ListenConfig::new(SERVER)).unwrap(), false);
        for n in 0..15 {
            // Four at a time, with ports of their own.
            let visits = (0..4).map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let first = FirstFlight::safely_replayable(b"hello");
                    let mut stream = client.connect(SERVER, first, &fast()).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await.unwrap();
                    assert_eq!(answer, b"hello");
                    stream.local_addr().unwrap().port()
                })
            });
            let mut used = Vec::new();
            for visit in visits.collect::<Vec<_>>() {
                used.push(visit.await.unwrap());
            }
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), 4, "round {n}");
            // Longer than TIME-WAIT.
            time.sleep(Duration::from_secs(130)).await;
        }
        handed_over = client.counters().handed_over;
    });
    handed_over
}

#[test]
fn connects_by_a_card_choose_ports_whose_answers_come_to_their_queue() {
    assert_eq!(by_a_card(32_768..=60_999), 0);
}

/// Four ports, all of which may come to one queue: then answers are posted, and no two shards have one connection.
#[test]
fn connects_by_a_card_go_on_where_no_port_comes_to_their_queue() {
    assert!(by_a_card(40_000..=40_003) > 0);
}
