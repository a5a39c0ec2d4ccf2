//! The program that takes the packets of the served ports from a device, and leaves everything else to the kernel.
//!
//! It runs for every packet that the device receives. A packet is taken if it is TCP, or UDP where the encapsulation is
//! served, to a served address and port, and to the device's own link-layer address, without a VLAN tag. ICMP errors
//! that quote a packet from a served address and port are taken too. A packet to a served port that the engine cannot
//! take is dropped and counted: passed on, it would meet the socket that holds the port. Where two processes may share
//! the port, connections of the kernel are passed ([`Duty`]). A SYN is dropped when many wait: a flood of
//! them must leave room for the packets of connections.

use super::assembler::{Assembler, Label, Op, Reg, When, Width};
use super::frame::SynOpening;
use super::maps::{ConnectionOwner, DUTY_BITS, Duty, Maps, TUPLE_BYTES};

use Op::{Add, And, Move, Or, ShiftRight};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use When::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
use Width::{Byte, Double, Half, Word};

/// Why a packet of a served port was dropped: the place of its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dropped {
    /// IPv4 options.
    Options,
    /// A first fragment.
    Fragment,
    /// The source address is no host's, or our own.
    Source,
    /// The source address is not allowed.
    NotAllowed,
    /// Its queue has no socket.
    NoSocket,
    /// A SYN, and as many wait as may.
    Flood,
}

impl Dropped {
    pub(super) const COUNT: usize = 6;
}

/// What the program says about a packet (`enum xdp_action`).
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_REDIRECT: i32 = 4;

/// `bpf_map_lookup_elem`, `bpf_map_update_elem` and `bpf_redirect_map`.
const LOOK_UP: i32 = 1;
const UPDATE: i32 = 2;
const REDIRECT_MAP: i32 = 51;

/// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Length of an Ethernet header.
const ETH: i16 = 14;

/// The key of a served port, from the frame pointer: 16 bytes of address, port, protocol, zero.
const KEY: i16 = -24;
/// The key of a prefix: its length in bits, and an address.
const PREFIX: i16 = -48;
/// The length of the IPv4 header in words of four bytes; and without options.
const HEADER: i16 = -56;
const WORDS: i16 = 5;
/// The key of a queue, and that of a served address.
const OPENINGS: i16 = -64;
const PRESENT: i16 = -68;
/// A four-tuple: 16 bytes for each address, and two ports; and its value, if it is the kernel's.
const TUPLE: i16 = -108;
const KERNELS: i16 = -112;
const _: () = assert!(TUPLE + TUPLE_BYTES as i16 <= PRESENT);

/// An address of IPv4 as the first twelve bytes of a mapped address of IPv6, and the rest.
const MAPPED: [u32; 3] = [0, 0, u32::from_ne_bytes([0, 0, 0xff, 0xff])];

const fn half(bytes: [u8; 2]) -> i32 {
    u16::from_ne_bytes(bytes) as i32
}

/// The program for a device with this link-layer address. `any` takes packets of all sources.
pub(super) fn assemble(mac: [u8; 6], maps: &Maps, any: bool) -> Option<Vec<u64>> {
    let mut it = Filter::new(maps, any);
    let [m0, m1, m2, m3, m4, m5] = mac;
    let (v4, v6, pass) = (it.asm.label(), it.asm.label(), it.pass);
    let asm = &mut it.asm;
    asm.register(Move, R6, R1);
    asm.load(Word, R7, R6, DATA);
    asm.load(Word, R8, R6, DATA_END);
    it.need(ETH);
    let asm = &mut it.asm;
    asm.load(Word, R2, R7, 0);
    asm.jump_word(NotEqual, R2, u32::from_ne_bytes([m0, m1, m2, m3]), pass);
    asm.load(Half, R2, R7, 4);
    asm.jump_number(NotEqual, R2, half([m4, m5]), pass);
    asm.load(Half, R2, R7, 12);
    asm.jump_number(Equal, R2, half([0x08, 0x00]), v4);
    asm.jump_number(Equal, R2, half([0x86, 0xdd]), v6);
    asm.jump(pass);
    asm.place(v4);
    it.ipv4();
    it.asm.place(v6);
    it.ipv6();
    it.ends();
    it.asm.finish()
}

impl Assembler {
    /// Reads the duty into `R9`. The value of the kernel's four-tuples goes onto the stack.
    fn load_duty(&mut self, duty: i32) {
        self.map_value(R1, duty);
        self.load(Double, R9, R1, 0);
        self.register(Move, R2, R9);
        self.number(ShiftRight, R2, DUTY_BITS.cast_signed());
        // Behind the epoch there is one bit, for the owner.
        self.register(Add, R2, R2);
        self.store(Word, R10, KERNELS, R2);
        self.number(And, R9, (1 << DUTY_BITS) - 1);
    }
}

struct Filter<'a> {
    asm: Assembler,
    maps: &'a Maps,
    any: bool,
    pass: Label,
    take: Label,
    /// Takes SYNs, if not too many wait: by [`SynOpening`].
    opens: [Label; SynOpening::COUNT],
    drops: [Label; Dropped::COUNT],
}

impl<'a> Filter<'a> {
    fn new(maps: &'a Maps, any: bool) -> Self {
        let mut asm = Assembler::default();
        let (pass, take) = (asm.label(), asm.label());
        let opens = std::array::from_fn(|_| asm.label());
        let drops = std::array::from_fn(|_| asm.label());
        Self { asm, maps, any, pass, take, opens, drops }
    }

    fn drop(&self, why: Dropped) -> Label {
        self.drops.get(why as usize).copied().unwrap_or(self.pass)
    }

    /// Passes packets of fewer than `len` bytes.
    fn need(&mut self, len: i16) {
        self.need_or(len, self.pass);
    }

    fn need_or(&mut self, len: i16, no: Label) {
        self.asm.register(Move, R2, R7);
        self.asm.number(Add, R2, len.into());
        self.asm.jump_register(Greater, R2, R8, no);
    }

    /// Passes the packet, whose TCP header would be at `at`, if its connection is the kernel's ([`Duty`]).
    fn kernels(&mut self, v6: bool, protocol: i16, at: i16) {
        let Some([duty, owned, passed]) = self.maps.passing() else { return };
        let (on, known, pass) = (self.asm.label(), self.asm.label(), self.pass);
        let asm = &mut self.asm;
        asm.load_duty(duty);
        asm.jump_number(Equal, R9, Duty::Take as i32, on);
        asm.load(Byte, R2, R7, protocol);
        asm.jump_number(NotEqual, R2, 6, on);
        self.need_or(at + 20, on);
        let source = if v6 { ETH + 8 } else { ETH + 12 };
        let width = if v6 { 16 } else { 4 };
        self.tuple(v6, [source, source + width], [at, at + 2]);
        self.owned(owned, on);
        let asm = &mut self.asm;
        asm.jump_number(Equal, R9, Duty::PassOthers as i32, pass);
        asm.jump_number(Equal, R9, Duty::PassKernels as i32, on);
        asm.jump_number(Equal, R9, Duty::PassKnown as i32, known);
        asm.load(Byte, R2, R7, at + 13);
        asm.number(And, R2, 0x12);
        asm.jump_number(NotEqual, R2, 0x02, known);
        asm.map(R1, passed);
        asm.register(Move, R2, R10);
        asm.number(Add, R2, TUPLE.into());
        asm.register(Move, R3, R10);
        asm.number(Add, R3, KERNELS.into());
        asm.number(Move, R4, 0);
        asm.call(UPDATE);
        asm.jump(pass);
        asm.place(known);
        asm.jump_number(Equal, R9, Duty::PassAll as i32, pass);
        self.passed(passed, on);
        self.asm.place(on);
    }

    /// Passes an ICMP message that quotes a packet of the kernel's, at `quoted` with the ports at `ports`, if it is TCP.
    fn kernels_error(&mut self, v6: bool, quoted: i16, ports: i16) {
        let Some([duty, owned, passed]) = self.maps.passing() else { return };
        let (on, pass) = (self.asm.label(), self.pass);
        let (protocol, source) = if v6 { (quoted + 6, quoted + 8) } else { (quoted + 9, quoted + 12) };
        let width = if v6 { 16 } else { 4 };
        let asm = &mut self.asm;
        asm.load_duty(duty);
        asm.jump_number(Equal, R9, Duty::Take as i32, on);
        asm.load(Byte, R2, R7, protocol);
        asm.jump_number(NotEqual, R2, 6, on);
        // The quoted packet went the other way.
        self.tuple(v6, [source + width, source], [ports + 2, ports]);
        self.owned(owned, on);
        self.asm.jump_number(Equal, R9, Duty::PassOthers as i32, pass);
        self.asm.jump_number(Equal, R9, Duty::PassAll as i32, pass);
        self.asm.jump_number(Equal, R9, Duty::PassKernels as i32, on);
        self.passed(passed, on);
        self.asm.place(on);
    }

    /// If the owner of the connection is known in this epoch, passes the kernel's, and goes to `taken` with the engine's.
    fn owned(&mut self, owned: i32, taken: Label) {
        let unknown = self.asm.label();
        self.passed(owned, unknown);
        let asm = &mut self.asm;
        asm.number(Add, R2, ConnectionOwner::Engine as i32);
        asm.jump_register(Equal, R1, R2, taken);
        asm.place(unknown);
    }

    /// Passes the packet if this map has its four-tuple as the kernel's in this epoch, and goes to `no` if it does not have it. Else `R1` is
    /// what it has, and `R2` what the kernel's would have.
    fn passed(&mut self, map: i32, no: Label) {
        self.look_up(map, TUPLE);
        let asm = &mut self.asm;
        asm.jump_number(Equal, R0, 0, no);
        asm.load(Word, R1, R0, 0);
        asm.load(Word, R2, R10, KERNELS);
        asm.jump_register(Equal, R1, R2, self.pass);
    }

    /// Writes a four-tuple from these places of the packet.
    fn tuple(&mut self, v6: bool, addresses: [i16; 2], ports: [i16; 2]) {
        let asm = &mut self.asm;
        for (place, address) in [TUPLE, TUPLE + 16].into_iter().zip(addresses) {
            for n in 0..4 {
                match (v6, n) {
                    (false, 0..3) => asm.store_number(
                        Word,
                        R10,
                        place + 4 * n,
                        MAPPED.get(n as usize).map_or(0, |word| *word as i32),
                    ),
                    _ => {
                        asm.load(Word, R2, R7, address + if v6 { 4 * n } else { 0 });
                        asm.store(Word, R10, place + 4 * n, R2);
                    }
                }
            }
        }
        for (place, port) in [TUPLE + 32, TUPLE + 34].into_iter().zip(ports) {
            asm.load(Half, R2, R7, port);
            asm.store(Half, R10, place, R2);
        }
    }

    /// Takes the packet, whose TCP header would be at `at`. The `known` header of IP counts in the length, which is at `len`.
    fn take(&mut self, protocol: i16, at: i16, len: i16, known: i32) {
        let [plain, with_data] = self.opens;
        let take = self.take;
        self.asm.load(Byte, R2, R7, protocol);
        self.asm.jump_number(NotEqual, R2, 6, take);
        self.need_or(at + 20, take);
        let asm = &mut self.asm;
        // SYN without ACK.
        asm.load(Byte, R2, R7, at + 13);
        asm.number(And, R2, 0x12);
        asm.jump_number(NotEqual, R2, 0x02, take);
        asm.load(Half, R3, R7, len);
        asm.network_order(R3, 16);
        asm.load(Byte, R2, R7, at + 12);
        asm.number(And, R2, 0xf0);
        asm.number(ShiftRight, R2, 2);
        asm.number(Add, R2, known);
        asm.jump_register(GreaterOrEqual, R2, R3, plain);
        asm.jump(with_data);
    }

    /// Writes the address at `offset` of the packet into the key.
    fn address(&mut self, v6: bool, offset: i16) {
        if !v6 {
            for (n, word) in MAPPED.into_iter().enumerate() {
                self.asm.store_number(Word, R10, KEY + 4 * n as i16, word as i32);
            }
            self.asm.load(Word, R5, R7, offset);
            self.asm.store(Word, R10, KEY + 12, R5);
            return;
        }
        for n in 0..4 {
            self.asm.load(Word, R5, R7, offset + 4 * n);
            self.asm.store(Word, R10, KEY + 4 * n, R5);
        }
    }

    /// Writes the port (`R3`) and the protocol (`R4`) into the key.
    fn port(&mut self) {
        self.asm.store(Half, R10, KEY + 16, R3);
        self.asm.store(Byte, R10, KEY + 18, R4);
        self.asm.store_number(Byte, R10, KEY + 19, 0);
    }

    /// Looks the key up among the ports that are served now; `Equal` jumps if it is not there, `NotEqual` if it is.
    fn served(&mut self, when: When, to: Label) {
        let behind = self.asm.label();
        let absent = if matches!(when, Equal) { to } else { behind };
        self.look_up(self.maps.served(), KEY);
        self.asm.jump_number(Equal, R0, 0, absent);
        self.asm.load(Word, R2, R0, 0);
        self.asm.store(Word, R10, PRESENT, R2);
        self.look_up(self.maps.present(), PRESENT);
        self.asm.jump_number(Equal, R0, 0, absent);
        self.asm.load(Double, R2, R0, 0);
        self.asm.jump_number(when, R2, 0, to);
        self.asm.place(behind);
    }

    fn look_up(&mut self, map: i32, key: i16) {
        self.asm.map(R1, map);
        self.asm.register(Move, R2, R10);
        self.asm.number(Add, R2, key.into());
        self.asm.call(LOOK_UP);
    }

    /// Jumps to `no` unless the address at `offset` is allowed.
    fn allowed(&mut self, v6: bool, offset: i16, no: Label) {
        if self.any {
            return;
        }
        let words = if v6 { 4 } else { 1 };
        self.asm.store_number(Word, R10, PREFIX, i32::from(words) * 32);
        for n in 0..words {
            self.asm.load(Word, R2, R7, offset + 4 * n);
            self.asm.store(Word, R10, PREFIX + 4 + 4 * n, R2);
        }
        self.look_up(self.maps.allowed(v6), PREFIX);
        self.asm.jump_number(Equal, R0, 0, no);
    }

    /// Passes what is neither TCP nor UDP: `R4` is the protocol.
    fn transport(&mut self) {
        let known = self.asm.label();
        self.asm.jump_number(Equal, R4, 6, known);
        self.asm.jump_number(NotEqual, R4, 17, self.pass);
        self.asm.place(known);
    }

    /// `R3` becomes the destination port behind an IPv4 header with or without options. Each length has code of its own: without
    /// CAP_PERFMON the verifier refuses a pointer into the packet with an offset in a register.
    fn port_behind_options(&mut self) {
        let found = self.asm.label();
        for words in WORDS..=15 {
            let next = self.asm.label();
            self.asm.load(Double, R2, R10, HEADER);
            self.asm.jump_number(NotEqual, R2, words.into(), next);
            self.need(ETH + 4 * words + 4);
            self.asm.load(Half, R3, R7, ETH + 4 * words + 2);
            self.asm.jump(found);
            self.asm.place(next);
        }
        self.asm.jump(self.pass);
        self.asm.place(found);
    }

    fn ipv4(&mut self) {
        let (pass, take, icmp) = (self.pass, self.take, self.asm.label());
        self.need(ETH + 20);
        let asm = &mut self.asm;
        asm.load(Byte, R2, R7, ETH);
        asm.register(Move, R3, R2);
        asm.number(And, R3, 0xf0);
        asm.jump_number(NotEqual, R3, 0x40, pass);
        asm.number(And, R2, 0x0f);
        asm.jump_number(Less, R2, 5, pass);
        asm.store(Double, R10, HEADER, R2);
        // Only first fragments have ports.
        asm.load(Half, R3, R7, ETH + 6);
        asm.number(And, R3, half([0x1f, 0xff]));
        asm.jump_number(NotEqual, R3, 0, pass);
        asm.load(Byte, R4, R7, ETH + 9);
        asm.jump_number(Equal, R4, 1, icmp);
        self.transport();
        self.port_behind_options();
        self.port();
        self.address(false, ETH + 16);
        self.served(Equal, pass);

        let (options, fragment, source) =
            (self.drop(Dropped::Options), self.drop(Dropped::Fragment), self.drop(Dropped::Source));
        let asm = &mut self.asm;
        asm.load(Double, R2, R10, HEADER);
        asm.jump_number(NotEqual, R2, WORDS.into(), options);
        asm.load(Half, R3, R7, ETH + 6);
        asm.number(And, R3, half([0x20, 0x00]));
        asm.jump_number(NotEqual, R3, 0, fragment);
        asm.load(Byte, R2, R7, ETH + 12);
        asm.jump_number(Equal, R2, 0, source);
        asm.jump_number(Equal, R2, 127, source);
        asm.jump_number(GreaterOrEqual, R2, 224, source);
        self.address(false, ETH + 12);
        self.served(NotEqual, source);
        self.allowed(false, ETH + 12, self.drop(Dropped::NotAllowed));
        self.kernels(false, ETH + 9, ETH + 20);
        self.take(ETH + 9, ETH + 20, ETH + 2, 20);

        self.asm.place(icmp);
        self.asm.load(Double, R2, R10, HEADER);
        self.asm.jump_number(NotEqual, R2, WORDS.into(), pass);
        let quoted = ETH + 20 + 8;
        self.need(quoted + 20 + 4);
        let asm = &mut self.asm;
        asm.load(Half, R3, R7, ETH + 6);
        asm.number(And, R3, half([0x20, 0x00]));
        asm.jump_number(NotEqual, R3, 0, pass);
        let is_error = asm.label();
        asm.load(Byte, R2, R7, ETH + 20);
        asm.jump_number(Equal, R2, 3, is_error);
        asm.jump_number(NotEqual, R2, 11, pass);
        asm.place(is_error);
        // The engine's packets have no options.
        asm.load(Byte, R2, R7, quoted);
        asm.jump_number(NotEqual, R2, 0x45, pass);
        asm.load(Word, R2, R7, ETH + 16);
        asm.load(Word, R3, R7, quoted + 12);
        asm.jump_register(NotEqual, R2, R3, pass);
        asm.load(Byte, R4, R7, quoted + 9);
        self.transport();
        self.asm.load(Half, R3, R7, quoted + 20);
        self.port();
        self.address(false, quoted + 12);
        self.served(Equal, pass);
        self.allowed(false, quoted + 16, pass);
        self.kernels_error(false, quoted, quoted + 20);
        self.asm.jump(take);
    }

    fn ipv6(&mut self) {
        let (pass, take, icmp) = (self.pass, self.take, self.asm.label());
        self.need(ETH + 40);
        let asm = &mut self.asm;
        asm.load(Byte, R2, R7, ETH);
        asm.number(And, R2, 0xf0);
        asm.jump_number(NotEqual, R2, 0x60, pass);
        asm.load(Byte, R4, R7, ETH + 6);
        asm.jump_number(Equal, R4, 58, icmp);
        self.transport();
        self.need(ETH + 40 + 4);
        self.asm.load(Half, R3, R7, ETH + 42);
        self.port();
        self.address(true, ETH + 24);
        self.served(Equal, pass);

        let source = self.drop(Dropped::Source);
        let host = self.asm.label();
        let asm = &mut self.asm;
        asm.load(Byte, R2, R7, ETH + 8);
        asm.jump_number(Equal, R2, 0xff, source);
        // :: and ::1.
        asm.load(Word, R2, R7, ETH + 8);
        for n in 1..3 {
            asm.load(Word, R3, R7, ETH + 8 + 4 * n);
            asm.register(Or, R2, R3);
        }
        asm.jump_number(NotEqual, R2, 0, host);
        asm.load(Word, R3, R7, ETH + 20);
        asm.network_order(R3, 32);
        asm.jump_number(LessOrEqual, R3, 1, source);
        asm.place(host);
        self.address(true, ETH + 8);
        self.served(NotEqual, source);
        self.allowed(true, ETH + 8, self.drop(Dropped::NotAllowed));
        self.kernels(true, ETH + 6, ETH + 40);
        self.take(ETH + 6, ETH + 40, ETH + 4, 0);

        self.asm.place(icmp);
        let quoted = ETH + 40 + 8;
        self.need(quoted + 40 + 4);
        let asm = &mut self.asm;
        asm.load(Byte, R2, R7, ETH + 40);
        asm.jump_number(Equal, R2, 0, pass);
        asm.jump_number(Greater, R2, 4, pass);
        asm.load(Byte, R2, R7, quoted);
        asm.number(And, R2, 0xf0);
        asm.jump_number(NotEqual, R2, 0x60, pass);
        for n in 0..4 {
            asm.load(Word, R2, R7, ETH + 24 + 4 * n);
            asm.load(Word, R3, R7, quoted + 8 + 4 * n);
            asm.jump_register(NotEqual, R2, R3, pass);
        }
        asm.load(Byte, R4, R7, quoted + 6);
        self.transport();
        self.asm.load(Half, R3, R7, quoted + 40);
        self.port();
        self.address(true, quoted + 8);
        self.served(Equal, pass);
        self.allowed(true, quoted + 24, pass);
        self.kernels_error(true, quoted, quoted + 40);
        self.asm.jump(take);
    }

    /// Where all ways end.
    fn ends(&mut self) {
        let (counters, taken) = (self.maps.counters(), self.asm.label());
        for (label, at) in self.opens.into_iter().zip(SynOpening::PLACES) {
            self.asm.place(label);
            self.asm.load(Word, R2, R6, QUEUE);
            self.asm.store(Word, R10, OPENINGS, R2);
            self.look_up(self.maps.openings(), OPENINGS);
            self.asm.jump_number(Equal, R0, 0, self.take);
            let full = self.drop(Dropped::Flood);
            // In generic mode several processors may handle the queue at a time, and take a few more.
            self.asm.load(Double, R2, R0, at);
            self.asm.load(Double, R3, R0, at + 8);
            self.asm.jump_register(GreaterOrEqual, R2, R3, full);
            self.asm.number(Move, R2, 1);
            self.asm.atomic_add(R0, at, R2);
            self.asm.jump(self.take);
        }
        self.asm.place(self.take);
        self.asm.load(Word, R2, R6, QUEUE);
        self.asm.map(R1, self.maps.sockets());
        // A queue without a socket drops.
        self.asm.number(Move, R3, XDP_DROP);
        self.asm.call(REDIRECT_MAP);
        self.asm.jump_number(Equal, R0, XDP_REDIRECT, taken);
        self.asm.jump(self.drop(Dropped::NoSocket));
        self.asm.place(taken);
        self.asm.exit();
        for (n, label) in self.drops.into_iter().enumerate() {
            // The verifier refuses what nothing leads to.
            if self.any && n == Dropped::NotAllowed as usize {
                continue;
            }
            // Each has its own code: without CAP_PERFMON the verifier refuses an offset in a register.
            self.asm.place(label);
            self.asm.map_value(R1, counters);
            self.asm.number(Move, R2, 1);
            self.asm.atomic_add(R1, 8 * n as i16, R2);
            self.asm.number(Move, R0, XDP_DROP);
            self.asm.exit();
        }
        self.asm.place(self.pass);
        self.asm.number(Move, R0, XDP_PASS);
        self.asm.exit();
    }
}
