//! Fetches from a site on an emulated path.

use super::certificates::Certifieds;
use super::fetch::{Engine, Errand, Means, fetch};
use super::report::Begun;
use super::target::Target;
use crate::serve::early::EarlyUnsafe;
use crate::test_site::TestSite;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn errand(site: &TestSite, upload: Option<PathBuf>, replay_safe: bool) -> Errand {
    let engine = Engine {
        endpoint: site.client.clone(),
        certified: Arc::new(Certifieds::default()),
        carrier: None,
        via: None,
        said: AtomicBool::new(false),
    };
    Errand {
        means: Means::Engine(Box::new(engine)),
        fast_open: true,
        replay_safe,
        output: None,
        upload,
        timeout: Duration::from_secs(600),
    }
}

async fn target(url: &str) -> Target {
    let mut target = Target::parse(url).unwrap();
    target.resolve(None).await.unwrap();
    target
}

/// A file that is deleted when this is dropped.
struct Upload(PathBuf);

impl Upload {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firstflight-get-{}-{name}", std::process::id()));
        std::fs::write(&path, "order").unwrap();
        Self(path)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// RFC 8470 §5.2.
#[tokio::test]
async fn a_request_that_came_too_early_is_sent_again_after_a_handshake() {
    let site = TestSite::new().await;
    let file = Upload::new("retry");
    let target = target("http://10.0.0.2/sink").await;
    let errand = errand(&site, Some(file.0.clone()), true);
    let (report, ()) =
        tokio::join!(fetch(&errand, &target, Begun::now()), site.serve(2, EarlyUnsafe::Reject));
    assert_eq!((report.status, report.error.as_deref()), (Some(200), None));
    assert!(report.retried_after_425);
    assert_eq!((report.outcome, report.reason), ("handshake", Some("not-requested")));
    assert_eq!(report.remote, Some(site.at));
}

#[tokio::test]
async fn an_upload_rides_in_no_syn_unless_it_may_run_twice() {
    let site = TestSite::new().await;
    let file = Upload::new("held");
    let target = target("http://10.0.0.2/sink").await;
    let errand = errand(&site, Some(file.0.clone()), false);
    let (report, ()) =
        tokio::join!(fetch(&errand, &target, Begun::now()), site.serve(1, EarlyUnsafe::Reject));
    assert_eq!((report.status, report.retried_after_425), (Some(200), false));
    assert_eq!(report.reason, Some("not-replay-safe"));
}

#[tokio::test]
async fn of_several_addresses_the_one_that_answers_is_taken() {
    let site = TestSite::new().await;
    let mut target = target("http://10.0.0.2/nothing-here").await;
    // Nothing listens at the first address. The engine has no address of the second one's family.
    target.addresses.insert(0, "10.0.0.2:81".parse().unwrap());
    target.addresses.insert(1, "[fd00::2]:80".parse().unwrap());
    let errand = errand(&site, None, true);
    let (report, ()) = tokio::join!(fetch(&errand, &target, Begun::now()), site.serve(1, EarlyUnsafe::Wait));
    assert_eq!((report.status, report.remote), (Some(404), Some(site.at)));

    target.addresses.truncate(2);
    let report = fetch(&errand, &target, Begun::now()).await;
    let error = report.error.unwrap();
    // The address that lost the previous race is tried last.
    assert!(error.contains("[fd00::2]:80: ") && error.contains("; 10.0.0.2:81: "), "{error}");
}
