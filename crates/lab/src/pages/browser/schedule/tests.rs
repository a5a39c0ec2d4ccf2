use super::*;
use crate::pages::page::Resource;

/// A page whose document names these: kind and host, in order.
fn page(named: &[(Kind, usize)]) -> Page {
    let mut resources = vec![Resource::new(0, Kind::Html, 1000)];
    resources.extend(named.iter().enumerate().map(|(n, (kind, host))| Resource {
        at: n as f64 / named.len() as f64,
        ..Resource::new(*host, *kind, 1000)
    }));
    Page { name: "made".into(), stands_for: None, hosts: 40, resources }
}

struct ScheduleCase {
    page: Page,
    schedule: Schedule,
    stages: Vec<ResourceStage>,
}

impl ScheduleCase {
    /// Everything is known.
    fn new(named: &[(Kind, usize)]) -> Self {
        let page = page(named);
        let mut schedule = Schedule::new(&page);
        (1..page.resources.len()).for_each(|number| schedule.enter(number));
        let mut stages = vec![ResourceStage::Known; page.resources.len()];
        stages[0] = ResourceStage::Asked;
        Self { page, schedule, stages }
    }

    fn go(&mut self, body: bool) -> Vec<usize> {
        self.schedule.pass(&mut self.stages, body);
        self.schedule.start(&self.page, &mut self.stages);
        self.schedule.queue(&self.stages, ResourceStage::Started)
    }
}

#[test]
fn a_script_behind_the_first_image_is_less_urgent() {
    let kinds = [Kind::Style, Kind::Script, Kind::Image, Kind::Script, Kind::Style];
    let case = ScheduleCase::new(&kinds.map(|kind| (kind, 0)));
    let priorities = [1, 2, 3, 4, 5].map(|number| case.schedule.priority(number));
    assert_eq!(
        priorities,
        [Priority::Highest, Priority::High, Priority::Low, Priority::Medium, Priority::Medium]
    );
}

#[test]
fn until_the_body_two_of_medium_priority_pass_and_others_while_one_is_under_way() {
    let scripts = (1..=3).map(|host| (Kind::Script, host));
    let images = (4..=6).map(|host| (Kind::Image, host));
    let late = (7..=9).map(|host| (Kind::Script, host));
    let mut case = ScheduleCase::new(&scripts.chain(images).chain(late).collect::<Vec<_>>());
    assert_eq!(case.go(false), [1, 2, 3, 7, 8]);
    // With one of five left, an image passes; the third late script is in front of it.
    for number in [1, 2, 7, 8] {
        case.stages[number] = ResourceStage::Done;
    }
    assert_eq!(case.go(false), [3, 9]);
    case.stages[3] = ResourceStage::Done;
    assert_eq!(case.go(false), [9, 4]);
    assert_eq!(case.go(true), [9, 4, 5, 6]);
}

#[test]
fn ten_of_less_than_high_priority_are_under_way() {
    let mut case = ScheduleCase::new(&(1..=12).map(|host| (Kind::Image, host)).collect::<Vec<_>>());
    assert_eq!(case.go(true), (1..=10).collect::<Vec<_>>());
    // One that is raised counts no more, and the next starts.
    let stage = case.stages[3];
    assert!(case.schedule.raise(&case.page, stage, 3));
    assert!(!case.schedule.raise(&case.page, stage, 3));
    assert_eq!(case.go(true), (1..=11).collect::<Vec<_>>());
    // What has high priority is not held back.
    case.schedule.raise(&case.page, ResourceStage::Queued, 12);
    assert_eq!(case.go(true).first(), Some(&12));
}

#[test]
fn none_of_less_than_high_priority_joins_six_of_its_host() {
    let scripts = (0..6).map(|_| (Kind::Script, 1));
    let mut case =
        ScheduleCase::new(&scripts.chain([(Kind::Image, 1), (Kind::Image, 2)]).collect::<Vec<_>>());
    assert_eq!(case.go(true), [1, 2, 3, 4, 5, 6, 8]);
    case.stages[1] = ResourceStage::Done;
    assert_eq!(case.go(true), [2, 3, 4, 5, 6, 8, 7]);
}

/// Chromium's log shows it: a request that waits for a connection keeps its place.
#[test]
fn a_request_that_is_raised_late_keeps_its_place_among_those_that_wait() {
    let mut case = ScheduleCase::new(&[(Kind::Image, 1), (Kind::Image, 1)]);
    case.stages[2] = ResourceStage::Hidden;
    assert_eq!(case.go(true), [1]);
    case.schedule.raise(&case.page, ResourceStage::Started, 1);
    case.stages[2] = ResourceStage::Known;
    case.schedule.raise(&case.page, ResourceStage::Known, 2);
    assert_eq!(case.go(true), [2, 1]);
}
