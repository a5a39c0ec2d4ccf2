//! Problems with a file that is read again and again.

use std::fmt::Display;

/// The last problem with a file, so that it is reported once.
#[derive(Debug, Default)]
pub struct LastProblem(Option<String>);

impl LastProblem {
    /// The message about `problem`, if it is another problem than the last one, or the last one was over.
    pub fn new_message(&mut self, problem: &dyn Display) -> Option<&str> {
        let problem = problem.to_string();
        if self.0.as_ref() == Some(&problem) {
            return None;
        }
        Some(self.0.insert(problem))
    }

    /// Whether there is no problem.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// There is no problem any more.
    pub fn over(&mut self) {
        self.0 = None;
    }
}
