//! `firstflight run`: a command with a proxy of its own.

mod environment;
mod watch;

use crate::error::Error;
use crate::output;
use crate::proxy::ProxyError;
use firstflight::Client;
use firstflight_proxy::{Event, Proxy, Total};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::Command;

/// Run a command whose connections are made in one round trip, through a proxy of its own
///
/// Starts `firstflight proxy` on a free port, and the command with the variables that name a proxy: http_proxy, https_proxy,
/// all_proxy (in capitals, too), and those of pip, npm, Node and Java; curl, git and Go programs read the first ones. The command has
/// this terminal, its signals and its exit code. At the end one line on stderr says what was saved.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight run -- sh -c 'curl -s https://www.example.com/; curl -s https://www.example.com/'
  firstflight run -- sh -c 'for n in 1 2 3; do curl -s https://www.example.com/$n -o $n; done'
  firstflight run -- sh

The first connection to a server in each run asks for its cookie and finds out whether it answers, so only later ones of the run
are faster. Programs that read no such variable connect as
always. Addresses of this machine are in no_proxy; other private networks can be reached through the proxy.

Exit code: that of the command, 128 and the signal's number if a signal ended it, 127 if there is no such command, 126 if it
cannot be run.")]
pub struct Args {
    /// Keep in this file what is learnt about servers and paths, as what failed, for later runs. Which servers answered is not kept
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Print a line on stderr about each connection, as `firstflight proxy` does
    #[arg(long)]
    show: bool,
    /// Print no line at the end
    #[arg(long, conflicts_with = "show")]
    quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How long connections may go on when the command has ended.
const DRAIN: Duration = Duration::from_millis(200);
/// What the proxy knew too little for. It is no fault.
const FIRST_CONTACT: &str = "first contact";
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// What the line at the end tells beside the sums.
#[derive(Debug, Default)]
struct Reasons {
    /// How often connections had their first flight not accepted, by the reason.
    ordinary: BTreeMap<&'static str, u64>,
    /// Why the last one failed, and where.
    failed: Option<String>,
}

/// Runs the command, and then exits as it did.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let mut builder = Client::builder();
    if let Some(path) = &args.cache {
        builder = builder.cache(path);
    }
    let client = builder.build().map_err(Error::Cache)?;
    let reasons = Arc::<Mutex<Reasons>>::default();
    let proxy = proxy(client.clone(), args.show, Arc::clone(&reasons)).await?;
    let at = proxy.local_addrs().first().copied().unwrap_or(firstflight_proxy::ADDRESS);
    let tally = proxy.tally();
    let mut signals = watch::Signals::new().map_err(Error::Runtime)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(proxy.run(async { drop(stopped.await) }));

    let [program, arguments @ ..] = args.command.as_slice() else { return Ok(ExitCode::from(NOT_FOUND)) };
    let mut command = Command::new(program);
    command.args(arguments).envs(environment::variables(at, |name| std::env::var_os(name)));
    let code = match command.spawn() {
        Ok(mut child) => {
            let id = child.id();
            loop {
                tokio::select! {
                    ended = child.wait() => break exit_code(ended.map_err(Error::Runtime)?),
                    signal = signals.next() => watch::pass_on(id, signal),
                }
            }
        }
        Err(error) => {
            output::complain(&format_args!("cannot run {}: {error}", program.display()));
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            ExitCode::from(if missing { NOT_FOUND } else { NOT_RUN })
        }
    };
    drop(stop);
    // Only a panic, which has been told.
    let _ = serving.await;
    client.close().await;
    let total = tally.total();
    if !args.quiet {
        let reasons = reasons.lock().unwrap_or_else(PoisonError::into_inner);
        output::complain(&summary(&total, &reasons));
    }
    Ok(code)
}

/// A proxy on a free port. What it does goes to stderr, because stdout is the command's.
async fn proxy(client: Client, show: bool, reasons: Arc<Mutex<Reasons>>) -> Result<Proxy, ProxyError> {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let builder = Proxy::builder(client).listen(free).allow_private(true).drain(DRAIN);
    let builder = builder.on_event(move |event| {
        if show {
            output::aside(&crate::proxy::event_line(event));
        }
        let mut reasons = reasons.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Connected { contact, .. } => {
                if let Some(reason) = contact.reason {
                    let reason = if contact.is_first_contact() { FIRST_CONTACT } else { reason };
                    *reasons.ordinary.entry(reason).or_default() += 1;
                }
            }
            Event::Failed { server, error, .. } => {
                let named = error.contains(server.as_str());
                reasons.failed = Some(if named { error.clone() } else { format!("{server}: {error}") });
            }
            _ => {}
        }
    });
    Ok(builder.bind().await?)
}

/// As shells have it.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(u8::MAX))
}

/// What is said of a command without a connection.
const NONE: &str = "no connection went through the proxy: connections to this machine do not (no_proxy), and programs that do not \
                    read http_proxy or https_proxy connect as always";

/// What was saved, in one line; if that is nothing, why.
fn summary(total: &Total, reasons: &Reasons) -> String {
    let many = |count: u64, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    if total.contacts + total.failures == 0 {
        return NONE.to_owned();
    }
    let mut text = many(total.contacts, "connection");
    let saved = many(total.round_trips_saved, "round trip");
    // Writing to a string does not fail.
    let _ = match total.round_trips_saved {
        0 => write!(text, ", no round trip saved"),
        1 => write!(text, ", {saved} saved: {:.1} ms", total.saved_ms),
        // Connections at the same time have waited at the same time.
        _ => write!(text, ", {saved} saved: {:.1} ms added up", total.saved_ms),
    };
    let ordinary: Vec<_> =
        reasons.ordinary.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if !ordinary.is_empty() {
        let _ = write!(text, "; ordinary handshakes: {}", ordinary.join(", "));
    }
    if total.failures > 0 {
        let _ = write!(text, "; {} failed", total.failures);
        if let Some(why) = &reasons.failed {
            let _ = write!(text, " ({why})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_was_saved_and_why_not_more() {
        let mut total = Total::default();
        assert_eq!(summary(&total, &Reasons::default()), NONE);
        total.contacts = 1;
        let ordinary = BTreeMap::from([(FIRST_CONTACT, 1)]);
        let mut reasons = Reasons { ordinary, failed: None };
        let first = summary(&total, &reasons);
        assert_eq!(first, "1 connection, no round trip saved; ordinary handshakes: 1 first contact");
        reasons.failed = Some("a.example:80: refused".to_owned());
        (total.contacts, total.round_trips_saved, total.saved_ms, total.failures) = (4, 2, 200.25, 1);
        assert_eq!(
            summary(&total, &reasons),
            "4 connections, 2 round trips saved: 200.2 ms added up; ordinary handshakes: 1 first contact; 1 failed (a.example:80: refused)"
        );
    }
}
