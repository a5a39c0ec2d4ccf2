//! An honest client, which visits in every way and uses different bytes for each request.

use super::fronts::{dns_path, zone};
use super::packets::block_of;
use super::server::{MAGIC, OUTER};
use super::{PORT, UNIX_MS, identity, verifier};
use firstflight_credential::asap::{ClientCertificate, PrivateKey, certify};
use firstflight_dns::{Attempt, ConnectionInfo, FragmentQuery, Fragments, seal};
use firstflight_stack::{
    Certified, Config, ConnId, ConnectConfig, EncapsulationConfig, FirstData, IoError, Stack,
};
use firstflight_wire::Instant;
use firstflight_wire::asap::{Block, CertificateFlags};
use firstflight_wire::tcp::Segment;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// UDP port of the encapsulation.
const OURS: u16 = 5000;

/// How a first flight travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, arbitrary::Arbitrary)]
pub enum Way {
    Ip,
    Udp,
    /// Inside the lookup, and directly in UDP.
    Lookup,
}

struct Visit {
    id: ConnId,
    read: usize,
}

pub struct Client {
    pub address: IpAddr,
    pub stack: Stack,
    certificate: Arc<ClientCertificate>,
    public: [u8; 32],
    visits: Vec<Visit>,
    random: ChaCha20Rng,
}

/// A visit inside a lookup.
pub struct Looked {
    pub id: ConnId,
    /// The block that travels by a front.
    pub block: Block,
    /// The questions for its fragments.
    pub queries: Vec<Vec<u8>>,
}

/// What requests are filled with behind their head.
pub const FILLER: u8 = b'q';

/// The bytes of request `number`.
pub fn request(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &number.to_be_bytes(), &(len as u16).to_be_bytes()].concat();
    bytes.resize(len, FILLER);
    bytes
}

impl Client {
    pub fn new(number: u8, now: Instant) -> Self {
        let address = IpAddr::from([10, number, 0, 2]);
        let mut config = Config::new(vec![address], [90 + number; 32]);
        config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
        config.limits.connections = 64;
        let key = PrivateKey::from_seed(&[30 + number; 32]);
        let public = *key.public().as_bytes();
        let flags = CertificateFlags::new(1, true, false).expect("flags");
        let begin = (UNIX_MS / 1000) as u32;
        let body =
            certify(&verifier(true), &key.public(), address, begin, 3600, flags).expect("a certificate");
        let certificate = ClientCertificate::new(body, verifier(true).public(), address, key, Instant::ZERO);
        Self {
            address,
            stack: Stack::new(config, now),
            certificate: Arc::new(certificate.expect("its own certificate")),
            public,
            visits: Vec::new(),
            random: ChaCha20Rng::from_seed([40 + number; 32]),
        }
    }

    fn config(&self, way: Way, once: bool, now: Instant) -> ConnectConfig {
        let certificate = Arc::clone(&self.certificate);
        let asap = Certified {
            certificate,
            now,
            identity: identity(),
            known: true,
            once,
            mss: None,
            request_id: None,
        };
        let encapsulation = (way != Way::Ip).then_some(OUTER);
        ConnectConfig::default().asap(Some(asap)).replay_safe(!once).encapsulation(encapsulation)
    }

    /// Connects directly to `server`.
    pub fn connect(&mut self, server: IpAddr, data: &[u8], (way, once): (Way, bool), now: Instant) {
        let config = self.config(way, once, now);
        if let Ok((id, _)) = self.stack.connect(SocketAddr::new(server, PORT), data, &config, now) {
            self.visits.push(Visit { id, read: 0 });
        }
    }

    /// Starts a visit inside a lookup.
    pub fn look_up(&mut self, data: &[u8], now: Instant) -> Option<Looked> {
        let in_lookup = self
            .stack
            .connect_in_lookup(PORT, FirstData::whole(data), &self.config(Way::Lookup, false, now), now)
            .ok()?;
        self.visits.push(Visit { id: in_lookup.id, read: 0 });
        let block = block_of(&Segment::parse(&in_lookup.segment).ok()?)?;
        let seen = SocketAddr::new(self.address, OURS);
        let info = ConnectionInfo::from_segment(seen, &in_lookup.segment).ok()?;
        let (sealed, key) = seal(&info, &dns_path(), &mut self.random).ok()?;
        assert!(self.stack.expect_answer(in_lookup.id, key));
        let fragments = Fragments::split(&sealed, Attempt::default(), false);
        let queries = FragmentQuery::all(&fragments, zone(), &mut self.random).ok()?;
        let queries = queries.iter().map(|query| query.as_bytes().to_vec()).collect();
        Some(Looked { id: in_lookup.id, block, queries })
    }

    /// A block for a request with this id and data, signed for a SYN on IP.
    pub fn on_ip(&self, data: &[u8], request_id: [u8; 8], now: Instant) -> Block {
        self.certificate.request(
            firstflight_wire::asap::Encapsulation::Ip,
            &identity(),
            data,
            request_id,
            now,
        )
    }

    /// The client's public key.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// Reads answers, and closes each connection at the end of its answer.
    pub fn read(&mut self, now: Instant) {
        while self.stack.poll_event().is_some() {}
        let stack = &mut self.stack;
        self.visits.retain_mut(|visit| {
            let mut buffer = [0; 2048];
            loop {
                match stack.read(visit.id, &mut buffer, now) {
                    Ok(len @ 1..) => visit.read += len,
                    Err(IoError::WouldBlock) => return true,
                    Ok(0) | Err(_) => break,
                }
            }
            let _ = stack.shutdown(visit.id, now);
            stack.release(visit.id, now);
            false
        });
    }

    /// Aborts all visits.
    pub fn give_up(&mut self, now: Instant) {
        for visit in self.visits.drain(..) {
            self.stack.abort(visit.id, now);
            self.stack.release(visit.id, now);
        }
    }

    pub fn end(&self) {
        assert_eq!(self.stack.connections(), 0, "connections are left: {:?}", self.stack);
        assert_eq!(self.stack.buffer_bytes(), 0, "buffers are left");
    }
}
