//! The atomics that shards share. Under `cfg(loom)` they are those of the model checker, which tries every order of them
//! (`loom_tests`; docs/proved.md says how).

#[cfg(not(loom))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
