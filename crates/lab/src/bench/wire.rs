//! Packets between two ends: a batch of reused buffers for each direction.

/// Bytes of a buffer: a round number above an MTU of 1500.
const SLOT: usize = 1536;
/// Packets of a batch. If an end's batch is full, it sends the rest in its next turn.
pub const BATCH: usize = 256;

/// Packets in one direction, between one turn and the next.
#[derive(Debug)]
pub struct Batch {
    slots: Vec<[u8; SLOT]>,
    lens: Vec<usize>,
    taken: usize,
    carried: u64,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self { slots: vec![[0; SLOT]; BATCH], lens: Vec::with_capacity(BATCH), taken: 0, carried: 0 }
    }

    /// The buffer for the next packet. [`Batch::push`] adds it to the batch.
    #[inline]
    pub fn free(&mut self) -> Option<&mut [u8]> {
        self.slots.get_mut(self.lens.len()).map(|s| &mut s[..1500])
    }

    /// Adds the packet of `len` bytes in the buffer that [`Batch::free`] returned.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.lens.push(len);
        self.carried += 1;
    }

    /// The next packet that was not handled.
    #[inline]
    pub fn take(&mut self) -> Option<&[u8]> {
        let len = *self.lens.get(self.taken)?;
        let slot = self.slots.get(self.taken)?;
        self.taken += 1;
        Some(&slot[..len])
    }

    /// Frees the buffers after all packets were handled.
    #[inline]
    pub fn clear(&mut self) {
        self.lens.clear();
        self.taken = 0;
    }

    /// Packets ever pushed.
    pub fn carried(&self) -> u64 {
        self.carried
    }
}
