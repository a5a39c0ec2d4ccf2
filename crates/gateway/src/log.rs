//! The access log: one line for each request, or for each connection of a TCP mode.

mod counters;

pub(crate) use counters::{Last, Names, Report, Store, Tcp};

use crate::backend::{Backend, Service};
use crate::client::ClientFacts;
use crate::config::LogFormat;
use crate::metrics;
use crate::site::Site;
use firstflight_http::text::Safe;
use firstflight_http::trace::TraceId;
use hyper::Method;
use hyper::http::uri::PathAndQuery;
use serde::Serialize;
use std::fmt;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Lines that wait for a slow reader, and their bytes. Further ones are lost and counted: a log never stops the service.
const WAITING: usize = 8192;
const WAITING_BYTES: usize = 4 << 20;

/// Writes lines to a reader that may be slow.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    format: LogFormat,
    lines: SyncSender<Message>,
    /// Bytes of the lines that wait.
    bytes: Arc<AtomicUsize>,
}

enum Message {
    Line(String),
    /// Answers when everything before it is written.
    Flush(tokio::sync::oneshot::Sender<()>),
    /// There is nothing to write for now.
    Idle,
}

impl Log {
    pub(crate) fn new(format: LogFormat, sink: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, written) = sync_channel(WAITING);
        let bytes = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&bytes);
        let writer = std::thread::Builder::new().name("access-log".into());
        writer.spawn(move || write(&written, &waiting, sink))?;
        Ok(Self { format, lines, bytes })
    }

    /// Waits until everything is written, but not for a reader that does not read.
    pub(crate) async fn flush(&self) {
        let (done, wait) = tokio::sync::oneshot::channel();
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(Duration::from_secs(1), wait).await;
        }
    }

    /// Writes what concerns the gateway as a whole, as the address at which it listens.
    pub(crate) fn status(&self, message: &str) {
        self.send(match self.format {
            LogFormat::Json => {
                let time = now();
                serde_json::json!({ "event": "status", "time": time, "message": message }).to_string()
            }
            LogFormat::Text | LogFormat::Off => message.to_owned(),
        });
    }

    /// Writes what was counted.
    pub(crate) fn last(&self, last: &Last<'_>) {
        self.send(match self.format {
            LogFormat::Json => serde_json::to_string(last).unwrap_or_default(),
            LogFormat::Text | LogFormat::Off => last.to_string(),
        });
    }

    fn entry(&self, entry: &Entry) {
        match self.format {
            // It fails only for maps whose keys are no text.
            LogFormat::Json => self.send(serde_json::to_string(&entry.line()).unwrap_or_default()),
            LogFormat::Text => self.send(entry.line().to_string()),
            LogFormat::Off => {}
        }
    }

    fn send(&self, line: String) {
        let length = line.len();
        let fits = self.bytes.fetch_add(length, Ordering::Relaxed) + length <= WAITING_BYTES;
        if !fits || self.lines.try_send(Message::Line(line)).is_err() {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            metrics::log_lines_lost(1);
        }
    }
}

/// The time of a line.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

fn write(lines: &Receiver<Message>, waiting: &AtomicUsize, sink: impl Write) {
    let mut sink = BufWriter::new(sink);
    // If nobody reads any more, the lines are lost.
    let mut handle = |message| match message {
        Message::Line(line) => {
            let _ = writeln!(sink, "{line}");
            waiting.fetch_sub(line.len(), Ordering::Relaxed);
        }
        Message::Flush(done) => {
            let _ = sink.flush();
            let _ = done.send(());
        }
        Message::Idle => drop(sink.flush()),
    };
    while let Ok(message) = lines.recv() {
        handle(message);
        while let Ok(message) = lines.try_recv() {
            handle(message);
        }
        handle(Message::Idle);
    }
}

/// One line. It is written when it is dropped.
pub(crate) struct Entry {
    site: Arc<Site>,
    event: Event,
    about: ClientFacts,
    at: SystemTime,
    began: Instant,
    /// Bytes that came before the client was confirmed: of the first flight, and of TLS early data.
    pub(crate) early_bytes: u64,
    /// What became of the sealed first flight that the connection began with, and why.
    pub(crate) seal: Option<(&'static str, &'static str)>,
    /// What became of a request or a connection that began early: `forwarded`, `waited` or `refused`.
    pub(crate) early: Option<&'static str>,
    pub(crate) method: Option<Method>,
    pub(crate) host: Option<String>,
    /// `*` has no path.
    pub(crate) path: Option<PathAndQuery>,
    pub(crate) protocol: Option<&'static str>,
    pub(crate) status: Option<u16>,
    pub(crate) service: Option<Arc<Service>>,
    pub(crate) backend: Option<Arc<Backend>>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The trace that the request belongs to.
    pub(crate) trace: Option<TraceId>,
    /// Why it ended: `closed`, `idle`, or what failed.
    pub(crate) end: Option<&'static str>,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Request,
    Connection,
}

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    time: String,
    listener: &'a str,
    peer: SocketAddr,
    way: &'static str,
    outcome: &'static str,
    reason: Option<&'static str>,
    credential: Option<&'static str>,
    early_bytes: u64,
    early: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seal_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    service: Option<&'a str>,
    backend: Option<&'a str>,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    end: Option<&'static str>,
    duration_ms: f64,
}

impl Entry {
    pub(crate) fn new(site: &Arc<Site>, event: Event, about: ClientFacts) -> Self {
        Self {
            site: Arc::clone(site),
            event,
            about,
            at: SystemTime::now(),
            began: Instant::now(),
            early_bytes: u64::from(about.early_bytes),
            seal: None,
            early: None,
            method: None,
            host: None,
            path: None,
            protocol: None,
            status: None,
            service: None,
            backend: None,
            bytes_in: 0,
            bytes_out: 0,
            trace: None,
            end: None,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn line(&self) -> Line<'_> {
        let is_request = self.event == Event::Request;
        Line {
            event: if is_request { "request" } else { "connection" },
            time: humantime::format_rfc3339_millis(self.at).to_string(),
            listener: self.site.name(),
            peer: self.about.peer,
            way: self.about.way.as_str(),
            outcome: self.about.outcome.as_str(),
            reason: self.about.outcome.reason().map(|reason| reason.as_str()),
            credential: self.about.outcome.is_accepted().then_some(match self.about.is_certified {
                true => "certificate",
                false => "cookie",
            }),
            early_bytes: self.early_bytes,
            early: self.early,
            seal: self.seal.map(|(outcome, _)| outcome),
            seal_reason: self.seal.map(|(_, reason)| reason),
            method: self.method.as_ref().map(Method::as_str),
            host: self.host.as_deref(),
            path: is_request.then(|| self.path.as_ref().map_or("*", PathAndQuery::as_str)),
            protocol: self.protocol,
            status: self.status,
            service: self.service.as_ref().map(|service| service.name()),
            backend: self.backend.as_ref().map(|backend| backend.label.as_str()),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            trace_id: self.trace.map(|trace| trace.to_string()),
            // A request whose client is gone is dropped where it waits.
            end: self.end.or((is_request && self.status.is_none()).then_some("client-left")),
            duration_ms: (self.began.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.site.series.bytes(self.bytes_in, self.bytes_out);
        if let Some(early) = self.early {
            self.site.series.early(early);
        }
        if self.event == Event::Request {
            let service = self.service.as_ref().map_or("", |service| service.name());
            self.site.series.request(service, self.status);
        }
        self.site.log.entry(self);
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.time, self.listener, self.peer)?;
        if self.event == "request" {
            let status = self.status.map_or("-".to_owned(), |status| status.to_string());
            let (method, host) = (Safe(self.method), Safe(self.host));
            write!(f, "{method} {host} {} {status} ", Safe(self.path))?;
        } else {
            write!(f, "{} ", Safe(self.host))?;
        }
        write!(f, "{}/{} ", Safe(self.service), Safe(self.backend))?;
        write!(f, "{} B in, {} B out, {} {}", self.bytes_in, self.bytes_out, self.way, self.outcome)?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        if self.credential == Some("certificate") {
            f.write_str(" (certificate)")?;
        }
        write!(f, ", {} B early", self.early_bytes)?;
        if let Some(early) = self.early {
            write!(f, " {early}")?;
        }
        if let (Some(seal), Some(reason)) = (self.seal, self.seal_reason) {
            write!(f, ", seal {seal} ({reason})")?;
        }
        if let Some(end) = self.end {
            write!(f, ", {end}")?;
        }
        write!(f, ", {:.1} ms", self.duration_ms)
    }
}

/// A sink in memory, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(test)]
impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
