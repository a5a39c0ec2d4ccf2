//! System calls that no crate of the tree has a safe function for.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use tokio::io::unix::AsyncFd;

/// Memory that is shared with the kernel. It is unmapped when this is dropped.
pub(super) struct Map {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the memory belongs to the process, and is not bound to a thread.
unsafe impl Send for Map {}
// SAFETY: `Map` itself gives out a pointer only; its users say how it may be used.
unsafe impl Sync for Map {}

impl Map {
    /// Fresh memory, filled with zeros.
    pub(super) fn anonymous(len: NonZeroUsize) -> io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, which overlaps nothing that the program uses.
        let start = unsafe { mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE)? };
        Ok(Self { start, len: len.get() })
    }

    /// The memory of `file` from `offset` on.
    pub(super) fn of(
        file: impl AsFd,
        len: NonZeroUsize,
        offset: libc::off_t,
        writable: bool,
    ) -> io::Result<Self> {
        let write = if writable { ProtFlags::PROT_WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping, which overlaps nothing that the program uses.
        let start =
            unsafe { mmap(None, len, ProtFlags::PROT_READ | write, MapFlags::MAP_SHARED, file, offset)? };
        Ok(Self { start, len: len.get() })
    }

    pub(super) const fn start(&self) -> NonNull<c_void> {
        self.start
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made, and nothing points into it any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// A new socket of this family and type, closed when another program is executed.
pub(super) fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    owned(fd)
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of a socket. `T` is the structure that the kernel reads.
pub(super) fn set_option<T: Copy>(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (pointer, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`, which lives longer than the call.
    checked(unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, pointer, len) })
}

/// Lets the socket with this number among those that share a port get its connections (`SO_ATTACH_REUSEPORT_CBPF`).
pub(super) fn choose_in_group(fd: impl AsFd, number: u32) -> io::Result<()> {
    // BPF_RET | BPF_K.
    let mut code = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: number }];
    // The kernel reads the code before the call returns.
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Reads an option of a socket. Every bit pattern of `T` is a value: these are structures of integers.
pub(super) fn option<T: Copy>(fd: impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    checked(unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len)
    })?;
    // SAFETY: zeros, or what the kernel wrote; both are integers.
    Ok(unsafe { value.assume_init() })
}

/// Binds a socket to a queue or a device. `T` is the structure that its family has for addresses.
pub(super) fn bind<T: Copy>(fd: impl AsFd, address: &T) -> io::Result<()> {
    let (pointer, len) = (std::ptr::from_ref(address).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `address`.
    checked(unsafe { libc::bind(fd.as_fd().as_raw_fd(), pointer, len) })
}

/// Lets the runtime of the caller say when the descriptor is ready.
pub(super) fn watch<T: Owns>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the file owns its descriptor, which is the same one until the file is dropped (`Owns`).
    unsafe { AsyncFd::register(file) }.map_err(io::Error::from)
}

/// A file that owns its descriptor, and keeps it as long as it lives.
pub(super) trait Owns: AsRawFd {}

/// Lets the kernel send what is in the ring.
pub(super) fn kick(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a message of no bytes and no address.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks the driver for packets, where it does not look for free frames by itself.
pub(super) fn wake(fd: BorrowedFd<'_>) {
    // SAFETY: room for no bytes.
    let _ = unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
}

/// Receives packets into `memory`, one at the begin of each `frame` bytes. `lens` gets their lengths, which may be larger.
pub(super) fn receive_many(
    fd: BorrowedFd<'_>,
    memory: &mut [u8],
    frame: usize,
    lens: &mut Vec<usize>,
) -> io::Result<()> {
    lens.clear();
    let places = memory.chunks_exact_mut(frame).map(|place| (place.as_mut_ptr(), place.len()));
    let mut parts = Parts::new(places);
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (pointer, count) = parts.messages();
    // SAFETY: `count` messages, each with one part, which is room in `memory` that nothing else uses now.
    let got = unsafe { libc::recvmmsg(fd.as_raw_fd(), pointer, count, flags as _, std::ptr::null_mut()) };
    checked(got)?;
    lens.extend(parts.messages.iter().take(got as usize).map(|message| message.msg_len as usize));
    Ok(())
}

/// Sends frames. Returns how many the kernel has taken.
pub(super) fn send_many<'a>(fd: BorrowedFd<'_>, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    // The kernel only reads what it sends.
    let mut parts = Parts::new(frames.map(|frame| (frame.as_ptr().cast_mut(), frame.len())));
    let (pointer, count) = parts.messages();
    // SAFETY: `count` messages, each with one part, which lives as long as `frames`, and is not written to.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), pointer, count, libc::MSG_DONTWAIT as _) };
    checked(sent)?;
    Ok(sent as usize)
}

/// Messages of one part each, for `recvmmsg` and `sendmmsg`.
struct Parts {
    messages: Vec<libc::mmsghdr>,
    _parts: Vec<libc::iovec>,
}

impl Parts {
    fn new(places: impl Iterator<Item = (*mut u8, usize)>) -> Self {
        let part = |(start, len): (*mut u8, usize)| libc::iovec { iov_base: start.cast(), iov_len: len };
        let mut parts: Vec<libc::iovec> = places.map(part).collect();
        let messages = parts.iter_mut().map(|part| {
            // SAFETY: integers and pointers, for which zero is a value.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        });
        let messages = messages.collect();
        Self { messages, _parts: parts }
    }

    fn messages(&mut self) -> (*mut libc::mmsghdr, libc::c_uint) {
        (self.messages.as_mut_ptr(), self.messages.len() as libc::c_uint)
    }
}

/// Bytes that follow the attributes of a command in memory. `union bpf_attr` has 168 in Linux 7.0.
const ROOM: usize = 256;

/// The part of `union bpf_attr` that belongs to a command, as the memory of the whole union: the kernel writes some results
/// where they stand in the union, even where the size that it was told ends before (`revision` of `BPF_PROG_QUERY`).
#[repr(C)]
struct Attributes<T> {
    command: T,
    room: [u8; ROOM],
}

/// The system call `bpf(2)`. `T` is the part of `union bpf_attr` that belongs to the command. The caller sees to it that
/// the pointers in it are valid.
fn bpf<T: Copy>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let (result, all) = bpf_in_room(command, *attributes);
    *attributes = all.command;
    result
}

/// The same, with what the kernel wrote behind the part.
fn bpf_in_room<T: Copy>(command: libc::c_int, attributes: T) -> (io::Result<libc::c_int>, Attributes<T>) {
    let mut all = Attributes { command: attributes, room: [0; ROOM] };
    let (pointer, size) = (std::ptr::from_mut(&mut all), size_of::<T>());
    // SAFETY: the kernel reads `size` bytes of `all`, and writes inside the union, whose memory `all` has; and it reads and
    // writes what the pointers in it name, which the callers in this file keep alive.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size) };
    let result = if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) };
    (result, all)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// What a map is made of.
#[derive(Clone, Copy)]
pub(super) struct MapShape {
    pub(super) kind: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
    pub(super) name: &'static str,
}

/// The name of an object of BPF: at most 15 bytes.
fn name_of(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// `BPF_MAP_CREATE`.
pub(super) fn create_map(shape: &MapShape) -> io::Result<OwnedFd> {
    let MapShape { kind, key_size, value_size, max_entries, flags, name } = *shape;
    let mut attributes = MapCreate {
        kind,
        key_size,
        value_size,
        max_entries,
        flags,
        name: name_of(name),
        ..MapCreate::default()
    };
    owned(bpf(0, &mut attributes)?)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MapElement {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn element(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> MapElement {
    let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
    MapElement { map: map.as_raw_fd() as u32, _padding: 0, key, value, flags: 0 }
}

/// `BPF_MAP_UPDATE_ELEM`. `key` and `value` have the sizes of the map's shape.
pub(super) fn set_element(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    bpf(2, &mut element(map, key, value)).map(drop)
}

/// `BPF_MAP_LOOKUP_ELEM`. False if there is none. `key` and `value` have the sizes of the map's shape.
pub(super) fn get_element(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    // The kernel writes the value.
    let to = value.as_mut_ptr() as u64;
    match bpf(1, &mut MapElement { value: to, ..element(map, key, &[]) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// `BPF_MAP_GET_NEXT_KEY` from the begin: a key of the map. False if it is empty. `key` has the size of the map's shape.
pub(super) fn first_key(map: BorrowedFd<'_>, key: &mut [u8]) -> io::Result<bool> {
    // The kernel writes the next key where other commands have the value. Without a key it is the first one.
    let to = key.as_mut_ptr() as u64;
    match bpf(4, &mut MapElement { key: 0, value: to, ..element(map, &[], &[]) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// `BPF_MAP_DELETE_ELEM`. `key` has the size of the map's shape.
pub(super) fn delete_element(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    // The kernel refuses fields that the command does not have.
    bpf(3, &mut MapElement { value: 0, ..element(map, key, &[]) }).map(drop)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}

/// `BPF_PROG_TYPE_XDP`.
const XDP: u32 = 6;
/// `BPF_XDP`: where the program is attached.
const ATTACH_XDP: u32 = 37;
/// Most bytes of what the verifier says.
const LOG: usize = 1 << 20;

/// `BPF_PROG_LOAD` of a program for XDP. With an error, also what the verifier said.
pub(super) fn load(instructions: &[u64], name: &str) -> Result<OwnedFd, (io::Error, String)> {
    let license = c"MIT";
    let mut attributes = ProgramLoad {
        kind: XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        name: name_of(name),
        attach_type: ATTACH_XDP,
        ..ProgramLoad::default()
    };
    let first = match bpf(5, &mut attributes).and_then(owned) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    let mut log = vec![0_u8; LOG];
    attributes.log_level = 1;
    attributes.log_size = LOG as u32;
    attributes.log = log.as_mut_ptr() as u64;
    match bpf(5, &mut attributes).and_then(owned) {
        Ok(program) => Ok(program),
        Err(_) => {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
            let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
            Err((first, text))
        }
    }
}

#[cfg(test)]
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TestRun {
    program: u32,
    action: u32,
    len: u32,
    len_out: u32,
    packet: u64,
    packet_out: u64,
    repeat: u32,
    duration: u32,
    context: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    processor: u32,
}

/// `BPF_PROG_TEST_RUN`: what the program says about a frame.
#[cfg(test)]
pub(super) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let (program, len, packet) = (program.as_raw_fd() as u32, frame.len() as u32, frame.as_ptr() as u64);
    let mut attributes = TestRun { program, len, packet, repeat: 1, ..TestRun::default() };
    bpf(10, &mut attributes)?;
    Ok(attributes.action)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
}

/// `BPF_LINK_CREATE`: attaches a program to a device. It is detached when the descriptor is closed.
pub(super) fn attach(program: BorrowedFd<'_>, device: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    owned(bpf(28, &mut LinkCreate { program, device, attach_type: ATTACH_XDP, flags })?)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramQuery {
    device: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    _padding: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// `BPF_PROG_QUERY`.
const PROGRAM_QUERY: libc::c_int = 16;
/// `BPF_TCX_INGRESS`.
const TCX_INGRESS: u32 = 46;

/// How many programs of `tcx` see what a device receives (`BPF_PROG_QUERY`, Linux 6.6).
pub(super) fn ingress_programs(device: u32) -> u32 {
    let mut query = ProgramQuery { device, attach_type: TCX_INGRESS, ..ProgramQuery::default() };
    match bpf(PROGRAM_QUERY, &mut query) {
        Ok(_) => query.count,
        // An older kernel has none.
        Err(_) => 0,
    }
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut c_void,
    _rest: [u8; 16],
}

/// `SIOCETHTOOL` on the device `name`. `T` is the structure of the command, which is its first field.
pub(super) fn ethtool<T: Copy>(name: &str, value: &mut T) -> io::Result<()> {
    /// `SIOCETHTOOL`.
    const REQUEST: u64 = 0x8946;
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        data: std::ptr::from_mut(value).cast(),
        _rest: [0; 16],
    };
    for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: the kernel reads and writes the structure of the command, which is `T` (see the callers).
    checked(unsafe { libc::ioctl(any.as_raw_fd(), REQUEST as _, &mut request) })
}

#[cfg(test)]
mod tests;
