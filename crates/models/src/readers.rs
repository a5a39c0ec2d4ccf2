//! What strangers' bytes can do to a reader: every short input, and every input at a distance of one from a valid one, as in the
//! corpus of the fuzz target of this name.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "for tests")]

use std::path::Path;

/// A reader of strangers' bytes, and how it is checked.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// The folder of the corpus.
    pub name: &'static str,
    /// Reads an input, and panics if a rule is broken.
    pub run: fn(&[u8]),
    /// All inputs of up to this length are tried.
    pub short: usize,
    /// About how many inputs of the corpus are changed.
    pub samples: usize,
    /// The longest of them, bytes.
    pub longest: usize,
}

fn all() -> bool {
    std::env::var_os("FIRSTFLIGHT_READERS").is_some()
}

/// Every input of up to `most` bytes. Returns how many.
fn short(run: fn(&[u8]), most: usize) -> u64 {
    let mut count = 0;
    for len in 0..=most {
        let mut bytes = vec![0; len];
        loop {
            run(&bytes);
            count += 1;
            // The next number.
            let Some(at) = bytes.iter().rposition(|byte| *byte != 0xff) else { break };
            bytes[at] += 1;
            bytes[at + 1..].fill(0);
        }
    }
    count
}

/// Every input that is cut, and every input with another byte somewhere. Returns how many.
fn changed(run: fn(&[u8]), sample: &[u8]) -> u64 {
    let mut count = 0;
    for end in 0..sample.len() {
        run(&sample[..end]);
        count += 1;
    }
    let mut bytes = sample.to_vec();
    for at in 0..bytes.len() {
        for other in 1..=255 {
            bytes[at] ^= other;
            run(&bytes);
            bytes[at] ^= other;
            count += 1;
        }
    }
    count
}

/// Inputs of the corpus, the shorter ones first, which reach as much of a reader as the longer ones of the same kind.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs: Vec<_> =
        folder.read_dir().unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs
}

impl Reader {
    /// Tries all short inputs, and all at a distance of one from inputs of the corpus. Prints a line of a table.
    ///
    /// # Panics
    /// When a rule is broken.
    pub fn check(&self) {
        let most = self.short + usize::from(all());
        let few = short(self.run, most);
        let inputs = corpus(self.name);
        // Evenly over all lengths.
        let step = if all() { 1 } else { (inputs.len() / self.samples).max(1) };
        let samples: Vec<_> =
            inputs.iter().step_by(step).filter(|input| input.len() <= self.longest).collect();
        let longest = samples.iter().map(|sample| sample.len()).max().unwrap();
        let near: u64 = samples.iter().map(|sample| changed(self.run, sample)).sum();
        println!(
            "| `{}` | all {few} of up to {most} bytes | all {near} at a distance of one from {} of up to {longest} bytes |",
            self.name,
            samples.len()
        );
        assert!(few > 256 && near > 10_000, "{few} and {near} inputs only");
    }
}
