//! Explores every order of events of a world, up to a number of events.
//!
//! The worlds are in `tests/`. They are made of the machines of the other crates, which hold atomics and secrets, and can
//! neither be copied nor compared. So a state is the sequence of events that leads to it, and is made again from the
//! beginning each time. What a world says of its state ([`World::state`]) tells which sequences lead to the same one.
#![forbid(unsafe_code)]

pub mod readers;

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};

/// Servers, stores, clients and attackers, and what may happen to them.
pub trait World {
    /// What may happen.
    type Event: Copy + fmt::Debug;

    /// What may happen next.
    fn events(&self) -> Vec<Self::Event>;

    /// It happens.
    ///
    /// # Errors
    /// The promise that is broken.
    fn happen(&mut self, event: Self::Event) -> Result<(), String>;

    /// Writes everything that the future depends on. Two worlds that write the same go on alike.
    fn state(&self, to: &mut Digest);
}

/// How much was explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Events that happened in one of them.
    pub steps: usize,
}

impl std::ops::AddAssign for Explored {
    fn add_assign(&mut self, other: Self) {
        (self.states, self.steps) = (self.states + other.states, self.steps + other.steps);
    }
}

/// The shortest sequence of events that breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace<E> {
    /// The promise.
    pub wrong: String,
    /// The events. The last one breaks it.
    pub events: Vec<E>,
}

impl<E: fmt::Debug> fmt::Display for Trace<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrong, events } = self;
        for (n, event) in events.iter().enumerate() {
            writeln!(f, "  {:2}. {event:?}", n + 1)?;
        }
        write!(f, "  => {wrong}")
    }
}

/// Explores every sequence of up to `most` events from `begin`, the shorter ones first.
///
/// # Errors
/// The first sequence that breaks a promise. None is shorter.
pub fn explore<W: World>(begin: impl Fn() -> W, most: usize) -> Result<Explored, Trace<W::Event>> {
    let mut seen = HashSet::new();
    let mut steps = 0;
    let mut open: Vec<Vec<W::Event>> = vec![Vec::new()];
    seen.insert(Digest::of(&begin()));
    for _ in 0..most {
        let mut next = Vec::new();
        for trail in open {
            for event in again(&begin, &trail).events() {
                let mut world = again(&begin, &trail);
                steps += 1;
                let mut events = trail.clone();
                events.push(event);
                if let Err(wrong) = world.happen(event) {
                    return Err(Trace { wrong, events });
                }
                if seen.insert(Digest::of(&world)) {
                    next.push(events);
                }
            }
        }
        open = next;
    }
    Ok(Explored { states: seen.len(), steps })
}

/// The world after these events, none of which broke a promise when it was first tried.
fn again<W: World>(begin: &impl Fn() -> W, trail: &[W::Event]) -> W {
    let mut world = begin();
    for &event in trail {
        let outcome = world.happen(event);
        assert_eq!(outcome, Ok(()), "a world must do the same each time");
    }
    world
}

/// Collects what a state consists of: 64 bits. That two states are mistaken for one is as likely as a fault of the memory.
#[derive(Debug, Default)]
pub struct Digest(DefaultHasher);

impl Digest {
    fn of(world: &impl World) -> u64 {
        let mut digest = Self::default();
        world.state(&mut digest);
        digest.0.finish()
    }

    /// Adds a part, which is whatever `{:?}` shows of it.
    pub fn add(&mut self, part: &impl fmt::Debug) {
        // A write into a hash does not fail.
        let _ = fmt::write(self, format_args!("{part:?};"));
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
