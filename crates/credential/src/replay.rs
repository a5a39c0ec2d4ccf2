//! Replay guards: they prevent that a first flight is executed twice (the Fast Open paper §3.5).
//!
//! A guard remembers each accepted first flight for as long as a copy of it could be accepted again. It may
//! answer "seen" for a new one, which costs the client a round trip. It must never answer "new" for one that
//! it may have seen. So if its memory is incomplete (after a start, after it had to forget entries, after its
//! clock was set back), it has a *floor*: it refuses all stamps at or below the floor.

pub(crate) mod guard;
mod remote;
mod reports;
mod table;
mod time;

pub use guard::{GuardKey, Guarded, ReplayGuard, ReplayId, Unreported, Window};
pub use remote::RemoteGuard;
pub use table::ReplayTable;
