//! What the admin address shows: `/metrics` and `/readyz`.

use crate::backend::health::HealthState;
use crate::gateway::{AdminPages, publish};
use crate::metrics;
use firstflight_daemon::{Ready, Shows};
use std::fmt::Write;

impl Shows for AdminPages {
    fn metrics(&self) -> Option<String> {
        publish(self);
        firstflight_daemon::process::publish();
        Some(metrics::recorder()?.render())
    }

    fn ready(&self) -> Ready {
        ready(self)
    }
}

/// Ready: it does not stop, and a service has a backend. One service that is down does not take the others away.
fn ready(shown: &AdminPages) -> Ready {
    let (stopping, services) = shown.with(|view| (view.stopping, view.services.clone()));
    let mut text = String::new();
    for service in &services {
        if service.files().is_some() {
            let _ = writeln!(text, "{}: a directory", service.name());
            continue;
        }
        let all = service.backends();
        let count = |known| all.iter().filter(|backend| service.known(backend) == known).count();
        let (up, unknown) = (count(HealthState::Up), count(HealthState::Unknown));
        let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {up} of {} backends up{unknown}", service.name(), all.len());
    }
    let available = services.is_empty() || services.iter().any(|service| service.is_available());
    let first = match (stopping, available) {
        (true, _) => "stopping",
        (false, false) => "no backend is up",
        (false, true) => "ready",
    };
    Ready { is_ready: available && !stopping, text: format!("{first}\n{text}") }
}
