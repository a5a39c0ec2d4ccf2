//! Where the time of a visit to a site goes, and what first flights would save of it (feature `measure`).
//!
//! ```no_run
//! use firstflight_doctor::measure::{Savings, Visitor, round_trip};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "http://www.example.com/".parse()?;
//! let visitor = Visitor::new();
//! let visits = [visitor.visit(&url).await?, visitor.visit(&url).await?];
//! let trip = round_trip(&visits);
//! for visit in &visits {
//!     let saved = Savings::of(&visit.parts, trip).first_flight;
//!     println!("{:?} of {:?}", saved, visit.parts.total());
//! }
//! # Ok(()) }
//! ```

mod connect;
mod savings;
mod visit;

#[cfg(test)]
mod tests;

pub use savings::{Savings, round_trip};
pub use visit::{Parts, Visit, VisitError, VisitStage, Visitor};
