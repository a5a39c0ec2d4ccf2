//! One connection to one memory.

use crate::error::Failure;
use crate::memory::{Anonymous, Identity, field};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// Questions on their way before the next one waits: as many as an endpoint has open.
const PIPELINE: usize = 512;

/// A connection, and the memory that answered when it was made. Clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct Connection {
    link: MultiplexedConnection,
    pub identity: Identity,
    /// Since when the memory is known to remember everything.
    pub since: Instant,
    /// Tells connections apart.
    pub number: u64,
    /// The key of the memory's mark.
    mark: String,
}

impl Connection {
    /// Connects, and looks who answers and whether it keeps what it is told.
    pub async fn open(client: &Client, prefix: &str) -> Result<Self, Failure> {
        // Time is limited by who calls.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE);
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        // One by one: an error of a pipeline does not say which right is lacking.
        let server = info(&mut link, "server").await?;
        let replication = info(&mut link, "replication").await?;
        let memory = info(&mut link, "memory").await?;
        let process = process(&server, &replication)?;
        match field(&memory, "maxmemory_policy") {
            Some("noeviction") => {}
            Some(other) => return Err(Failure::Evicts(other.to_owned())),
            None => {
                tracing::warn!("Redis does not tell its maxmemory-policy: make sure that it is noeviction")
            }
        }
        let mark = format!("{prefix}:{process}:memory");
        let (_, found): (Option<String>, Option<String>) = redis::pipe()
            .atomic()
            .cmd("SET")
            .arg(&mark)
            .arg(random()?)
            .arg("NX")
            .cmd("GET")
            .arg(&mark)
            .query_async(&mut link)
            .await?;
        let identity = Identity::new(process, found.ok_or(Failure::OtherMemory)?);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { link, identity, since: Instant::now(), number, mark })
    }

    /// Begins a new memory in the same process: what was taken before is good for no member of the farm.
    pub async fn begin_anew(&mut self) -> Result<(), Failure> {
        let random = random()?;
        let () = redis::cmd("SET").arg(&self.mark).arg(&random).query_async(&mut self.link).await?;
        self.identity.set_mark(random);
        Ok(())
    }

    /// Carries `commands` out; their replies do not matter.
    pub async fn tell(&self, commands: impl Iterator<Item = Cmd>) -> Result<(), Failure> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        if pipeline.is_empty() {
            return Ok(());
        }
        Ok(pipeline.exec_async(&mut self.link.clone()).await?)
    }

    /// The reply to `command`, if the memory is still the same: all of it in one transaction, for a server can
    /// be replaced between two commands.
    pub async fn ask(&self, command: &Cmd) -> Result<Option<String>, Failure> {
        let mut question = redis::pipe();
        question.atomic().cmd("INFO").arg("server").cmd("INFO").arg("replication");
        question.cmd("GET").arg(&self.mark).add_command(command.clone());
        let (server, replication, mark, reply): (String, String, Option<String>, Option<String>) =
            question.query_async(&mut self.link.clone()).await?;
        if self.identity.is(&process(&server, &replication)?, mark.as_deref()) {
            Ok(reply)
        } else {
            Err(Failure::OtherMemory)
        }
    }
}

/// The mark of a memory.
fn random() -> Result<String, Failure> {
    let random = getrandom::u64().map_err(|error| Failure::Redis(std::io::Error::other(error).into()))?;
    Ok(format!("{random:016x}"))
}

async fn info(link: &mut MultiplexedConnection, section: &str) -> Result<String, Failure> {
    Ok(redis::cmd("INFO").arg(section).query_async(link).await?)
}

fn process(server: &str, replication: &str) -> Result<String, Failure> {
    Identity::process(server, replication).map_err(|error| match error {
        Anonymous::Replica => Failure::Replica,
        Anonymous::Incomplete => Failure::NoInfo,
    })
}
