//! First flights with a certificate (`docs/spec/asap.md`): what is ASAP's in the stack.

pub(crate) mod certificates;
mod deferral;
pub(crate) mod in_lookup;
mod listeners;
pub(crate) mod lookup;
pub(crate) mod option;
pub(crate) mod relayed;
mod reply;
mod stack;
pub(crate) mod state;
mod verifier;
