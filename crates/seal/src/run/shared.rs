//! A strike register that several servers share (6.6).

use super::strike_register::{Question, RegisterAnswer};
use core::fmt;
use core::pin::Pin;
use std::time::Duration;

/// The answer of a [`SharedStrikeRegister`] that is under way. If it is dropped before it is ready, the entry may or
/// may not have been made.
pub type RegisterFuture<'a> = Pin<Box<dyn Future<Output = RegisterAnswer> + Send + 'a>>;

/// A strike register that the servers of one guard domain share, in a store across the network. The members of a farm
/// behind one name need one, or else only replayable requests run early ([`Server::several_tables`](crate::Server::several_tables)).
///
/// # Correctness
/// Of all members that ask about one request at most one gets [`RegisterAnswer::New`] or [`RegisterAnswer::Floor`] with
/// an entry within [`MemoryRegister::LIFETIME`](crate::MemoryRegister::LIFETIME), whatever happens to the store's
/// memory. Every other answer costs a client a round trip or, if the request must not run twice, the request. So a
/// store that may have lost what it acknowledged has a floor of six minutes above its beginning.
///
/// [`RegisterAnswer::Unavailable`] is the answer of a store that cannot be asked. Nothing runs early then. After
/// Finished a request runs all the same if it is replayable, or came without a block: such a one cannot have run
/// before. The connection of any other is closed. The implementation makes the entry of a question without an answer
/// later, before it answers another question, so that no copy of the request runs early.
pub trait SharedStrikeRegister: fmt::Debug + Send + Sync {
    /// Tests whether a request is in the table, and puts it there, in one step. Answers within
    /// [`Question::WITHIN`], with [`RegisterAnswer::Unavailable`] if need be. A server does not wait longer.
    fn test_and_set(&self, question: &Question) -> RegisterFuture<'_>;
}

impl Question {
    /// How long a server waits for the answer of a [`SharedStrikeRegister`].
    pub const WITHIN: Duration = Duration::from_millis(20);
}
