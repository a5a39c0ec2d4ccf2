//! Streams of the kernel.

use super::{Kind, Stream};

pub use firstflight_kernel::Stream as KernelStream;

impl From<KernelStream> for Stream {
    fn from(stream: KernelStream) -> Self {
        Self::of(Kind::Kernel(stream))
    }
}
