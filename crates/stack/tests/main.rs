//! The tests of the stack, in one program. Each module is about one subject. The modules without tests are the peers and
//! the paths of the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod certified;
#[path = "certified/flights.rs"]
mod flights;
mod flows;
#[path = "certified/relayed.rs"]
mod handed;
mod pair;
mod peer;
mod rebinding;
mod translator;
#[path = "certified/visitor.rs"]
mod visitor;
mod watch;

mod answers;
mod as_linux;
mod asap;
mod asap_armed;
mod asap_before_ack;
mod asap_client;
mod asap_offers;
mod asap_once;
mod asap_refusals;
mod asap_refused_later;
mod asap_relayed;
mod asap_relayed_waiting;
mod asap_server;
mod black_hole_memory;
mod blackholes;
mod carrier;
mod carrier_first_flight;
mod carrier_followers;
mod carrier_handshake;
mod carrier_keep_alive;
mod carrier_mtu;
mod carrier_paths;
mod carrier_probe;
mod carrier_rebinding;
mod carrier_rebinding_attacks;
mod carrier_robustness;
mod carrier_search;
mod carrier_theft;
mod claims;
mod clients;
mod closed_window;
mod closing;
mod congestion;
mod duplicates;
mod ecn;
mod farm;
mod fast_open_child;
mod fast_open_client;
mod fast_open_memory;
mod fast_open_parking;
mod fast_open_server;
mod flow_control;
mod fragments;
mod golden;
mod handshake;
mod icmp;
mod ladder;
mod loss;
mod lost_syn_ack;
mod off_path;
mod once_in_udp;
mod outcomes;
mod overload;
mod parking;
mod rack;
mod reasons;
mod recovery;
mod refused_syn;
mod reopening;
mod replays;
mod rfc2018;
mod rfc5961;
mod rfc7323;
mod rfc9293;
mod slow_start;
mod starting;
mod swallowed;
mod syn_cookies;
mod time_wait_client;
mod transfers;
