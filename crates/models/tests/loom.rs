//! The post between the shards of an endpoint, in every order of its atomic operations and locks, with what the memory model
//! allows each thread to read.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p firstflight-models --test loom -- --nocapture`
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "../../firstflight/src/engine/mailboxes/mail.rs"]
mod mail;

/// What [`mail`] is made of here.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

use loom::model::Builder;
use loom::sync::{Arc, Notify};
use loom::thread;
use mail::Mail;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// Tries all orders in which threads are interrupted up to three times. Loom finds a shard that sleeps for ever.
fn check(name: &str, test: impl Fn() + Send + Sync + 'static) {
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 50_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        test();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} orders");
    assert!(runs > 2, "{runs} orders only");
}

/// A thread that sleeps until it is woken, as a driver does.
struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// Calls `look` until it finds something, and sleeps in between. `begin` gets the waker first, once, as long as it stays the
/// same.
fn sleep_until<T>(begin: impl FnOnce(&Waker), mut look: impl FnMut() -> Option<T>) -> T {
    let sleeper = std::sync::Arc::new(Sleeper(Notify::new()));
    begin(&Waker::from(std::sync::Arc::clone(&sleeper)));
    loop {
        match look() {
            Some(found) => return found,
            None => sleeper.0.wait(),
        }
    }
}

/// What a shard gets, asleep in between, until it has `most` messages.
fn receive(mail: &Mail<Vec<u32>>, shard: usize, most: usize) -> Vec<u32> {
    let (mut spare, mut got) = (Vec::new(), Vec::new());
    sleep_until(
        |waker| mail.register(shard, waker),
        || {
            if mail.take(shard, &mut spare) {
                got.append(&mut spare);
            }
            (got.len() >= most).then_some(())
        },
    );
    got
}

#[test]
fn what_two_shards_put_in_arrives() {
    check("two shards write to a third one", || {
        let mail = Arc::new(Mail::new(3));
        let senders: Vec<_> = [1, 2]
            .map(|number| {
                let mail = Arc::clone(&mail);
                thread::spawn(move || {
                    assert!(mail.put(0, |content: &mut Vec<u32>| {
                        content.push(number);
                        true
                    }))
                })
            })
            .into();
        let mut got = receive(&mail, 0, 2);
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn what_one_shard_puts_in_arrives_in_order() {
    check("a shard writes twice", || {
        let mail = Arc::new(Mail::new(2));
        let sender = {
            let mail = Arc::clone(&mail);
            thread::spawn(move || {
                for number in [1, 2] {
                    mail.put(0, |content: &mut Vec<u32>| {
                        content.push(number);
                        true
                    });
                }
            })
        };
        assert_eq!(receive(&mail, 0, 2), [1, 2]);
        sender.join().unwrap();
    });
}

#[test]
fn two_shards_write_to_each_other() {
    check("two shards write to each other", || {
        let mail = Arc::new(Mail::new(2));
        let run = |mail: &Mail<Vec<u32>>, own: usize| {
            mail.put(1 - own, |content| {
                content.push(own as u32);
                true
            });
            assert_eq!(receive(mail, own, 1), [1 - own as u32]);
        };
        let other = {
            let mail = Arc::clone(&mail);
            thread::spawn(move || run(&mail, 1))
        };
        run(&mail, 0);
        other.join().unwrap();
    });
}

#[test]
fn the_shards_end_together() {
    check("two shards end", || {
        let mail = Arc::new(Mail::<Vec<u32>>::new(2));
        let end = |mail: &Mail<Vec<u32>>, own: usize| {
            let begin = |waker: &Waker| {
                mail.register(own, waker);
                mail.leave();
            };
            sleep_until(begin, || mail.all_left().then_some(()));
        };
        let other = {
            let mail = Arc::clone(&mail);
            thread::spawn(move || end(&mail, 1))
        };
        end(&mail, 0);
        other.join().unwrap();
    });
}

#[test]
fn the_error_of_one_shard_reaches_the_other() {
    check("a shard fails", || {
        let mail = Arc::new(Mail::<Vec<u32>>::new(2));
        let other = {
            let mail = Arc::clone(&mail);
            thread::spawn(move || mail.fail(ErrorKind::BrokenPipe))
        };
        let error = sleep_until(|waker| mail.register(0, waker), || mail.failed());
        assert_eq!(error, ErrorKind::BrokenPipe);
        assert_eq!(mail.shards(), 2);
        other.join().unwrap();
    });
}
