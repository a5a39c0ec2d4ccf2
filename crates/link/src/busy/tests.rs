use super::*;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// A window that does not end.
const HOUR: Duration = Duration::from_secs(3600);

/// A link that takes packets, and has one to receive if it is told so.
#[derive(Default)]
struct Fake {
    packet: bool,
}

impl Link for Fake {
    fn mtu(&self) -> usize {
        1500
    }

    fn poll_recv(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.packet) { Poll::Ready(Ok(1)) } else { Poll::Pending }
    }

    fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls the link as the engine's task does: it receives, and then sends. Says how often that task is woken while another
/// one lets the event loop have its turn.
async fn turn(link: &mut BusyPoll<Fake>, sends: bool) -> usize {
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    let cx = &mut Context::from_waker(&waker);
    while link.poll_recv(cx, &mut []).is_ready() {}
    if sends {
        assert!(link.poll_send(cx, &[]).is_ready());
    }
    tokio::task::yield_now().await;
    woken.0.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_packet_that_comes_or_goes_begins_a_window() {
    for sends in [false, true] {
        let mut link = BusyPoll::new(Fake::default(), HOUR);
        assert_eq!(turn(&mut link, false).await, 0, "an idle link is left alone");
        link.link.packet = !sends;
        assert_eq!(turn(&mut link, sends).await, 1);
        assert_eq!(turn(&mut link, false).await, 1, "while the window lasts");
    }
}

#[tokio::test]
async fn without_a_window_the_thread_may_sleep() {
    let mut link = BusyPoll::new(Fake { packet: true }, Duration::ZERO);
    for sends in [true, false] {
        assert_eq!(turn(&mut link, sends).await, 0);
    }
}

#[test]
fn with_several_threads_or_without_a_runtime_nobody_is_kept_awake() {
    let polled = |link: &mut BusyPoll<Fake>| {
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let cx = &mut Context::from_waker(&waker);
        assert!(link.poll_send(cx, &[]).is_ready());
        while link.poll_recv(cx, &mut []).is_ready() {}
        woken.0.load(Ordering::SeqCst)
    };
    let packet = || BusyPoll::new(Fake { packet: true }, HOUR);
    assert_eq!(polled(&mut packet()), 0);
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut link = several.block_on(async move {
        let task = tokio::spawn(async move {
            let mut link = packet();
            polled(&mut link);
            link
        });
        task.await.unwrap()
    });
    assert!(!link.is_on());
}

#[tokio::test]
async fn a_window_ends() {
    let mut link = BusyPoll::new(Fake { packet: true }, Duration::from_millis(1));
    turn(&mut link, true).await;
    turn(&mut link, false).await;
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..3 {
        assert_eq!(turn(&mut link, false).await, 0, "nobody polls an idle link");
    }
    link.link.packet = true;
    assert_eq!(turn(&mut link, false).await, 1);
}

/// The future of `block_on`, timers and the event loop must not wait until the window has ended.
#[tokio::test]
async fn others_have_their_turn_each_time() {
    let polls = Arc::new(AtomicUsize::new(0));
    let mut link = BusyPoll::new(Fake { packet: true }, HOUR);
    let counted = Arc::clone(&polls);
    let task = tokio::spawn(poll_fn(move |cx| {
        counted.fetch_add(1, Ordering::SeqCst);
        while link.poll_recv(cx, &mut []).is_ready() {}
        Poll::<()>::Pending
    }));
    for _ in 0..20 {
        let before = polls.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        let between = polls.load(Ordering::SeqCst) - before;
        assert!((1..=2).contains(&between), "{between}");
    }
    let begun = polls.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(polls.load(Ordering::SeqCst) > begun, "the thread does not sleep");
    task.abort();
}
