//! Clients with certificates.

#[cfg(target_os = "linux")]
mod cancelled;
mod client;
mod client_attacks;
mod client_attacks2;
mod own_verifier;
#[cfg(target_os = "linux")]
mod own_verifier_sockets;
mod race_certified;
#[cfg(target_os = "linux")]
#[path = "../site/mod.rs"]
mod site;
