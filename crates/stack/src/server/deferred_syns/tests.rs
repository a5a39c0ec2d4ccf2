use super::*;
use alloc::sync::Arc;
use firstflight_credential::PendingLimit;

#[test]
fn jobs_that_nobody_takes_do_not_pile_up() {
    let mut syns = DeferredSyns::new(4, 1 << 20, Duration::from_millis(25));
    let pending = Arc::new(PendingLimit::new(100));
    let listener = ListenerId { index: 0, generation: 0 };
    let mut bytes = [0; 20];
    bytes[12] = 0x50;
    let segment = Segment::parse(&bytes).unwrap();
    let key = FlowKey::new("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
    for _ in 0..1000 {
        let permit = pending.reserve(key.remote_ip()).unwrap();
        let work = Work::Ask(JobRequest::Verify { key: 1 });
        let now = Instant::ZERO;
        let syn = Syn { listener: 0, key, hash: 0, segment: &segment, above: None, now };
        let question = Question { work, grant: None, permit };
        let (job, Work::Ask(request)) = syns.defer(&syn, bytes.to_vec(), listener, question) else {
            panic!()
        };
        syns.hand_out(job, request);
        drop(syns.take(job));
        assert!(syns.jobs.len() <= 8);
    }
    assert!(syns.poll_job().is_none());
}
