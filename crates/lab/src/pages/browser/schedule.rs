//! Which requests go to their hosts' connections, and in which order: Chromium's rules.
//!
//! A request passes two gates. The first is the renderer's (Blink's `ResourceLoadScheduler`): until the parser reaches the
//! body, a request of less than high priority waits while two others are under way, or two of medium priority if it is one.
//! The second is the network service's (`ResourceScheduler`): of requests of less than high priority ten are under way,
//! and none joins six of its host.

use super::ResourceStage;
use crate::pages::page::{Kind, Page};
use std::cmp::Ordering;

/// Requests under way in the renderer until the parser reaches the body, for one of less than high priority
/// (`kTightLimitForRendererSideResourceScheduler`).
const TIGHT: usize = 2;
/// Requests of medium priority that the limit above does not hold (`kBoostImagePriorityTightMediumLimit`).
const MEDIUM: usize = 2;
/// Requests of less than high priority under way (`kDefaultMaxNumDelayableRequestsPerClient`).
const DELAYABLE: usize = 10;
/// Requests to a host under way that such a request may join (`kMaxNumDelayableRequestsPerHostPerClient`).
const HOST: usize = 6;

/// How urgent a request is. The network has four levels for what Blink calls very high to low.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The document and its style sheets.
    Highest,
    /// Scripts in front of the first image, what the parser has reached, and images that are laid out.
    High,
    /// Style sheets and scripts behind the first image.
    Medium,
    /// Other images, and what scripts ask for.
    Low,
}

/// The queues of requests.
#[derive(Debug)]
pub struct Schedule {
    priorities: Vec<Priority>,
    /// The priority with which a request passed the first gate.
    passed: Vec<Priority>,
    /// The priority with which it began to wait for a connection. A later one does not move it there.
    started: Vec<Priority>,
    /// Among requests of a priority, smaller numbers go first.
    turns: Vec<u64>,
    turn: u64,
}

/// Where the document names two of its resources.
pub fn in_document(page: &Page, a: usize, b: usize) -> Ordering {
    page.resources[a].at.total_cmp(&page.resources[b].at).then(a.cmp(&b))
}

impl Schedule {
    pub fn new(page: &Page) -> Self {
        let images =
            (1..page.resources.len()).filter(|n| is(page, *n, Kind::Image) && page.resources[*n].parent == 0);
        let first = images.min_by(|a, b| in_document(page, *a, *b));
        let priority = |number: usize| {
            let resource = &page.resources[number];
            let late = || first.is_some_and(|first| in_document(page, first, number) == Ordering::Less);
            match resource.kind {
                Kind::Html => Priority::Highest,
                Kind::Style | Kind::Script if resource.parent == 0 && late() => Priority::Medium,
                Kind::Style => Priority::Highest,
                Kind::Script if resource.parent == 0 => Priority::High,
                Kind::Script | Kind::Image => Priority::Low,
            }
        };
        let priorities: Vec<Priority> = (0..page.resources.len()).map(priority).collect();
        let [passed, started] = [(); 2].map(|()| priorities.clone());
        Self { passed, started, turns: vec![0; priorities.len()], turn: 0, priorities }
    }

    /// The priority of a request.
    pub fn priority(&self, number: usize) -> Priority {
        self.priorities[number]
    }

    /// A request is behind all others of its priority.
    pub fn enter(&mut self, number: usize) {
        self.turn += 1;
        self.turns[number] = self.turn;
    }

    /// The parser has reached a request, or it is an image that is laid out. Returns whether it was less urgent.
    pub fn raise(&mut self, page: &Page, stage: ResourceStage, number: usize) -> bool {
        let to = if is(page, number, Kind::Style) { Priority::Highest } else { Priority::High };
        let raised = self.priorities[number] > to;
        if raised {
            self.priorities[number] = to;
            if stage < ResourceStage::Started {
                self.enter(number);
            }
        }
        raised
    }

    /// The requests at `stage`, in order.
    pub fn queue(&self, stages: &[ResourceStage], stage: ResourceStage) -> Vec<usize> {
        let mut queue: Vec<usize> = (0..stages.len()).filter(|number| stages[*number] == stage).collect();
        let priorities = if stage == ResourceStage::Started { &self.started } else { &self.priorities };
        queue.sort_by_key(|number| (priorities[*number], self.turns[*number]));
        queue
    }

    /// The first gate. `body`: the parser has reached the body.
    pub fn pass(&mut self, stages: &mut [ResourceStage], body: bool) {
        // The document's own request comes from another process.
        let under_way = |n: &usize| (ResourceStage::Queued..=ResourceStage::Asked).contains(&stages[*n]);
        let (mut running, mut medium) =
            (1..stages.len()).filter(under_way).fold((0, 0), |(all, medium), n| {
                (all + 1, medium + usize::from(self.passed[n] == Priority::Medium))
            });
        for number in self.queue(stages, ResourceStage::Known) {
            let priority = self.priorities[number];
            let apart = priority == Priority::Medium && medium < MEDIUM;
            if !(body || priority <= Priority::High || apart || running < TIGHT) {
                return;
            }
            running += 1;
            medium += usize::from(priority == Priority::Medium);
            self.passed[number] = priority;
            stages[number] = ResourceStage::Queued;
            self.enter(number);
        }
    }

    /// The second gate.
    pub fn start(&mut self, page: &Page, stages: &mut [ResourceStage]) {
        let mut of_host = vec![0; page.hosts];
        let mut delayable = 0;
        for number in
            (1..stages.len()).filter(|n| matches!(stages[*n], ResourceStage::Started | ResourceStage::Asked))
        {
            of_host[page.resources[number].host] += 1;
            delayable += usize::from(self.priorities[number] > Priority::High);
        }
        for number in self.queue(stages, ResourceStage::Queued) {
            let host = page.resources[number].host;
            if self.priorities[number] > Priority::High {
                if delayable >= DELAYABLE {
                    return;
                }
                if of_host[host] >= HOST {
                    continue;
                }
                delayable += 1;
            }
            of_host[host] += 1;
            stages[number] = ResourceStage::Started;
            self.started[number] = self.priorities[number];
            self.enter(number);
        }
    }
}

fn is(page: &Page, number: usize, kind: Kind) -> bool {
    page.resources[number].kind == kind
}

#[cfg(test)]
mod tests;
