//! Questions to a store about one-time cookies, and its answers.
#![allow(dead_code, reason = "each test uses its part")]

use firstflight::StoreError;
use firstflight::credential::{FlightId, JobRequest, JobResult, Reason, Serial};

fn serial(counter: u64) -> Serial {
    Serial::new(3, counter).unwrap()
}

pub(crate) fn redeem(counter: u64) -> JobRequest {
    JobRequest::Redeem { serial: serial(counter), flight: None }
}

/// The same, by this first flight.
pub(crate) fn redeem_by(counter: u64, flight: FlightId) -> JobRequest {
    JobRequest::Redeem { serial: serial(counter), flight: Some(flight) }
}

pub(crate) fn activate(counter: u64) -> JobRequest {
    JobRequest::Activate { serial: serial(counter) }
}

pub(crate) const fn refused(reason: Reason) -> Result<JobResult, StoreError> {
    Ok(JobResult::Refuse(reason))
}

pub(crate) const ACCEPTED: Result<JobResult, StoreError> = Ok(JobResult::Accept);

pub(crate) const REPEATED: Result<JobResult, StoreError> = Ok(JobResult::Repeat);
