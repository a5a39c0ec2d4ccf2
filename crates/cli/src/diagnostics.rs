//! Diagnostics on stderr, and their rate limit.
//!
//! Network input causes many of these lines, and libraries write some of them. The same limit applies to every log
//! statement: it may write ten lines at once, then one a second. Suppressed lines are counted, and the count is
//! reported. DEBUG and TRACE lines are not limited, since the user asked for them with `-v` or `RUST_LOG`.

mod limit;

use crate::output;
use limit::{LeftOut, Limiter};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{Event, Level, Subscriber, callsite};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// The environment variable that sets the levels.
const VARIABLE: &str = "RUST_LOG";
/// How often to check for suppressed lines that have to be reported.
const EVERY: Duration = Duration::from_secs(1);

/// Writes diagnostics to stderr. Dropping it reports the lines that were suppressed until then.
pub struct Diagnostics(Limit);

impl Diagnostics {
    /// Installs the global subscriber. `verbose` counts the options `-v`; with none of them `RUST_LOG` sets the levels,
    /// or only warnings are shown.
    pub fn start(verbose: u8) -> Self {
        let limit = Limit::default();
        let variable = |name: &str| std::env::var_os(name);
        let ansi = io::stderr().is_terminal() && has_colours(variable("NO_COLOR"), variable("TERM"));
        layer(levels(verbose), limit.clone(), ansi, io::stderr).init();
        Self(limit)
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        self.0.lock().limiter.rest().iter().for_each(tell);
    }
}

/// Whether a terminal gets colours. An empty `NO_COLOR` says nothing (https://no-color.org).
fn has_colours(no_color: Option<OsString>, term: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty()) && term.is_none_or(|term| term != "dumb")
}

/// A subscriber that writes lines of `levels` to `writer`, within the limit.
fn layer<W>(levels: Targets, limit: Limit, ansi: bool, writer: W) -> impl SubscriberInitExt
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(Visible(writer)).with_ansi(ansi);
    Registry::default().with(lines).with(levels).with(limit)
}

/// The levels to show.
fn levels(verbose: u8) -> Targets {
    let all = |level: LevelFilter| Targets::new().with_default(level);
    match (verbose, std::env::var(VARIABLE)) {
        (0, Ok(text)) if !text.is_empty() => text.parse().unwrap_or_else(|error| {
            output::complain(&format_args!("{VARIABLE} is ignored: {error}"));
            all(LevelFilter::WARN)
        }),
        // Operators want to see that new keys are in use.
        (0, _) => all(LevelFilter::WARN).with_target("firstflight::keys", LevelFilter::INFO),
        (1, _) => all(LevelFilter::DEBUG),
        _ => all(LevelFilter::TRACE),
    }
}

fn tell(left_out: &LeftOut<callsite::Identifier>) {
    let LeftOut { place, lines } = left_out;
    let place = place.0.metadata();
    output::complain(&format_args!(
        "{lines} more lines like the last ones of {} (line {}) were left out",
        place.target(),
        place.line().unwrap_or_default(),
    ));
}

/// The rate limit, as a layer.
#[derive(Clone, Default)]
struct Limit(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    limiter: Limiter<callsite::Identifier>,
    /// Whether a thread reports suppressed lines.
    telling: bool,
}

impl Limit {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, place: callsite::Identifier) -> bool {
        let mut state = self.lock();
        let admitted = state.limiter.admit(place, Instant::now());
        if !admitted && !state.telling {
            let limit = self.clone();
            // If no thread can be started, they are reported when the program ends.
            state.telling =
                std::thread::Builder::new().name("log".into()).spawn(move || limit.keep_telling()).is_ok();
        }
        admitted
    }

    /// Reports suppressed lines until there are none.
    fn keep_telling(&self) {
        loop {
            std::thread::sleep(EVERY);
            // Report under the lock, so that the program does not end in between.
            let mut state = self.lock();
            state.limiter.due(Instant::now()).iter().for_each(tell);
            state.telling = !state.limiter.is_told();
            if !state.telling {
                return;
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || self.admits(metadata.callsite())
    }
}

/// Writes whole lines. Escapes terminal control characters, except the one that begins the colours of the lines.
struct Visible<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Visible<W> {
    type Writer = Visible<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Visible(self.0.make_writer())
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.0.write_all(output::visible_but_colours(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
