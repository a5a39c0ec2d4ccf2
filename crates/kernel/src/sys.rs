//! Socket options that no safe crate has. This is the only module with `unsafe`.
#![allow(unsafe_code, reason = "socket options")]

#[cfg(target_os = "linux")]
pub(crate) use linux::{
    ask_for_errors, clock_state, disconnect, fast_open_queue, fast_open_queue_of, need_no_cookie, save_syns,
    saved_syn, send_in_syn, set_keys, take_error, tcp_info,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{
    ask_for_errors, clock_state, disconnect, fast_open_queue, fast_open_queue_of, need_no_cookie, save_syns,
    saved_syn, send_in_syn, set_keys, take_error, tcp_info,
};

/// A socket.
#[cfg(unix)]
pub(crate) use std::os::fd::AsFd as Handle;
#[cfg(not(unix))]
pub(crate) use std::os::windows::io::AsSocket as Handle;

/// The number of a network interface.
#[cfg(unix)]
pub(crate) fn interface(name: &std::ffi::CStr) -> Option<u32> {
    // SAFETY: the name ends with a zero byte, and outlives the call, which only reads it.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number != 0).then_some(number)
}
#[cfg(not(unix))]
pub(crate) fn interface(_: &std::ffi::CStr) -> Option<u32> {
    None
}

/// A write to a connection that is over is an error, and no signal (`MSG_NOSIGNAL`).
#[cfg(target_os = "linux")]
pub(crate) const NO_SIGNAL: std::ffi::c_int = libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
pub(crate) const NO_SIGNAL: std::ffi::c_int = 0;

/// As much of `struct tcp_info` as is read.
pub(crate) const TCP_INFO_LEN: usize = 256;
/// The longest headers of a SYN: an IPv6 header or IPv4 with options, and TCP with options. Longer ones (IPv6 with
/// extensions) are not read.
pub(crate) const SYN_LEN: usize = 160;
/// As much of a quoted packet as is read: RFC 4443 §2.4 lets an error quote more, but no header is longer.
pub(crate) const QUOTE_LEN: usize = 256;

#[cfg(target_os = "linux")]
mod linux {
    use super::{QUOTE_LEN, SYN_LEN, TCP_INFO_LEN};
    use crate::quote::offender;
    use socket2::{SockAddr, Socket};
    use std::ffi::c_int;
    use std::io;
    use std::mem::{size_of, zeroed};
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::{AsFd, AsRawFd};

    /// The state of a TCP socket, as `struct tcp_info` (`linux/tcp.h`). An older kernel fills less, and the rest stays
    /// zero.
    pub(crate) fn tcp_info(socket: &impl AsFd) -> io::Result<[u8; TCP_INFO_LEN]> {
        let mut info = [0; TCP_INFO_LEN];
        get(socket, libc::TCP_INFO, &mut info)?;
        Ok(info)
    }

    /// Makes a listener keep the headers of its children's SYNs.
    pub(crate) fn save_syns(listener: &impl AsFd) -> io::Result<()> {
        set(listener, libc::TCP_SAVE_SYN, &1_i32.to_ne_bytes())
    }

    /// The headers of a child's SYN, from IP on, and their length. The kernel gives them once.
    pub(crate) fn saved_syn(child: &impl AsFd) -> io::Result<([u8; SYN_LEN], usize)> {
        let mut headers = [0; SYN_LEN];
        let len = get(child, libc::TCP_SAVED_SYN, &mut headers)?;
        Ok((headers, len))
    }

    /// Sets how many children of a listener may wait for their ACK. 0 switches Fast Open off.
    pub(crate) fn fast_open_queue(listener: &impl AsFd, most: u32) -> io::Result<()> {
        let most = c_int::try_from(most).unwrap_or(c_int::MAX);
        set(listener, libc::TCP_FASTOPEN, &most.to_ne_bytes())
    }

    /// How many may wait.
    pub(crate) fn fast_open_queue_of(listener: &impl AsFd) -> io::Result<u32> {
        let mut most = [0; size_of::<c_int>()];
        get(listener, libc::TCP_FASTOPEN, &mut most)?;
        Ok(c_int::from_ne_bytes(most).unsigned_abs())
    }

    /// Sets the cookie keys of a listener: 16 bytes, or 32 with a backup.
    pub(crate) fn set_keys(listener: &impl AsFd, keys: &[u8]) -> io::Result<()> {
        set(listener, libc::TCP_FASTOPEN_KEY, keys)
    }

    /// Sends a SYN to `remote`, with `data` if the kernel has a cookie for that server, or else with a request for
    /// one. Returns how many bytes the kernel took.
    pub(crate) fn send_in_syn(socket: &Socket, remote: SocketAddr, data: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
        match socket.send_to_with_flags(data, &SockAddr::from(remote), flags) {
            // There is no cookie: the SYN left, and the data did not.
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(0),
            result => result,
        }
    }

    /// Lets a socket send data in its SYN without a cookie, and without an option.
    pub(crate) fn need_no_cookie(socket: &impl AsFd) -> io::Result<()> {
        set(socket, libc::TCP_FASTOPEN_NO_COOKIE, &1_i32.to_ne_bytes())
    }

    /// Makes the kernel keep ICMP errors for [`take_error`].
    pub(crate) fn ask_for_errors(socket: &impl AsFd, v6: bool) -> io::Result<()> {
        let (level, option) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
        set_at(socket, level, option, &1_i32.to_ne_bytes())
    }

    /// The next ICMP error of a socket: what it quotes, from the TCP header on, its length, and who sent it.
    pub(crate) fn take_error(socket: &impl AsFd) -> io::Result<([u8; QUOTE_LEN], usize, Option<IpAddr>)> {
        let fd = socket.as_fd().as_raw_fd();
        let (mut quote, mut control) = ([0; QUOTE_LEN], [0_u64; 32]);
        let mut part = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
        // SAFETY: a `msghdr` of zeros is valid: it has null pointers with lengths of zero.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The kernel writes at most `iov_len` bytes to
        // `quote` and at most `msg_controllen` bytes to `control`, which have that many. Any bytes are valid values of
        // them, and all pointers outlive the call.
        let len = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let used = (message.msg_controllen as usize).min(bytes.len());
        Ok((quote, len.min(QUOTE_LEN), bytes.get(..used).and_then(offender)))
    }

    /// Whether a time service keeps the system's clock, and the largest error that it allows for, in microseconds.
    pub(crate) fn clock_state() -> io::Result<(bool, u64)> {
        // SAFETY: a `timex` of zeros is valid. It asks the kernel to change nothing.
        let mut timex: libc::timex = unsafe { zeroed() };
        // SAFETY: the kernel reads and writes one `timex`, which outlives the call.
        let state = unsafe { libc::adjtimex(&raw mut timex) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        let kept = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
        Ok((kept, u64::try_from(timex.maxerror).unwrap_or(u64::MAX)))
    }

    /// Ends a connection with a RST.
    pub(crate) fn disconnect(socket: &impl AsFd) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        let len = size_of::<libc::sockaddr>() as libc::socklen_t;
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The kernel reads `len` bytes from `nowhere`,
        // which has that many and outlives the call.
        let result = unsafe { libc::connect(fd, &raw const nowhere, len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn set(socket: &impl AsFd, option: c_int, value: &[u8]) -> io::Result<()> {
        set_at(socket, libc::IPPROTO_TCP, option, value)
    }

    fn set_at(socket: &impl AsFd, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        let len = value.len() as libc::socklen_t;
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The kernel reads `len` bytes from `value`,
        // which has that many and outlives the call.
        let result = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns how many bytes of `value` the kernel has set.
    fn get(socket: &impl AsFd, option: c_int, value: &mut [u8]) -> io::Result<usize> {
        let fd = socket.as_fd().as_raw_fd();
        let mut len = value.len() as libc::socklen_t;
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The kernel writes at most `len` bytes to
        // `value`, which has that many, and any bytes are a valid value of it. Both pointers outlive the call.
        let result = unsafe {
            libc::getsockopt(fd, libc::IPPROTO_TCP, option, value.as_mut_ptr().cast(), &raw mut len)
        };
        if result == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
    }
}

/// Systems without Fast Open, or whose Fast Open nobody here can test.
#[cfg(not(target_os = "linux"))]
mod other {
    use super::{QUOTE_LEN, SYN_LEN, TCP_INFO_LEN};
    use socket2::Socket;
    use std::io;
    use std::net::{IpAddr, SocketAddr};

    pub(crate) fn tcp_info<S>(_: &S) -> io::Result<[u8; TCP_INFO_LEN]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn need_no_cookie<S>(_: &S) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn ask_for_errors<S>(_: &S, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn take_error<S>(_: &S) -> io::Result<([u8; QUOTE_LEN], usize, Option<IpAddr>)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn clock_state() -> io::Result<(bool, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn disconnect<S>(_: &S) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn save_syns<S>(_: &S) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn saved_syn<S>(_: &S) -> io::Result<([u8; SYN_LEN], usize)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn fast_open_queue<S>(_: &S, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn fast_open_queue_of<S>(_: &S) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn set_keys<S>(_: &S, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn send_in_syn(_: &Socket, _: SocketAddr, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
