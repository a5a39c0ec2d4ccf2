//! A memory at a server, and how it is asked.

use crate::error::Failure;
use crate::farm_keys::KeysFingerprint;
use crate::memory::Identity;
use crate::node::{Node, Reply, millis, set};
use redis::{Cmd, FromRedisValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the store keeps the ticket of a member that stopped and owed nothing.
const LEFT_LASTS: Duration = Duration::from_secs(30 * 86_400);

/// A server, and the memory that was there when it was met. Clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    pub node: Arc<Node>,
    pub names: Names,
    /// Since when the memory is known to remember everything.
    pub since: Instant,
    /// A number that distinguishes connections.
    pub number: u64,
    /// Whether this connection began the memory, so that nothing earlier is valid in it.
    pub is_fresh: bool,
    /// The key of the mark.
    mark: String,
}

/// What the questions to a memory need to know of it.
#[derive(Clone)]
pub(crate) struct Names {
    pub identity: Identity,
    /// How much later the memory's floor is, because another server may have answered for that time.
    pub overlap: Duration,
    /// How the names of its keys begin.
    pub scope: String,
}

impl Names {
    /// The name of a replay guard's id.
    pub(crate) fn seen(&self, key: [u8; 16]) -> String {
        format!("{}:seen:{:032x}", self.scope, u128::from_be_bytes(key))
    }

    /// The name of a one-time cookie. A cookie of another memory has another name, so data that came back from a disk or a
    /// replica is not valid.
    pub(crate) fn cookie(&self, serial: u64) -> String {
        format!("{}:{}:cookie:{serial:016x}", self.scope, self.identity)
    }
}

impl Connection {
    /// Meets the memory at `node` whose keys begin with `scope`. See [`Names::overlap`].
    pub(crate) async fn meet(node: Arc<Node>, scope: &str, overlap: Duration) -> Result<Self, Failure> {
        let (ours, mark) = (new_mark(&node.process)?, format!("{scope}:memory"));
        let (_, found): (Option<String>, Option<String>) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg(&mark)
            .arg(&ours)
            .arg("NX")
            .cmd("GET")
            .arg(&mark)
            .query_async(&mut node.link.clone())
            .await?;
        let found = found.ok_or(Failure::OtherMark)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut connection = Self {
            is_fresh: found == ours,
            names: Names { identity: Identity::new(found.clone()), overlap, scope: scope.to_owned() },
            since: Instant::now(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            mark,
            node,
        };
        // The mark came from a disk or another server, together with what that one remembered.
        if !Identity::is_of(&found, &connection.node.process) {
            connection.begin_anew().await?;
            connection.is_fresh = true;
        }
        Ok(connection)
    }

    /// Whether the other members of the farm have these keys. The first member says which they are.
    pub(crate) async fn agree(&self, keys: KeysFingerprint) -> Result<(), Failure> {
        let key = format!("{}:keys", self.names.scope);
        let (_, found): (Option<String>, Option<String>) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg(&key)
            .arg(keys.to_string())
            .arg("NX")
            .cmd("GET")
            .arg(&key)
            .query_async(&mut self.node.link.clone())
            .await?;
        match found {
            Some(found) if found != keys.to_string() => Err(Failure::OtherKeys(found, keys)),
            _ => Ok(()),
        }
    }

    /// Begins a new memory in the same process: nothing from before is valid for any member of the farm.
    pub(crate) async fn begin_anew(&mut self) -> Result<(), Failure> {
        let mark = new_mark(&self.node.process)?;
        let mut command = redis::cmd("SET");
        let () = command.arg(&self.mark).arg(&mark).query_async(&mut self.node.link.clone()).await?;
        self.names.identity = Identity::new(mark);
        Ok(())
    }

    /// Notes in the store that a member stops and owes nothing. Its next start shows the ticket.
    pub(crate) async fn leave(&self, ticket: &str) -> Result<(), Failure> {
        let command = set(self.left(ticket), "left", millis(LEFT_LASTS));
        Ok(command.query_async(&mut self.node.link.clone()).await?)
    }

    /// Whether a member left `ticket` in this process and has not come back since. A ticket is valid once.
    pub(crate) async fn come_back(&self, ticket: &str) -> Result<bool, Failure> {
        let mut command = set(self.left(ticket), "back", millis(LEFT_LASTS));
        command.arg("GET");
        let found: Option<String> = command.query_async(&mut self.node.link.clone()).await?;
        Ok(found.as_deref() == Some("left"))
    }

    fn left(&self, ticket: &str) -> String {
        format!("{}:{}:left:{ticket}", self.names.scope, self.node.process)
    }

    /// The name of a TLS session. It contains the process, so that a session in data that came back is not valid.
    pub(crate) fn session(&self, id: &[u8]) -> String {
        format!("{}:{}:session:{}", self.names.scope, self.node.process, *firstflight_files::to_hex(id))
    }

    /// Executes `commands`, and ignores their replies.
    pub(crate) async fn tell(&self, commands: impl Iterator<Item = Cmd>) -> Result<(), Failure> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        if pipeline.is_empty() {
            return Ok(());
        }
        Ok(pipeline.exec_async(&mut self.node.link.clone()).await?)
    }

    /// The reply to `command`, if the memory is still the same and has lost nothing.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<Reply<T>, Failure> {
        self.node.ask(Some((&self.mark, self.names.identity.mark())), command).await
    }
}

/// A random number of 64 bits.
pub(crate) fn random() -> Result<String, Failure> {
    let random = getrandom::u64().map_err(|error| Failure::Redis(std::io::Error::other(error).into()))?;
    Ok(format!("{random:016x}"))
}

/// The mark of a memory that begins in this process.
fn new_mark(process: &str) -> Result<String, Failure> {
    Ok(format!("{process}/{}", random()?))
}
