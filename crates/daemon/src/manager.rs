//! What the service manager gets to know (`sd_notify`). Without one, nothing happens.

use sd_notify::NotifyState;
use std::time::Duration;

/// The service answers: its ports are bound and its files are read. Also the end of a reload.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload begins. [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The service ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says again and again that the process works, if the service manager wants to know.
pub async fn keep_watchdog_quiet() {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) || micros == 0 {
        return std::future::pending().await;
    }
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(Duration::from_micros(micros / 2)).await;
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, state) {
        tracing::warn!(%error, "the service manager does not listen");
    }
}
