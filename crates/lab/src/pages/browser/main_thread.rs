//! The browser's main thread: one task at a time.

use firstflight_wire::Instant;

/// What runs now.
#[derive(Debug, Default)]
pub struct MainThread(Option<(usize, Instant)>);

impl MainThread {
    /// Begins with a resource, until then.
    pub fn begin(&mut self, number: usize, until: Instant) {
        self.0 = Some((number, until));
    }

    /// When the task ends, if there is one.
    pub fn busy_until(&self) -> Option<Instant> {
        self.0.map(|(_, until)| until)
    }

    /// The resource whose task has ended.
    pub fn finished(&mut self, now: Instant) -> Option<usize> {
        let (number, _) = self.0.filter(|(_, until)| *until <= now)?;
        self.0 = None;
        Some(number)
    }
}
