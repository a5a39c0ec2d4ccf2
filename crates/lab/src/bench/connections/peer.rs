//! A client or a server in a process of its own. It reads commands from stdin, one JSON object a line, and answers each
//! with one on stdout. It ends with its input.

use super::ends::{self, Client};
use super::process::Cable;
use super::usage::Usage;
use super::way::ConnectWay;
use super::{offer, visits};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The version of the commands. A peer of another version is refused.
pub const PROTOCOL: u64 = 1;

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerEnd {
    Server,
    Client,
}

/// One end of `bench connections`, which starts it.
#[derive(Debug, Args)]
pub struct Peer {
    end: PeerEnd,
    #[arg(long)]
    way: ConnectWay,
    /// What the server said, for the client
    #[arg(long, default_value = "{}")]
    server: String,
    /// The client's addresses
    #[arg(long, default_value_t = 1)]
    clients: u8,
    /// The server's work for a request, µs
    #[arg(long, default_value_t = 0)]
    work: u64,
    /// How long our engine's thread stays awake after each packet, µs
    #[arg(long, default_value_t = 0)]
    busy_poll: u64,
    /// The cable, for network cards
    #[arg(long, default_value_t = 0)]
    cable: u8,
}

/// Runs until the input ends.
pub fn run(options: &Peer) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (busy_poll, cable) = (Duration::from_micros(options.busy_poll), Cable(options.cable));
    runtime.block_on(async {
        let client = match options.end {
            PeerEnd::Server => {
                let work = Duration::from_micros(options.work);
                let mut ready = ends::serve(options.way, work, busy_poll, cable)?;
                ready["protocol"] = json!(PROTOCOL);
                say(&ready)?;
                None
            }
            PeerEnd::Client => {
                let server = serde_json::from_str(&options.server)?;
                let client = ends::client(options.way, &server, options.clients, busy_poll, cable)?;
                let client: Arc<dyn Client> = Arc::from(client);
                say(&json!({ "protocol": PROTOCOL }))?;
                Some(client)
            }
        };
        let mut held = Vec::new();
        let mut commands = commands();
        while let Some(command) = commands.recv().await {
            let answer = match (&client, &command) {
                (Some(client), command) => on_client(client, command, &mut held).await,
                (None, _) => Ok(Usage::now()?.json()),
            };
            say(&answer.unwrap_or_else(|error| json!({ "error": error.to_string() })))?;
        }
        Ok(())
    })
}

fn say(answer: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()
}

/// The commands on stdin, from a thread that waits for them.
fn commands() -> mpsc::UnboundedReceiver<Value> {
    let (send, receive) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(command) = line.map(|line| serde_json::from_str(&line).unwrap_or_default()) else {
                return;
            };
            if send.send(command).is_err() {
                return;
            }
        }
    });
    receive
}

fn number(command: &Value, name: &str) -> io::Result<u64> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("no {name} in a command"));
    command.get(name).and_then(Value::as_u64).ok_or_else(wrong)
}

async fn on_client(
    client: &Arc<dyn Client>,
    command: &Value,
    held: &mut Vec<ends::OpenConnection>,
) -> io::Result<Value> {
    let of = |name| number(command, name);
    match command.get("do").and_then(Value::as_str) {
        Some("usage") => Ok(Usage::now()?.json()),
        Some("visits") => {
            client.refresh()?;
            let (before, in_flight) = (Usage::now()?, of("in_flight")? as usize);
            let done = visits::run(client, in_flight, Duration::from_millis(of("ms")?), of("least")?).await?;
            let mut answer = Usage::now()?.since(&before).json();
            done.tell(&mut answer);
            Ok(answer)
        }
        Some("stay") => {
            client.refresh()?;
            visits::stay(client, of("first")? as usize..of("end")? as usize, held).await?;
            Ok(json!({ "held": held.len() }))
        }
        Some("offer") => {
            client.refresh()?;
            let patience = Duration::from_millis(of("patience_ms")?);
            offer::run(client, of("per_s")?, Duration::from_millis(of("ms")?), patience).await
        }
        other => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("unknown command {other:?}"))),
    }
}
