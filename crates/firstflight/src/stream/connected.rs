//! What a client says of a stream that it has connected.

use super::{ConnectTimes, KernelStream, Kind, Race, Stream};
use crate::dns_path::report::Report;
use firstflight_credential::Outcome;

impl Race {
    pub(crate) const fn new(data_left_twice: bool) -> Self {
        Self { data_left_twice }
    }
}

impl Stream {
    /// A stream of the kernel after a race. `elsewhere` is the outcome of its first flight if that was in the SYN of an
    /// attempt at another address.
    pub(crate) fn raced(stream: KernelStream, race: Option<Race>, elsewhere: Option<Outcome>) -> Self {
        let mut stream = Self::of(Kind::Kernel(stream));
        (stream.race, stream.elsewhere) = (race, elsewhere);
        stream
    }

    /// The same stream, with the outcome of its first flight if that was in another connection's SYN.
    #[allow(dead_code, reason = "of an engine")]
    pub(crate) const fn told(mut self, elsewhere: Option<Outcome>) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// The same stream, which took this long to connect.
    pub(crate) const fn took(mut self, times: ConnectTimes) -> Self {
        self.times = Some(times);
        self
    }

    /// The same stream, with what became of its first flight in the lookup.
    #[allow(dead_code, reason = "there may be none")]
    pub(crate) fn reported(mut self, report: Option<Report>) -> Self {
        self.report = report.map(Box::new);
        self
    }
}
