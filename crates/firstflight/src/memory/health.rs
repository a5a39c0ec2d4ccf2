//! Whether UDP works on a network.

use firstflight_wire::Instant;
use std::time::Duration;

/// An answer this long ago shows that UDP works.
const LATELY: Duration = Duration::from_secs(600);
/// UDP pauses after this number of lost races in a row, to any servers.
const LOSSES: u32 = 2;
/// The same where UDP answered lately: there, races are lost because single datagrams are. With 2 % of loss each way, two
/// lost races in a row would soon come by chance.
const LOSSES_WHERE_IT_WORKED: u32 = 4;
/// The first pause, and the longest. Each one is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(600);
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 3600);

/// What is known of UDP on one network.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The last answer, if no connect in UDP was silent or lost a race since.
    answered: Option<Instant>,
    /// The last answer.
    worked: Option<Instant>,
    /// Lost races since the last answer.
    lost: u32,
    /// Pauses since the last answer.
    pauses: u32,
    /// UDP pauses until then.
    until: Option<Instant>,
}

fn is_lately(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_since(at) < LATELY)
}

impl Health {
    /// A server answered in UDP.
    pub(crate) fn answered(&mut self, now: Instant) {
        *self = Self { answered: Some(now), worked: Some(now), ..Self::default() };
    }

    /// A connect in UDP ended without an answer, or its caller gave up.
    pub(crate) fn silent(&mut self) {
        self.answered = None;
    }

    /// The kernel's TCP was faster, although UDP began first.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.silent();
        self.lost = self.lost.saturating_add(1);
        let most = if is_lately(self.worked, now) { LOSSES_WHERE_IT_WORKED } else { LOSSES };
        if self.pauses > 0 || self.lost >= most {
            let doubled = PAUSE * 2u32.saturating_pow(self.pauses.min(8));
            self.until = Some(now + doubled.min(LONGEST_PAUSE));
            self.pauses = self.pauses.saturating_add(1);
        }
    }

    /// Whether a first flight may go in UDP. One that must not run twice needs an answer lately, because it cannot be
    /// sent again by another way.
    pub(crate) fn allows(&self, replayable: bool, now: Instant) -> bool {
        let pauses = self.until.is_some_and(|until| now < until);
        let works = is_lately(self.answered, now);
        !pauses && (replayable || works)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_pauses_after_two_lost_races_and_longer_each_time() {
        let (mut health, mut now) = (Health::default(), Instant::from_secs(1000));
        assert!(health.allows(true, now));
        health.lost(now);
        assert!(health.allows(true, now));
        for pause in [600, 1200, 2400, 4800, 7200, 7200] {
            health.lost(now);
            assert!(!health.allows(true, now + Duration::from_secs(pause - 1)));
            now += Duration::from_secs(pause);
            assert!(health.allows(true, now));
        }
        health.answered(now);
        health.lost(now);
        assert!(health.allows(true, now));
    }

    #[test]
    fn where_udp_answered_lately_it_pauses_after_four_lost_races() {
        let (mut health, mut now) = (Health::default(), Instant::from_secs(1000));
        for _ in 0..2 {
            health.answered(now);
            for _ in 0..3 {
                now += Duration::from_secs(1);
                health.lost(now);
                assert!(health.allows(true, now), "UDP pauses although it works");
                assert!(!health.allows(false, now), "what is not sent again goes where UDP was silent");
            }
        }
        health.lost(now);
        for pause in [600, 1200] {
            assert!(!health.allows(true, now + Duration::from_secs(pause - 1)));
            now += Duration::from_secs(pause);
            assert!(health.allows(true, now));
            health.lost(now);
        }
        // An answer that is older is not one lately.
        health.answered(now);
        now += LATELY;
        health.lost(now);
        assert!(health.allows(true, now));
        health.lost(now);
        assert!(!health.allows(true, now));
    }

    #[test]
    fn what_must_not_run_twice_needs_an_answer_within_ten_minutes() {
        let (mut health, now) = (Health::default(), Instant::from_secs(1000));
        assert!(!health.allows(false, now));
        health.answered(now);
        assert!(health.allows(false, now + LATELY - Duration::from_nanos(1)));
        assert!(!health.allows(false, now + LATELY));
    }
}
