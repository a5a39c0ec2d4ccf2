//! The work of each step, measured one by one.

use super::{CertificateKnown, Credential, Step};
use crate::bench::certificates::server::{self, Accepting};
use crate::bench::certificates::signatures::{NOW, NOW_MS, Signatures, clock};
use crate::bench::certificates::{Row, VerifiedBefore};
use crate::bench::front::{Row as FrontRow, work::Work as Front};
use crate::bench::{BenchError, REQUEST, cpu_time};
use crate::certified;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_stack::{Config, ConnectConfig, Stack};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80)), 80);
/// Operations before those that are measured.
const WARM_UP: usize = 50;

pub struct Work {
    signatures: Signatures,
    accepting: Accepting,
    front: Front,
    client: Stack,
    certificate: Arc<ClientCertificate>,
}

const fn seen(known: CertificateKnown) -> VerifiedBefore {
    match known {
        CertificateKnown::Yes => VerifiedBefore::Cached,
        CertificateKnown::No => VerifiedBefore::New,
    }
}

impl Work {
    pub fn new() -> Result<Self, BenchError> {
        let mut client = Stack::new(Config::new(vec![CLIENT], [1; 32]), NOW);
        client.handle_clock(clock());
        let key = PrivateKey::from_seed(&[2; 32]);
        let certificate = certified::certificate(key, CLIENT, (NOW, NOW_MS / 1000), (certified::LASTS, 1))
            .ok_or_else(|| BenchError::Wrong("a certificate of constants".into()))?;
        Ok(Self {
            signatures: Signatures::new(1)?,
            accepting: Accepting::new(1)?,
            front: Front::new(1)?,
            client,
            certificate: Arc::new(certificate),
        })
    }

    /// The CPU time of `count` operations.
    pub fn each(&mut self, step: Step, count: usize) -> Result<Vec<Duration>, BenchError> {
        let mut all = match step {
            Step::Issue => self.signed(Row::Issue, count)?,
            Step::Sign => self.signed(Row::Sign, count)?,
            Step::Verify(known) => self.signed(Row::Verify(seen(known), 1), count)?,
            Step::Connect(certified) => self.connects(certified, count)?,
            Step::Accept(Credential::Certificate(known)) => {
                self.accepting.each(server::Credential::Certificate(seen(known)))?
            }
            Step::Accept(Credential::Cookie) => self.accepting.each(server::Credential::Cookie)?,
            Step::Query => self.front.each(FrontRow::Plain, count + WARM_UP)?,
            Step::Front => self.front.each(FrontRow::Relayed, count + WARM_UP)?,
        };
        // The last ones: caches are warm.
        Ok(all.split_off(all.len().saturating_sub(count)))
    }

    fn signed(&mut self, row: Row, count: usize) -> Result<Vec<Duration>, BenchError> {
        let mut all = Vec::with_capacity(count);
        for n in 0..count + WARM_UP {
            let began = cpu_time()?;
            self.signatures.once(row)?;
            let took = cpu_time()?.saturating_sub(began);
            if n >= WARM_UP {
                all.push(took);
            }
        }
        Ok(all)
    }

    fn connects(&mut self, with: bool, count: usize) -> Result<Vec<Duration>, BenchError> {
        let mut out = vec![0; 1500];
        let mut all = Vec::with_capacity(count);
        let config = if with { certified::connect(&self.certificate, NOW) } else { ConnectConfig::default() };
        for n in 0..count + WARM_UP {
            let began = cpu_time()?;
            let made = self.client.connect(SERVER, &REQUEST, &config, NOW);
            let (id, _) = made.map_err(|error| BenchError::refused("a connect", error))?;
            let sent = black_box(self.client.poll_transmit(NOW, &mut out));
            let took = cpu_time()?.saturating_sub(began);
            // With a certificate the request is in the SYN.
            if sent.is_none_or(|len| with != (len > REQUEST.len() + 40)) {
                return Err(BenchError::Wrong(format!("a SYN of {sent:?} bytes")));
            }
            self.client.abort(id, NOW);
            self.client.release(id, NOW);
            while self.client.poll_transmit(NOW, &mut out).is_some() {}
            while self.client.poll_event().is_some() {}
            if n >= WARM_UP {
                all.push(took);
            }
        }
        Ok(all)
    }
}
