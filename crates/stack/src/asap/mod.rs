//! First flights with a certificate (`docs/spec/asap.md`): what is ASAP's in the stack.

pub(crate) mod armed;
pub(crate) mod certificates;
mod listeners;
pub(crate) mod lookup;
pub(crate) mod offer;
mod parking;
pub(crate) mod relayed;
mod reply;
mod stack;
pub(crate) mod state;
mod verifier;
