//! Each step does its work. No test asserts a time.

use super::work::Work;
use super::{Step, Steps, run};

#[test]
fn every_step_does_its_work() {
    let mut work = Work::new().unwrap();
    for step in Step::ALL {
        assert_eq!(work.each(step, 30).unwrap().len(), 30, "{step:?}");
    }
}

#[test]
fn the_report_has_every_step() {
    let options = Steps { trials: 20, plot: None, json: true };
    let json: serde_json::Value = serde_json::from_str(&run(&options).unwrap()).unwrap();
    let steps = json["steps"].as_array().unwrap();
    assert_eq!(steps.len(), Step::ALL.len());
    assert!(steps.iter().all(|step| step["us_rounds"].as_array().unwrap().len() == 20));
    let text = run(&Steps { json: false, ..options }).unwrap();
    assert!(Step::ALL.iter().all(|step| text.contains(step.name())), "{text}");
}
