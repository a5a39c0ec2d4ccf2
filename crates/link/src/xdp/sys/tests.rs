use super::*;

/// The structure of Linux before 6.6, which ended with the count.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Old {
    device: u32,
    attach_type: u32,
    flags: [u32; 2],
    ids: u64,
    count: u32,
    _padding: u32,
}

/// A build of the server ended with a segmentation fault: the kernel wrote over a return address.
#[test]
fn what_the_kernel_writes_behind_a_command_hits_nothing_else() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: asking for programs needs root");
        return;
    }
    // The loopback device is always the first one.
    let (result, old) =
        bpf_in_room(PROGRAM_QUERY, Old { device: 1, attach_type: TCX_INGRESS, ..Old::default() });
    let query = ProgramQuery { device: 1, attach_type: TCX_INGRESS, ..ProgramQuery::default() };
    let (_, new) = bpf_in_room(PROGRAM_QUERY, query);
    if result.is_err() {
        eprintln!("skipped: this kernel has no tcx");
        return;
    }
    // The revision, 24 bytes behind the old structure, begins with 1.
    assert_ne!(old.room.get(24..32), Some(&[0; 8][..]));
    assert!(new.command.revision != 0 && new.room.iter().all(|byte| *byte == 0));
}
