//! Masters that are replaced by their replicas: `docs/farm-masters.md`. Real servers and sentinels.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, activate, redeem, refused};
use crate::server::Redis;
use crate::server::process::free_port;
use crate::server::sentinel::{Liar, Sentinel, followed, replicated};
use crate::server::shown::{Shown, connected, member, options};
use firstflight::SharedStore;
use firstflight::credential::Reason;
use firstflight_redis::{ConnectError, RedisStore};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use tokio::time::sleep;

/// A master and its two replicas.
struct Servers {
    ports: [u16; 3],
    all: [Redis; 3],
}

impl Servers {
    fn start() -> Option<Self> {
        let ports = [free_port(), free_port(), free_port()];
        let master = replicated(ports[0], None)?;
        let one = replicated(ports[1], Some(ports[0]))?;
        let two = replicated(ports[2], Some(ports[0]))?;
        followed(&master, 2);
        Some(Self { ports, all: [master, one, two] })
    }

    fn signal(&self, server: usize, signal: Signal) {
        kill(Pid::from_raw(self.all[server].pid()), signal).unwrap();
    }

    fn follow(&self, server: usize, master: usize) {
        self.all[server].cli(&["REPLICAOF", "127.0.0.1", &self.ports[master].to_string()]);
    }
}

/// The sentinels are wrong for ever: one member is told the old master, which would go on alone, and the other one the new
/// master.
#[tokio::test]
async fn two_masters_do_not_both_accept() {
    let Some(servers) = Servers::start() else { return };
    let (old, new) = (Liar::start(servers.ports[0]), Liar::start(servers.ports[0]));
    let (stays, moves) = (member(&old.url()).await, member(&new.url()).await);
    let mut shown = Shown::default();
    shown.until(&stays, &moves, |shown| shown.by_one > 0 && shown.by_other > 0).await;
    // The old master no longer refuses by itself, whatever its replicas do.
    servers.all[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    servers.all[1].cli(&["REPLICAOF", "NO", "ONE"]);
    servers.follow(2, 1);
    new.name(servers.ports[1]);
    // The member that follows the sentinels is told at once: as bad as it can be.
    followed(&servers.all[1], 1);
    let moves = {
        drop(moves);
        member(&new.url()).await
    };
    let before = shown.by_other;
    shown.until(&stays, &moves, |shown| shown.by_other > before + 50).await;
    shown.for_a_while(&stays, &moves, 1).await;
    println!("two masters: {shown:?}");
    assert_eq!(shown.twice, 0);
    assert!(!stays.is_connected(), "the old master alone");
}

/// A cookie of the new memory is shown to a member that still asks the old one, and is refused there. Its data is sent by the
/// ordinary handshake, so a copy of the SYN must not be accepted in the new memory.
#[tokio::test]
async fn a_cookie_that_the_old_memory_did_not_know_is_used_up_in_the_new_one() {
    let Some(servers) = Servers::start() else { return };
    let (old, new) = (Liar::start(servers.ports[0]), Liar::start(servers.ports[0]));
    let stays = member(&old.url()).await;
    // The old master no longer refuses by itself. Its lease goes on for three seconds.
    servers.all[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    servers.all[1].cli(&["REPLICAOF", "NO", "ONE"]);
    servers.follow(2, 1);
    followed(&servers.all[1], 1);
    new.name(servers.ports[1]);
    let moves = member(&new.url()).await;
    assert_eq!(moves.ask(activate(1)).await, ACCEPTED);
    // Within the old master's lease, or later without a connection: it is owed in both cases.
    let early = stays.ask(redeem(1)).await;
    assert!(early == refused(Reason::NotActive) || early.is_err(), "{early:?}");
    old.name(servers.ports[1]);
    // Until it asks the new master.
    for counter in 2.. {
        assert_eq!(moves.ask(activate(counter)).await, ACCEPTED);
        if stays.ask(redeem(counter)).await == ACCEPTED && !stays.owes() {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    println!("refused early: {early:?}");
    assert_eq!(moves.ask(redeem(1)).await, refused(Reason::Replay));
}

/// The member that stays is alone with the old master and one replica of three, as its configuration allows.
#[tokio::test]
async fn more_replicas_than_the_configuration_excludes_are_refused() {
    let Some(servers) = Servers::start() else { return };
    let sentinel = Liar::start(servers.ports[0]);
    let store = member(&sentinel.url()).await;
    assert!(store.ask(activate(1)).await.is_ok());
    let third = replicated(free_port(), Some(servers.ports[0])).unwrap();
    followed(&servers.all[0], 3);
    assert!(store.ask(activate(2)).await.is_err());
    sleep(Duration::from_millis(500)).await;
    assert!(!store.is_connected());
    drop(third);
    connected(&store).await;

    for (name, value) in [("min-replicas-to-write", "0"), ("min-replicas-max-lag", "60")] {
        let was = servers.all[0].cli(&["CONFIG", "GET", name]);
        servers.all[0].cli(&["CONFIG", "SET", name, value]);
        let error = RedisStore::connect(&sentinel.url(), options()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Replicas(_)) && error.to_string().contains(name), "{error}");
        servers.all[0].cli(&["CONFIG", "SET", name, if was.contains("10") { "10" } else { "1" }]);
    }
}

/// A replica that leaves for another master and comes back: in the meantime the other one could accept.
#[tokio::test]
async fn a_replica_that_returns_begins_a_new_memory() {
    let Some(servers) = Servers::start() else { return };
    let sentinel = Liar::start(servers.ports[0]);
    let store = member(&sentinel.url()).await;
    assert_eq!(store.ask(activate(1)).await, ACCEPTED);
    assert_eq!(store.ask(activate(2)).await, ACCEPTED);
    assert_eq!(store.ask(redeem(1)).await, ACCEPTED);
    servers.follow(2, 1);
    servers.follow(2, 0);
    followed(&servers.all[0], 2);
    while store.ask(activate(9)).await.is_err() {
        connected(&store).await;
    }
    assert_eq!(store.ask(redeem(2)).await, refused(Reason::NotActive));
}

/// Events between first flights and their copies, with three sentinels that do what they do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Killed,
    Stopped,
    StoppedAndContinued,
    /// The replicas stop first, so that the master has writes that no replica has.
    LostWrites,
    Ordered,
}

impl Event {
    const fn text(self) -> &'static str {
        match self {
            Self::Killed => "the master killed (kill -9)",
            Self::Stopped => "the master stopped (SIGSTOP)",
            Self::StoppedAndContinued => "the master stopped, replaced, and continued (SIGCONT)",
            Self::LostWrites => "the master killed with writes that no replica had",
            Self::Ordered => "`SENTINEL FAILOVER`",
        }
    }

    async fn happens(
        self,
        servers: &mut Servers,
        sentinels: &[Sentinel],
        members: [&RedisStore; 2],
        shown: &mut Shown,
    ) {
        let [one, other] = members;
        match self {
            Self::Killed => servers.all[0].kill(),
            Self::Stopped => servers.signal(0, Signal::SIGSTOP),
            Self::StoppedAndContinued => {
                servers.signal(0, Signal::SIGSTOP);
                shown.for_a_while(one, other, 6).await;
                servers.signal(0, Signal::SIGCONT);
            }
            Self::LostWrites => {
                for replica in [1, 2] {
                    servers.signal(replica, Signal::SIGSTOP);
                }
                shown.for_a_while(one, other, 1).await;
                servers.all[0].kill();
                for replica in [1, 2] {
                    servers.signal(replica, Signal::SIGCONT);
                }
            }
            Self::Ordered => {
                let client = redis::Client::open(format!("redis://127.0.0.1:{}", sentinels[0].port)).unwrap();
                let mut link = client.get_connection().unwrap();
                redis::cmd("SENTINEL").arg("FAILOVER").arg("farm").exec(&mut link).unwrap();
            }
        }
    }
}

/// Prints the figures of a row in `docs/farm-masters.md`: first flights, those that were accepted, late copies, and how many
/// of the first flights were executed twice.
async fn no_copy_is_accepted(event: Event) {
    let Some(mut servers) = Servers::start() else { return };
    let sentinels: Vec<_> = (0..3).map(|_| Sentinel::start(servers.ports[0])).collect();
    sentinels.iter().for_each(|sentinel| sentinel.knows(2, 2));
    let places: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    let url = format!("redis+sentinel://{}/farm", places.join(","));
    let (one, other) = (member(&url).await, member(&url).await);
    let mut shown = Shown::default();
    shown.until(&one, &other, |shown| shown.by_one + shown.by_other > 100).await;
    event.happens(&mut servers, &sentinels, [&one, &other], &mut shown).await;
    // Until the new master accepts, and after that.
    let before = shown.by_one + shown.by_other;
    shown.for_a_while(&one, &other, 2).await;
    shown.until(&one, &other, |shown| shown.by_one + shown.by_other > before + 300).await;
    let (accepted, copies) = (shown.by_one + shown.by_other, shown.copies);
    println!("| {} | {} | {accepted} | {copies} | {} |", event.text(), shown.next, shown.twice);
    assert_eq!(shown.twice, 0, "{event:?}");
    if event == Event::Stopped {
        servers.signal(0, Signal::SIGCONT);
    }
}

#[tokio::test]
async fn the_master_is_killed() {
    no_copy_is_accepted(Event::Killed).await;
}

#[tokio::test]
async fn the_master_is_stopped() {
    no_copy_is_accepted(Event::Stopped).await;
}

#[tokio::test]
async fn the_master_is_stopped_and_continues() {
    no_copy_is_accepted(Event::StoppedAndContinued).await;
}

#[tokio::test]
async fn the_masters_last_writes_are_lost() {
    no_copy_is_accepted(Event::LostWrites).await;
}

#[tokio::test]
async fn an_operator_orders_a_failover() {
    no_copy_is_accepted(Event::Ordered).await;
}
