//! How long a certificate lasts: it depends on how long its client has been seen at its address (Zhou's
//! thesis §4.4). After a client leaves an address, it stays certified there until about twice the time that
//! it was there.

/// A certificate begins up to this many seconds before it is made, at random. So certificates that are made
/// together begin at different times, and a server whose clock is a little behind accepts them at once.
pub const BACKDATED: u32 = 20;
/// The shortest duration of a certificate, seconds.
pub const SHORTEST: u32 = 60;

/// How many seconds before it is made a certificate that lasts for `lasts` seconds may begin. A short one begins less long
/// before, so that a client that renews it in time has not lost much of it.
#[must_use]
pub fn backdated(lasts: u32) -> u32 {
    BACKDATED.min(lasts / 12)
}

/// How long a client has certainly been at its address, seconds, if its certificate begins at `valid_from` and lasts for
/// `lasts` seconds. The certificate may have been made up to [`backdated`] seconds later, so the time is counted from there.
///
/// If the time were counted from `valid_from`, the backdating would add up with each refresh, and a client
/// that left could be certified for longer than is promised.
#[must_use]
pub fn seen_for(now: u32, valid_from: u32, lasts: u32) -> u32 {
    now.saturating_sub(valid_from.saturating_add(backdated(lasts)))
}

/// How long the next certificate lasts, seconds: twice as long as the client has been `seen`, but at least
/// `first`, and at most `longest` and `wished`.
#[must_use]
pub fn duration(wished: u32, longest: u32, first: u32, seen: u32) -> u32 {
    wished.min(longest).min(first.max(seen.saturating_mul(2)))
}

#[cfg(test)]
mod tests;
