//! A client and a server for tests.

use crate::bind::Bind;
use crate::client::draft::Draft;
use crate::client::size::{FlightRoom, Plan};
use crate::flight::Flight;
use crate::keys::{KeySet, SealKey};
use crate::name::HostName;
use crate::plain::{Flags, Rid};
use crate::record::{Entry, Record};
use crate::seal::Target;
use core::num::NonZeroU8;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

/// Unix seconds.
pub(crate) const NOW: u64 = 1_767_225_660;
pub(crate) const NAME: &str = "www.example.com";
pub(crate) const BOTH: Flags = Flags { replayable: true, complete: true };
pub(crate) const COMPLETE: Flags = Flags { replayable: false, complete: true };

pub(crate) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(crate) fn id(id: u8) -> NonZeroU8 {
    id.try_into().unwrap()
}

pub(crate) fn name(text: &str) -> HostName {
    HostName::new(text.as_bytes()).unwrap()
}

pub(crate) fn key(byte: u8) -> SealKey {
    SealKey::from_bytes(&[byte; 32]).unwrap()
}

/// The keys of the vectors: number 7, for a day.
pub(crate) fn keys() -> KeySet {
    let mut keys = KeySet::new(name(NAME));
    keys.add(id(7), key(5), (NOW + 86_400) as u32, NOW).unwrap();
    keys
}

pub(crate) fn record() -> Record {
    keys().record(NOW).unwrap()
}

pub(crate) fn entry() -> Entry {
    record().entries()[0].clone()
}

/// A ClientHello record, as `tools/sealed-vectors` makes it.
pub(crate) fn hello(server: &str, alpn: &[Vec<u8>]) -> Vec<u8> {
    let two = |len: usize| (len as u16).to_be_bytes();
    let extension = |kind: u16, data: &[u8]| [&kind.to_be_bytes(), &two(data.len())[..], data].concat();
    let name = server.as_bytes();
    let sni = [&two(name.len() + 3)[..], &[0], &two(name.len()), name].concat();
    let share = [&two(36)[..], &two(0x1d), &two(32), &(0..32).collect::<Vec<u8>>()].concat();
    let names: Vec<u8> = alpn.iter().flat_map(|name| [&[name.len() as u8][..], name].concat()).collect();
    let extensions = [
        extension(0, &sni),
        extension(43, &[2, 3, 4]),
        extension(51, &share),
        extension(10, &[0, 2, 0, 0x1d]),
        extension(13, &[0, 4, 4, 3, 8, 7]),
        extension(16, &[&two(names.len())[..], &names].concat()),
    ]
    .concat();
    let random: Vec<u8> = (0x40..0x60).collect();
    let fixed = [&[3, 3][..], &random, &[0, 0, 4, 0x13, 1, 0x13, 2, 1, 0]].concat();
    let body = [&fixed[..], &two(extensions.len()), &extensions].concat();
    let message = [&[1, 0][..], &two(body.len()), &body].concat();
    [&[22, 3, 1][..], &two(message.len()), &message].concat()
}

/// What a client seals.
#[derive(Clone)]
pub(crate) struct Parts<'a> {
    pub rid: Rid,
    pub bind: Bind,
    pub t_ms: u64,
    pub flags: Flags,
    pub request: &'a [u8],
    pub server: &'a str,
    pub port: u16,
    pub entry: Entry,
    pub public_name: &'a str,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(request: &'a [u8], flags: Flags) -> Self {
        let (rid, bind, t_ms) = (Rid([9; 16]), Bind::NONE, NOW * 1000);
        Self { rid, bind, t_ms, flags, request, server: NAME, port: 443, entry: entry(), public_name: NAME }
    }

    pub(crate) fn with(&self, draft: impl FnOnce(Draft<'_>, &Self) -> Flight) -> Flight {
        let public_name = name(self.public_name);
        let to = Target { entry: &self.entry, public_name: &public_name, port: self.port };
        let Self { rid, bind, t_ms, flags, request, .. } = *self;
        draft(Draft::new(to, rid, bind, t_ms, flags, request, b"http/1.1").unwrap(), self)
    }

    pub(crate) fn plan(&self, hello: usize) -> Plan {
        FlightRoom::on_connection().plan(hello, self.request.len()).unwrap()
    }

    /// A flight as an honest client makes it.
    pub(crate) fn flight(&self, rng: &mut ChaCha20Rng) -> Flight {
        self.with(|draft, parts| {
            let hello = hello(parts.server, draft.alpn());
            draft.seal(&hello, &name(parts.server), &parts.plan(hello.len()), rng).unwrap()
        })
    }

    /// Its ClientHello.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut made = Vec::new();
        let _ = self.with(|draft, parts| {
            made = hello(parts.server, draft.alpn());
            draft.seal(&made, &name(parts.server), &parts.plan(made.len()), &mut rng(0)).unwrap()
        });
        made
    }
}

pub(crate) fn flight(request: &[u8], rng: &mut ChaCha20Rng) -> Flight {
    Parts::new(request, BOTH).flight(rng)
}
