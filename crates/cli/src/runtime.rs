//! The async runtime of a command.

use crate::error::Error;
use std::num::NonZeroUsize;

/// Runs `work` on a thread for each processor.
pub fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    block_on_threads(None, work)
}

/// Runs `work` on `threads` threads, by default on one for each processor.
pub fn block_on_threads<T>(
    threads: Option<NonZeroUsize>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    use tokio::runtime::Builder;
    let mut builder = match threads {
        // No other thread has to be woken, so this does more in the same time than a pool of one.
        Some(NonZeroUsize::MIN) => Builder::new_current_thread(),
        Some(threads) => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads.get());
            builder
        }
        None => Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().map_err(Error::Runtime)?;
    let result = runtime.block_on(work);
    // Do not wait for a read of a slow disk.
    runtime.shutdown_background();
    result
}
