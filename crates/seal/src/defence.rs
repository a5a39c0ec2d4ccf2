//! Defences that a test can take out, to show that an attack succeeds without them. In a build without tests every
//! defence is there, and the compiler knows it.

/// A defence of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defence {
    /// The digest in the ClientHello is compared (4.3).
    Digest,
    /// The digest covers `info` (4.2).
    DigestCoversInfo,
    /// A ClientHello in clear must not offer names of a flight (4.3).
    ReservedNames,
    /// The client closes unless its name was selected (4.4).
    Selection,
    /// Bind is compared under an accepted block (5).
    Bind,
    /// The block signs `enc` (5).
    SignedEnc,
    /// `info` contains the port (3.2).
    Port,
    /// Rid is remembered (6.2).
    Table,
    /// The client of a copy gets no 425 (6.2). The server of the tests has this defence, since this crate has no 425.
    #[cfg(test)]
    SilentCopies,
    /// The hash of the strike register has a secret key (6.2).
    KeyedHash,
    /// Entries live for 15 minutes, not for 2 (6.2).
    Lifetime,
    /// The strike register has a quota for flights without a block (6.2).
    Quota,
    /// t is compared with the clock (6.3).
    Window,
    /// t is compared with the floor (6.5).
    Floor,
    /// A request waits for 60 s at most (6.4).
    Deadline,
    /// A listener for client certificates runs nothing early (6.9).
    ClientCertificates,
    /// One strike register of several runs only replayable requests early (6.3).
    PerSite,
    /// A store that does not answer is not one that has never seen a rid (6.6).
    StoreLost,
    /// The server's name must be served with the key (6.8).
    Names,
    /// The client repeats nothing that could have run (7.3).
    Unknown,
    /// A hidden name is never sent in clear (7.5).
    Hidden,
    /// The client ignores keys that are over, or last too long (8.2).
    NotAfter,
    /// The AD bit of a resolver on another host does not count (8.3).
    AdBit,
    /// One network does not use up the budget for openings (6.10).
    Shares,
    /// Nor do the many networks of one region (6.10).
    Regions,
    /// The TTL of a farm's record is at most its period (8.5).
    FarmTtl,
    /// Padding must be zero (3.3).
    Padding,
    /// A network that carries flights is not stopped by what servers do (7.4).
    NetworkCarries,
    /// A flight that failed when no ordinary connection worked either does not count (7.4).
    Outage,
}

#[cfg(not(test))]
#[inline]
pub(crate) const fn on(_: Defence) -> bool {
    true
}

#[cfg(test)]
pub(crate) use switched::{on, without};

#[cfg(test)]
mod switched {
    use super::Defence;
    use std::cell::Cell;

    thread_local! {
        static OUT: Cell<Option<Defence>> = const { Cell::new(None) };
    }

    pub(crate) fn on(defence: Defence) -> bool {
        OUT.get() != Some(defence)
    }

    /// Runs `attack` with all defences, and again without this one.
    pub(crate) fn without<T>(defence: Defence, mut attack: impl FnMut() -> T) -> (T, T) {
        let with = attack();
        OUT.set(Some(defence));
        let without = attack();
        OUT.set(None);
        (with, without)
    }
}
