use super::*;

#[test]
fn a_jump_leads_to_its_label() {
    let mut it = Assembler::default();
    let end = it.label();
    it.number(Op::Move, Reg::R0, 2);
    it.jump_number(When::Equal, Reg::R0, 2, end);
    it.number(Op::Move, Reg::R0, 1);
    it.place(end);
    it.exit();
    let code = it.finish().unwrap();
    let jump = code[1].to_ne_bytes();
    assert_eq!((jump[0], i16::from_ne_bytes([jump[2], jump[3]])), (0x15, 1));
    assert_eq!(code.len(), 4);
}

#[test]
fn a_label_without_a_place_is_an_error() {
    let mut it = Assembler::default();
    let nowhere = it.label();
    it.jump(nowhere);
    assert!(it.finish().is_none());
}
