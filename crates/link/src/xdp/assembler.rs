//! Writes instructions of BPF (RFC 9669).

/// A register. `R1` to `R5` are lost by a call, `R10` is the frame pointer.
#[derive(Clone, Copy)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10 = 10,
}

/// How wide a load or store is.
#[derive(Clone, Copy)]
pub(super) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// When a jump is taken. Comparisons are unsigned.
#[derive(Clone, Copy)]
pub(super) enum When {
    Equal = 0x10,
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    NotEqual = 0x50,
    Less = 0xa0,
    LessOrEqual = 0xb0,
}

/// What is done with a register.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// A place in the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program while it is written.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<u64>,
    /// Where a label is, if it was placed.
    places: Vec<Option<usize>>,
    /// Instructions that jump to a label.
    jumps: Vec<(usize, Label)>,
}

/// `BPF_JMP`, and with 32 bits.
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
/// `BPF_ALU64`.
const ALU64: u8 = 0x07;
/// `BPF_X`: the operand is a register.
const REGISTER: u8 = 0x08;
/// `BPF_LDX | BPF_MEM`, `BPF_STX | BPF_MEM`, `BPF_ST | BPF_MEM`.
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_NUMBER: u8 = 0x62;
/// `BPF_STX | BPF_DW | BPF_ATOMIC`; the operation 0 adds.
const ATOMIC: u8 = 0xdb;
/// `BPF_LD | BPF_DW | BPF_IMM`, which has two slots.
const WIDE: u8 = 0x18;
/// `BPF_PSEUDO_MAP_FD` and `BPF_PSEUDO_MAP_VALUE`.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;
/// `BPF_ALU | BPF_END | BPF_TO_BE`: network byte order.
const TO_BIG_ENDIAN: u8 = 0xdc;

/// `struct bpf_insn` in memory.
fn instruction(code: u8, dst: u8, src: u8, offset: i16, number: i32) -> u64 {
    // The registers are bit fields, whose order is that of the bytes.
    let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
    let ([o0, o1], [n0, n1, n2, n3]) = (offset.to_ne_bytes(), number.to_ne_bytes());
    u64::from_ne_bytes([code, registers, o0, o1, n0, n1, n2, n3])
}

impl Assembler {
    fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, number: i32) {
        self.code.push(instruction(code, dst as u8, src as u8, offset, number));
    }

    /// A label for a place that comes later.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The next instruction is at `label`.
    pub(super) fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.code.len());
        }
    }

    /// `dst = *(width *)(src + offset)`.
    pub(super) fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) {
        self.push(LOAD | width as u8, dst, src, offset, 0);
    }

    /// `*(width *)(dst + offset) = src`.
    pub(super) fn store(&mut self, width: Width, dst: Reg, offset: i16, src: Reg) {
        self.push(STORE | width as u8, dst, src, offset, 0);
    }

    /// `*(width *)(dst + offset) = number`.
    pub(super) fn store_number(&mut self, width: Width, dst: Reg, offset: i16, number: i32) {
        self.push(STORE_NUMBER | width as u8, dst, Reg::R0, offset, number);
    }

    /// `*(u64 *)(dst + offset) += src`, of all processors together.
    pub(super) fn atomic_add(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.push(ATOMIC, dst, src, offset, 0);
    }

    /// `dst op= number`.
    pub(super) fn number(&mut self, op: Op, dst: Reg, number: i32) {
        self.push(ALU64 | op as u8, dst, Reg::R0, 0, number);
    }

    /// `dst op= src`.
    pub(super) fn register(&mut self, op: Op, dst: Reg, src: Reg) {
        self.push(ALU64 | REGISTER | op as u8, dst, src, 0, 0);
    }

    /// Turns a number of network byte order into one of the machine, or back.
    pub(super) fn network_order(&mut self, dst: Reg, bits: i32) {
        self.push(TO_BIG_ENDIAN, dst, Reg::R0, 0, bits);
    }

    /// Jumps if `a` compares so with `number`.
    pub(super) fn jump_number(&mut self, when: When, a: Reg, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | when as u8, a, Reg::R0, 0, number);
    }

    /// Jumps if the lower half of `a` compares so with `number`.
    pub(super) fn jump_word(&mut self, when: When, a: Reg, number: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP32 | when as u8, a, Reg::R0, 0, number as i32);
    }

    /// Jumps if `a` compares so with `b`.
    pub(super) fn jump_register(&mut self, when: When, a: Reg, b: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | REGISTER | when as u8, a, b, 0, 0);
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, Reg::R0, Reg::R0, 0, 0);
    }

    /// `dst` is the map with this descriptor.
    pub(super) fn map(&mut self, dst: Reg, fd: i32) {
        self.code.push(instruction(WIDE, dst as u8, MAP, 0, fd));
        self.code.push(0);
    }

    /// `dst` points to the only value of the map with this descriptor.
    pub(super) fn map_value(&mut self, dst: Reg, fd: i32) {
        self.code.push(instruction(WIDE, dst as u8, MAP_VALUE, 0, fd));
        self.code.push(0);
    }

    /// Calls a function of the kernel with `R1` to `R5`; the result is in `R0`.
    pub(super) fn call(&mut self, function: i32) {
        self.push(JUMP | 0x80, Reg::R0, Reg::R0, 0, function);
    }

    /// Ends the program with `R0`.
    pub(super) fn exit(&mut self) {
        self.push(JUMP | 0x90, Reg::R0, Reg::R0, 0, 0);
    }

    /// The program. `None` if a label was not placed, or is too far away.
    pub(super) fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in self.jumps {
            let place = (*self.places.get(label.0)?)?;
            let distance = i16::try_from(place as i64 - at as i64 - 1).ok()?;
            let code = self.code.get_mut(at)?;
            let mut bytes = code.to_ne_bytes();
            let [_, _, low, high, ..] = &mut bytes;
            [*low, *high] = distance.to_ne_bytes();
            *code = u64::from_ne_bytes(bytes);
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests;
