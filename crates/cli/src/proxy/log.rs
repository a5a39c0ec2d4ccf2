//! What the proxy prints.

use crate::output;
use firstflight_http::text::SafeLine;
use firstflight_proxy::{Contact, Event, Protocol, Proxy};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::SystemTime;

/// Prints events as lines, or as JSON.
#[derive(Debug, Clone, Copy)]
pub struct Log {
    pub json: bool,
}

#[derive(Serialize)]
#[serde(tag = "event", rename = "listening")]
struct Listening {
    addresses: Vec<String>,
    status: String,
    pac: Option<String>,
}

impl Log {
    /// Says where the proxy is, and how to use it.
    pub fn listening(self, proxy: &Proxy) {
        let addresses: Vec<_> = proxy.local_addrs().iter().map(ToString::to_string).collect();
        if self.json {
            let (status, pac) = (proxy.status_url(), proxy.pac_url());
            output::event(SystemTime::now(), &Listening { addresses, status, pac });
            return;
        }
        for at in &addresses {
            output::line(&format_args!("listening on {at} (HTTP and SOCKS5)"));
        }
        let at = addresses.first().map_or("", String::as_str);
        output::line(&format_args!("use: export http_proxy=http://{at} https_proxy=http://{at}"));
        output::line(&format_args!("  or: curl -x socks5h://{at} https://www.example.com/"));
        output::line(&format_args!("status: {}", proxy.status_url()));
        if let Some(pac) = proxy.pac_url() {
            output::line(&format_args!("PAC file for browsers: {pac}"));
        }
    }

    /// Prints an event.
    pub fn event(self, event: &Event) {
        match self.json {
            true => output::event(SystemTime::now(), event),
            false => output::line(&line(event)),
        }
    }
}

/// An event in a line. Names and errors are partly a client's or a server's text, and cannot turn or break it.
pub fn line(event: &Event) -> String {
    SafeLine(&text(event)).to_string()
}

fn text(event: &Event) -> String {
    match event {
        Event::Connected { protocol, server, address, contact } => {
            format!("{server} ({address}, {}): {}", word(*protocol), contact_text(contact))
        }
        Event::Failed { protocol, server, error, reset, .. } => {
            let reset = if *reset { "; it was told yes early, so its connection is reset" } else { "" };
            format!("{server} ({}): failed: {error}{reset}", word(*protocol))
        }
        Event::Left { protocol, server } => {
            format!("{server} ({}): its client left before it had an answer", word(*protocol))
        }
        Event::Closed { server, sent, received, error, .. } => {
            let how = error.as_ref().map_or_else(|| "closed".to_owned(), |error| format!("reset: {error}"));
            format!("{server}: {how}, {sent} B sent, {received} B received")
        }
        Event::Refused { reason } => format!("refused: {reason}"),
        // The library may say more than this command knows.
        _ => format!("{event:?}"),
    }
}

const fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Connect => "CONNECT",
        Protocol::Socks5 => "SOCKS5",
        Protocol::Http => "http",
        _ => "?",
    }
}

fn contact_text(contact: &Contact) -> String {
    let mut text = format!("{} by {}", contact.outcome, contact.way);
    if let Some(reason) = contact.reason {
        // Writing to a string does not fail.
        let _ = write!(text, " ({reason})");
    }
    if contact.early_yes {
        text.push_str(", early yes");
    }
    match contact.inside_lookup {
        Some("lookup") => text.push_str(", inside the lookup"),
        Some("direct") => text.push_str(", inside the lookup and directly"),
        _ => {}
    }
    let _ = write!(text, ", {} ms", contact.connect_ms);
    match (contact.round_trips_saved, contact.saved_ms) {
        (0, _) => {}
        (_, Some(ms)) => {
            let _ = write!(text, ", {ms:.1} ms saved");
        }
        (_, None) => text.push_str(", a round trip saved"),
    }
    text
}

#[cfg(test)]
mod tests;
