//! The interface to C: `packetdrill_interface_init`, the table that it fills, and replacements of libc's `getsockopt`
//! and `close`, because packetdrill also uses these to look at its descriptors.
#![allow(unsafe_code, reason = "C calls these functions and gives them pointers")]

mod control;
mod descriptor;
mod memory;

use crate::calls;
use crate::transfer::{ReceiveResult, Sending};
use crate::world::{self, World};
use control::put_controls;
use libc::{
    EAGAIN, EBADF, EFAULT, EINPROGRESS, EINVAL, EOPNOTSUPP, MSG_ERRQUEUE, MSG_TRUNC, c_char, c_int, c_long,
    c_short, c_uint, c_ulong, c_void, epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr,
    socklen_t, ssize_t, timeval, timezone,
};
use memory::{
    bytes, count, done, fail, gather, is_unspecified, parse_address, put, put_address, room, scatter, vectors,
};
use std::ffi::CStr;
use std::net::SocketAddr;
use std::ptr;
use std::slice;

type User = *mut c_void;

/// The table. The order of its fields is packetdrill's.
#[repr(C)]
pub(crate) struct Interface {
    userdata: User,
    free: extern "C" fn(User),
    socket: extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    bind: extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    listen: extern "C" fn(User, c_int, c_int) -> c_int,
    accept: extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    read: extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    readv: extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    recv: extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    recvfrom:
        extern "C" fn(User, c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    recvmsg: extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    write: extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    writev: extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    send: extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    sendto: extern "C" fn(User, c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
    sendmsg: extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: extern "C" fn(User, c_int, c_int, c_ulong) -> c_int,
    ioctl: extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    close: extern "C" fn(User, c_int) -> c_int,
    shutdown: extern "C" fn(User, c_int, c_int) -> c_int,
    getsockopt: extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    setsockopt: extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    netdev_send: extern "C" fn(User, *const c_void, size_t) -> c_int,
    netdev_receive: extern "C" fn(User, *mut c_void, *mut size_t, *mut i64) -> c_int,
    usleep: extern "C" fn(User, c_uint) -> c_int,
    gettimeofday: extern "C" fn(User, *mut timeval, *mut timezone) -> c_int,
    epoll_create: extern "C" fn(User, c_int) -> c_int,
    epoll_ctl: extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    epoll_wait: extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pipe: extern "C" fn(User, *mut c_int) -> c_int,
    splice: extern "C" fn(User, c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t,
}

/// Called for each script. Starts a new world.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    let text = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: packetdrill gives a string of its command line that ends with a zero byte.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    world::begin(&text);
    let filled = Interface {
        userdata: ptr::null_mut(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close: close_call,
        shutdown,
        getsockopt: getsockopt_call,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: packetdrill gives valid memory for the table.
    unsafe { table.write(filled) };
}

/// Replaces libc's function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close(fd: c_int) -> c_int {
    if descriptor::is_ours(fd) {
        return close_call(ptr::null_mut(), fd);
    }
    descriptor::close(fd)
}

/// Replaces libc's function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if descriptor::is_ours(fd) {
        return getsockopt_call(ptr::null_mut(), fd, level, name, value, len);
    }
    // SAFETY: passes on the caller's arguments unchanged.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
}

extern "C" fn free(_: User) {
    world::end();
    descriptor::close_all();
}

extern "C" fn socket(_: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let result = descriptor::make().and_then(|fd| {
        let made = world::call(|world| world.make_socket(fd, domain, kind, protocol));
        made.map(|()| fd).inspect_err(|_| {
            descriptor::close(fd);
        })
    });
    result.unwrap_or_else(fail)
}

extern "C" fn bind(_: User, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    done(parse_address(at, len).and_then(|address| world::call(|world| world.bind(fd, address))))
}

extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    done(world::call(|world| world.listen(fd, backlog.max(0) as usize)))
}

extern "C" fn accept(_: User, fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let accepted = blocking(fd, 0, |world| world.accept(fd, 0, descriptor::make));
    match accepted {
        Ok((made, remote, v6)) => {
            put_address(at, len, remote, v6);
            made
        }
        Err(error) => fail(error),
    }
}

extern "C" fn connect(_: User, fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
    if is_unspecified(at, len) {
        return done(world::call(|world| world.disconnect(fd)));
    }
    let begun = parse_address(at, len)
        .and_then(|remote| world::call(|world| world.connect(fd, remote, calls::SynData::None)));
    let result = begun.and_then(|_| blocking(fd, 0, |world| world.connected(fd)));
    done(result)
}

/// Repeats the call until the result is not `EAGAIN` or `EINPROGRESS`, if the socket's calls block.
fn blocking<T>(
    fd: c_int,
    flags: c_int,
    mut attempt: impl FnMut(&mut World) -> Result<T, c_int>,
) -> Result<T, c_int> {
    let mut last = EAGAIN;
    let result = world::block(
        |_| None,
        |world| match attempt(world) {
            Err(error @ (EAGAIN | EINPROGRESS)) => {
                last = error;
                (!world.blocks(fd, flags).unwrap_or(false)).then_some(Err(error))
            }
            other => Some(other),
        },
    );
    result?.unwrap_or(Err(last))
}

fn receive(fd: c_int, len: usize, flags: c_int) -> Result<ReceiveResult, c_int> {
    blocking(fd, flags, |world| world.receive(fd, len, flags))
}

extern "C" fn read(user: User, fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
    recv(user, fd, at, len, 0)
}

extern "C" fn readv(_: User, fd: c_int, at: *const iovec, n: c_int) -> ssize_t {
    count(usize::try_from(n).map_err(|_| EINVAL).and_then(|n| {
        let vectors = vectors(at, n)?;
        let received = receive(fd, room(vectors)?, 0)?;
        scatter(vectors, &received.data);
        Ok(received.count)
    }))
}

extern "C" fn recv(user: User, fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    recvfrom(user, fd, at, len, flags, ptr::null_mut(), ptr::null_mut())
}

extern "C" fn recvfrom(
    _: User,
    fd: c_int,
    at: *mut c_void,
    len: size_t,
    flags: c_int,
    _from: *mut sockaddr,
    _from_len: *mut socklen_t,
) -> ssize_t {
    if at.is_null() && len > 0 {
        return fail(EFAULT) as ssize_t;
    }
    count(receive(fd, len, flags).map(|received| {
        put(at, &received.data);
        received.count
    }))
}

extern "C" fn recvmsg(_: User, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message is valid, and nothing else uses it until this function returns.
    let Some(message) = (unsafe { message.as_mut() }) else { return fail(EFAULT) as ssize_t };
    if flags & MSG_ERRQUEUE != 0 {
        return count(receive_report(fd, message));
    }
    let result = vectors(message.msg_iov, message.msg_iovlen).and_then(|vectors| {
        let received = receive(fd, room(vectors)?, flags)?;
        scatter(vectors, &received.data);
        Ok(received)
    });
    let result = result.map(|received| {
        message.msg_flags = 0;
        let inq = received.inq.map(|inq| (inq as c_int).to_ne_bytes().to_vec());
        let controls = inq.map(|inq| (libc::IPPROTO_TCP, libc::TCP_INQ, inq));
        put_controls(message, controls.as_slice());
        received.count
    });
    count(result)
}

/// `recvmsg` with MSG_ERRQUEUE: a report, without data.
fn receive_report(fd: c_int, message: &mut msghdr) -> Result<usize, c_int> {
    let (report, v6) = world::call(|world| world.take_report(fd))?;
    message.msg_flags = MSG_ERRQUEUE | if report.cut { MSG_TRUNC } else { 0 };
    let (level, kind) =
        if v6 { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
    let times = (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, report.times());
    put_controls(message, &[times, (level, kind, report.extended(v6))]);
    Ok(0)
}

fn transmit(fd: c_int, data: &[u8], flags: c_int, to: Option<SocketAddr>) -> Result<usize, c_int> {
    let mut sending = Sending::new(data, flags, to);
    blocking(fd, flags, |world| world.send(fd, &mut sending)).or_else(|error| sending.outcome(error))
}

extern "C" fn write(user: User, fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
    send(user, fd, at, len, 0)
}

extern "C" fn writev(_: User, fd: c_int, at: *const iovec, n: c_int) -> ssize_t {
    count(usize::try_from(n).map_err(|_| EINVAL).and_then(|n| {
        let data = gather(vectors(at, n)?)?;
        transmit(fd, &data, 0, None)
    }))
}

extern "C" fn send(user: User, fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    sendto(user, fd, at, len, flags, ptr::null(), 0)
}

extern "C" fn sendto(
    _: User,
    fd: c_int,
    at: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && !to.is_null() && is_unspecified(to, to_len) {
        return fail(EOPNOTSUPP) as ssize_t;
    }
    count(bytes(at, len).and_then(|data| {
        let to = if to.is_null() { None } else { Some(parse_address(to, to_len)?) };
        transmit(fd, data, flags, to)
    }))
}

extern "C" fn sendmsg(_: User, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message is valid until this function returns.
    let Some(message) = (unsafe { message.as_ref() }) else { return fail(EFAULT) as ssize_t };
    count(vectors(message.msg_iov, message.msg_iovlen).and_then(|vectors| {
        let data = gather(vectors)?;
        let to = if message.msg_name.is_null() {
            None
        } else {
            Some(parse_address(message.msg_name.cast(), message.msg_namelen)?)
        };
        transmit(fd, &data, flags, to)
    }))
}

extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    world::call(|world| world.fcntl(fd, command, argument)).unwrap_or_else(fail)
}

extern "C" fn ioctl(_: User, fd: c_int, request: c_ulong, at: *mut c_int) -> c_int {
    done(world::call(|world| world.ioctl(fd, request)).map(|n| put(at.cast(), &n.to_ne_bytes())))
}

extern "C" fn close_call(_: User, fd: c_int) -> c_int {
    match world::call(|world| world.close(fd)) {
        Err(EBADF) if !descriptor::is_ours(fd) => fail(EBADF),
        _ => descriptor::close(fd),
    }
}

extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    done(world::call(|world| world.shutdown(fd, how)))
}

extern "C" fn getsockopt_call(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if len.is_null() {
        return fail(EFAULT);
    }
    done(world::call(|world| world.get_option(fd, level, name)).map(|value| {
        // SAFETY: `len` is not null, and points to the caller's length.
        let room = unsafe { *len } as usize;
        let value = value.get(..room.min(value.len())).unwrap_or_default();
        put(at, value);
        // SAFETY: as above.
        unsafe { *len = value.len() as socklen_t };
    }))
}

extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *const c_void,
    len: socklen_t,
) -> c_int {
    done(
        bytes(at, len as usize)
            .and_then(|value| world::call(|world| world.set_option(fd, level, name, value))),
    )
}

/// When a wait that begins now ends, µs.
fn deadline(now: u64, timeout_ms: c_int) -> Option<u64> {
    u64::try_from(timeout_ms).ok().map(|ms| now + ms * 1000)
}

extern "C" fn poll(_: User, at: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    let fds: &mut [pollfd] = if n == 0 || at.is_null() {
        &mut []
    } else {
        // SAFETY: the caller's descriptors, which nothing else uses until this function returns.
        unsafe { slice::from_raw_parts_mut(at, n as usize) }
    };
    match world::block(|now| deadline(now, timeout), |world| world.poll(fds)) {
        Ok(ready) => ready.unwrap_or(0),
        Err(error) => fail(error),
    }
}

extern "C" fn netdev_send(_: User, at: *const c_void, len: size_t) -> c_int {
    done(bytes(at, len).map(world::packet_in))
}

extern "C" fn netdev_receive(_: User, at: *mut c_void, len: *mut size_t, time: *mut i64) -> c_int {
    let (packet, when) = world::packet_out().unwrap_or_default();
    // SAFETY: packetdrill gives the size of the buffer, and reads the packet's length and time.
    unsafe {
        let packet = packet.get(..packet.len().min(*len)).unwrap_or_default();
        put(at, packet);
        *len = packet.len();
        *time = when as i64;
    }
    0
}

extern "C" fn usleep(_: User, micros: c_uint) -> c_int {
    world::sleep(u64::from(micros));
    0
}

extern "C" fn gettimeofday(_: User, at: *mut timeval, _zone: *mut timezone) -> c_int {
    let now = world::time();
    // SAFETY: packetdrill gives valid memory for the time, or null.
    if let Some(at) = unsafe { at.as_mut() } {
        *at = timeval { tv_sec: (now / 1_000_000) as c_long, tv_usec: (now % 1_000_000) as c_long };
    }
    0
}

extern "C" fn epoll_create(_: User, size: c_int) -> c_int {
    if size <= 0 {
        return fail(EINVAL);
    }
    let made = descriptor::make().and_then(|fd| {
        world::call(|world| {
            world.make_epoll(fd);
            Ok(fd)
        })
    });
    made.unwrap_or_else(fail)
}

extern "C" fn epoll_ctl(_: User, set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's event, or null.
    let event = unsafe { event.as_ref() }.map(|event| (event.events, event.u64));
    done(world::call(|world| world.epoll_control(set, operation, fd, event)))
}

extern "C" fn epoll_wait(_: User, set: c_int, at: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
    let Some(most) = usize::try_from(most).ok().filter(|n| *n > 0) else { return fail(EINVAL) };
    let found = world::block(|now| deadline(now, timeout), |world| world.epoll_events(set, most).transpose());
    match found.map(Option::transpose) {
        Ok(Ok(None)) => 0,
        Ok(Ok(Some(events))) => {
            for (i, (events, data)) in events.iter().enumerate() {
                // SAFETY: there are not more events than fit into the caller's array.
                unsafe { at.add(i).write(epoll_event { events: *events, u64: *data }) };
            }
            events.len() as c_int
        }
        Ok(Err(error)) | Err(error) => fail(error),
    }
}

extern "C" fn pipe(_: User, _: *mut c_int) -> c_int {
    fail(EOPNOTSUPP)
}

extern "C" fn splice(
    _: User,
    _: c_int,
    _: *mut loff_t,
    _: c_int,
    _: *mut loff_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    fail(EOPNOTSUPP) as ssize_t
}

/// `poll` works on the caller's descriptors in place, so the two types must have the same layout.
const _: () = assert!(size_of::<pollfd>() == size_of::<c_int>() + 2 * size_of::<c_short>());
