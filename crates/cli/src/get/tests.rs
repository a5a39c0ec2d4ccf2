//! Fetches from a site on an emulated path.

use super::ask::{Ask, Target};
use super::certificates::Told;
use super::fetch::{Errand, fetch};
use super::report::Begun;
use crate::serve::early::EarlyUnsafe;
use crate::test_site::TestSite;
use firstflight::Client;
use firstflight_http::url::HttpUrl;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn errand(site: &TestSite, upload: Option<PathBuf>, replay_safe: bool) -> Errand {
    Errand {
        client: Client::builder().engine(site.client.clone()).build().unwrap(),
        tls: None,
        by_engine: true,
        ask: Ask::default(),
        udp: None,
        replay_safe,
        output: None,
        upload,
        timeout: Duration::from_secs(600),
        told: Arc::new(Told::new(None)),
    }
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
    let target = Target::from("http://10.0.0.2/sink".parse::<HttpUrl>().unwrap());
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
    let target = Target::from("http://10.0.0.2/sink".parse::<HttpUrl>().unwrap());
    let errand = errand(&site, Some(file.0.clone()), false);
    let (report, ()) =
        tokio::join!(fetch(&errand, &target, Begun::now()), site.serve(1, EarlyUnsafe::Reject));
    assert_eq!((report.status, report.retried_after_425), (Some(200), false));
    assert_eq!(report.reason, Some("not-replay-safe"));
}
