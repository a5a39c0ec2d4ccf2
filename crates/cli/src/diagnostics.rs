//! What the program says of itself on stderr, and how much of it strangers can cause.
//!
//! Many lines are about what came from the network, and some are written by libraries. One limit counts for all of
//! them: a place in the program may write ten lines at once, then one a second. What is left out is counted, and the
//! count is told. Lines that only `-v` or `RUST_LOG` shows (DEBUG and TRACE) are all written: who asked for them wants
//! them.

mod limit;

use crate::output;
use limit::{LeftOut, Limiter};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{Event, Level, Subscriber, callsite};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// The variable that says what is told.
const VARIABLE: &str = "RUST_LOG";
/// How often it is looked whether there is something to tell about lines that were left out.
const EVERY: Duration = Duration::from_secs(1);

/// What is told on stderr from now on; dropped, it tells what was left out until then.
pub struct Diagnostics(Limit);

impl Diagnostics {
    /// Warnings, and with `verbose` more. Without `verbose` the variable `RUST_LOG` decides, if it is set.
    pub fn start(verbose: u8) -> Self {
        let limit = Limit::default();
        let ansi = io::stderr().is_terminal();
        layer(levels(verbose), limit.clone(), ansi, io::stderr).init();
        Self(limit)
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        self.0.lock().limiter.rest().iter().for_each(tell);
    }
}

/// A subscriber that writes lines of `levels` to `writer`, within the limit.
fn layer<W>(levels: Targets, limit: Limit, ansi: bool, writer: W) -> impl SubscriberInitExt
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(Visible(writer)).with_ansi(ansi);
    Registry::default().with(lines).with(levels).with(limit)
}

/// What is told at all.
fn levels(verbose: u8) -> Targets {
    let all = |level: LevelFilter| Targets::new().with_default(level);
    match (verbose, std::env::var(VARIABLE)) {
        (0, Ok(text)) if !text.is_empty() => text.parse().unwrap_or_else(|error| {
            output::complain(&format_args!("{VARIABLE} is left aside: {error}"));
            all(LevelFilter::WARN)
        }),
        (0, _) => all(LevelFilter::WARN),
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

/// The limit, as a layer that lets lines through or not.
#[derive(Clone, Default)]
struct Limit(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    limiter: Limiter<callsite::Identifier>,
    /// A thread looks after what was left out.
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
            // Without a thread it is told at the end.
            state.telling =
                std::thread::Builder::new().name("log".into()).spawn(move || limit.keep_telling()).is_ok();
        }
        admitted
    }

    /// Tells what was left out, until there is nothing left to tell.
    fn keep_telling(&self) {
        loop {
            std::thread::sleep(EVERY);
            // Told under the lock: at its end the program waits for it.
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

/// Writes whole lines with nothing in them that a terminal would obey, but the colours of the lines themselves.
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
