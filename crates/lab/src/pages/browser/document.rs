//! What the browser makes of the document: what is known, processed and laid out.

use super::schedule::in_document;
use super::{Browser, ResourceStage};
use crate::pages::page::Kind;
use firstflight_wire::Instant;
use std::cmp::Ordering;

impl Browser<'_> {
    /// What has arrived of a document makes known what it names.
    pub(super) fn scan(&mut self, number: usize, now: Instant) {
        if number > 0 || self.ready[1].is_none() {
            let share = self.received[number] as f64 / self.page.resources[number].size as f64;
            self.reveal(number, share, now);
        }
    }

    /// Everything that `parent` names in its first part becomes known, but what a style names only when it is laid out.
    pub(super) fn reveal(&mut self, parent: usize, share: f64, now: Instant) {
        let style = self.page.resources[parent].kind == Kind::Style;
        for (number, resource) in self.page.resources.iter().enumerate().skip(1) {
            let named = resource.parent == parent && resource.at <= share;
            let seen = self.laid_out || !style || resource.kind != Kind::Image;
            if named && seen && self.stages[number] == ResourceStage::Hidden {
                self.stages[number] = ResourceStage::Known;
                self.schedule.enter(number);
                self.trace.note(number, |request| request.known = Some(now));
            }
        }
    }

    /// Whether the main thread may process this resource now.
    pub(super) fn may_run(&self, number: usize) -> bool {
        if self.stages[number] != ResourceStage::Loaded || (number == 0 && self.ready[1].is_some()) {
            return false;
        }
        let waits =
            self.page.resources[number].kind == Kind::Script && self.page.resources[number].parent == 0;
        let in_front = || {
            let before = self.page.resources.iter().zip(&self.stages).take(number).skip(1);
            let of_document = before.filter(|(resource, _)| resource.parent == 0);
            of_document.filter(|(resource, _)| matches!(resource.kind, Kind::Style | Kind::Script))
        };
        !waits || in_front().all(|(_, stage)| *stage == ResourceStage::Done)
    }

    /// Whether all of a kind in the head are processed.
    fn has_processed(&self, kind: Kind) -> bool {
        let head = self.page.resources.iter().zip(&self.stages).filter(|(r, _)| r.blocks && r.parent == 0);
        head.filter(|(resource, _)| resource.kind == kind).all(|(_, stage)| *stage == ResourceStage::Done)
    }

    /// The parser has reached the body.
    pub(super) fn has_body(&self) -> bool {
        let scanned = self.received.first().is_some_and(|bytes| *bytes > 0) && self.ready[1].is_none();
        scanned && self.has_processed(Kind::Script)
    }

    /// Lays out what the parser has reached. All images of the document and of styles are taken to be in view. Returns
    /// whether a request has changed.
    pub(super) fn lay_out(&mut self, now: Instant) -> bool {
        if !self.laid_out && self.has_body() && self.has_processed(Kind::Style) {
            self.laid_out = true;
            let done: Vec<usize> =
                (1..self.stages.len()).filter(|number| self.stages[*number] == ResourceStage::Done).collect();
            done.into_iter().for_each(|number| self.reveal(number, 1.0, now));
        }
        let resources = &self.page.resources;
        let open = |number: &usize| {
            let resource = &resources[*number];
            resource.kind == Kind::Script
                && resource.parent == 0
                && self.stages[*number] != ResourceStage::Done
        };
        // The parser waits for this script.
        let parser = (1..resources.len()).filter(open).min_by(|a, b| in_document(self.page, *a, *b));
        let reached = |number: &usize| {
            let (number, resource) = (*number, &resources[*number]);
            let reached = match resources[resource.parent].kind {
                Kind::Html if resource.parent == 0 => {
                    parser.is_none_or(|parser| in_document(self.page, number, parser) != Ordering::Greater)
                }
                Kind::Style => true,
                _ => false,
            };
            let seen = self.laid_out || resource.kind != Kind::Image;
            reached && seen && (ResourceStage::Known..=ResourceStage::Asked).contains(&self.stages[number])
        };
        let mut reached: Vec<usize> = (1..resources.len()).filter(reached).collect();
        // Blink goes through its images in the order of a hash table.
        let place = |number: &usize| self.jitter.places.get(*number).copied();
        reached.sort_by_key(|number| (resources[*number].kind == Kind::Image).then(|| place(number)));
        let raise = |any, number| self.schedule.raise(self.page, self.stages[number], number) || any;
        reached.into_iter().fold(false, raise)
    }
}
