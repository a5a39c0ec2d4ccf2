//! What clients may cost that read slowly, or nothing at all.

use firstflight::Config;
use std::time::Duration;

/// Bytes of a response that the engine takes before its client has taken any: four initial windows. The buffer grows as
/// the client acknowledges.
const FIRST_SEND_BUFFER: u32 = 64 * 1024;
/// Bytes of one connection that HTTP holds: of a request's head, and of a response that the engine does not take yet.
pub(super) const HTTP_BUFFER: usize = 64 * 1024;

/// How long, and how many of them, slow clients are waited for.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Readers {
    /// Reset a connection whose client takes less than a segment of what waits for it in this time; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    send_timeout: u32,
    /// Connections of one client (an IPv4 address, an IPv6 /64): one more takes the place of one whose client reads
    /// nothing, or is reset. 0 is no limit: for servers whose clients come from one address, that of a proxy
    #[arg(long, value_name = "N", default_value_t = 512)]
    connections_per_client: usize,
}

impl Readers {
    /// Sets what the engine has to know.
    pub fn configure(&self, config: &mut Config) {
        let patience = Duration::from_secs(self.send_timeout.into());
        config.tcp.user_timeout = (!patience.is_zero()).then_some(patience);
        config.tcp.first_send_buffer = FIRST_SEND_BUFFER;
        let most = self.connections_per_client;
        config.limits.connections_per_client = (most > 0).then_some(most);
    }
}
