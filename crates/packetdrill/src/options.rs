//! `setsockopt` and `getsockopt`.

use crate::settings::{CLIENT, algorithm, key, tcp_config};
use crate::socket::{Kind, Socket};
use crate::world::World;
use firstflight_credential::CookieKeys;
use firstflight_tcp::congestion::Algorithm;
use libc::{
    EALREADY, EINVAL, EISCONN, ENOENT, ENOPROTOOPT, EOPNOTSUPP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP,
    SOL_SOCKET, c_int,
};
use std::sync::Arc;
use std::time::Duration;

/// `TCP_CC_INFO` may return nothing for an algorithm without such information.
const TCP_CC_INFO: c_int = 26;
/// The kernel's largest `TCP_MAXSEG`, bytes.
const MAX_SEGMENT: c_int = 32_767;
/// The kernel's smallest buffers, bytes as set.
const MIN_BUFFER: u32 = 2304;

fn number(value: &[u8]) -> Result<c_int, c_int> {
    value.get(..4).and_then(|v| v.try_into().ok()).map(c_int::from_ne_bytes).ok_or(EINVAL)
}

fn positive(n: c_int) -> Result<u32, c_int> {
    u32::try_from(n).map_err(|_| EINVAL)
}

fn seconds(n: c_int) -> Duration {
    Duration::from_secs(u64::from(n.unsigned_abs()))
}

/// One or two keys, as bytes.
fn keys(value: &[u8]) -> Result<CookieKeys, c_int> {
    let (first, second) = value.split_at_checked(16).ok_or(EINVAL)?;
    let first = CookieKeys::new(key(first.try_into().map_err(|_| EINVAL)?));
    match second.len() {
        0 => Ok(first),
        16 => Ok(first.with_backup(key(second.try_into().map_err(|_| EINVAL)?))),
        _ => Err(EINVAL),
    }
}

impl World {
    /// `setsockopt`.
    pub(crate) fn set_option(
        &mut self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: &[u8],
    ) -> Result<(), c_int> {
        self.follow_sysctl();
        self.settle(fd)?;
        match level {
            SOL_SOCKET => self.set_socket_option(fd, name, value)?,
            IPPROTO_TCP => self.set_tcp_option(fd, name, value)?,
            IPPROTO_IP | IPPROTO_IPV6 => return Ok(()),
            _ => return Err(ENOPROTOOPT),
        }
        self.apply(fd, name)
    }

    /// Applies an option to the existing listener or connection.
    fn apply(&mut self, fd: c_int, name: c_int) -> Result<(), c_int> {
        let socket = self.socket(fd)?;
        let options = socket.options.clone();
        match socket.kind {
            Kind::Listener { id, .. } => {
                self.set_fast_open(id);
                let tcp = Arc::new(tcp_config(&self.sysctl, &options, &self.flags));
                self.stack.set_listener_config(id, tcp);
            }
            Kind::Connection { id, .. } => {
                let now = self.now();
                self.stack.set_nodelay(id, options.nodelay, now);
                // Turning Nagle's algorithm off also releases corked data.
                let cork = options.cork && !(name == libc::TCP_NODELAY && options.nodelay);
                self.stack.set_cork(id, cork, false, (!cork).then_some(now));
                let tcp = Arc::new(tcp_config(&self.sysctl, &options, &self.flags));
                self.stack.set_tcp_config(id, tcp, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn set_socket_option(&mut self, fd: c_int, name: c_int, value: &[u8]) -> Result<(), c_int> {
        if name == libc::SO_TIMESTAMPING {
            return self.set_stamping(fd, positive(number(value)?)?);
        }
        let [_, wmem_max] = [self.sysctl.rmem[2], self.sysctl.wmem[2]];
        let options = &mut self.socket_mut(fd)?.options;
        match name {
            libc::SO_LINGER => {
                let on = number(value)? != 0;
                let time = number(value.get(4..).unwrap_or_default())?;
                options.linger = on.then_some(seconds(time));
            }
            libc::SO_KEEPALIVE => options.keepalive = number(value)? != 0,
            libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => {
                options.receive_buffer = Some((positive(number(value)?)?.saturating_mul(2)).max(MIN_BUFFER));
            }
            libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => {
                let size = positive(number(value)?)?.min(wmem_max);
                options.send_buffer = Some(size.saturating_mul(2).max(2 * MIN_BUFFER));
            }
            libc::SO_RCVLOWAT => options.receive_lowat = Some(positive(number(value)?)?.max(1)),
            libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS => return Err(EOPNOTSUPP),
            _ => {
                number(value)?;
            }
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, fd: c_int, name: c_int, value: &[u8]) -> Result<(), c_int> {
        if name == libc::TCP_FASTOPEN_KEY {
            self.socket_mut(fd)?.options.keys = Some(keys(value)?);
            return Ok(());
        }
        if name == libc::TCP_CONGESTION {
            let text = value.split(|byte| *byte == 0).next().and_then(|text| std::str::from_utf8(text).ok());
            let found = text.and_then(algorithm).ok_or(ENOENT)?;
            self.socket_mut(fd)?.options.congestion = Some(found);
            return Ok(());
        }
        let n = number(value)?;
        let bits = self.sysctl.fast_open;
        let socket = self.socket_mut(fd)?;
        match name {
            libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_FASTOPEN_NO_COOKIE => {
                set_fast_open(socket, name, n, bits)
            }
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => set_keepalive(socket, name, n),
            _ => set_other(socket, name, n),
        }
    }

    /// `getsockopt`. The caller cuts the value to its buffer.
    pub(crate) fn get_option(&mut self, fd: c_int, level: c_int, name: c_int) -> Result<Vec<u8>, c_int> {
        self.settle(fd)?;
        let int = |n: c_int| Ok(n.to_ne_bytes().to_vec());
        let sysctl = Arc::clone(&self.sysctl);
        if (level, name) == (IPPROTO_TCP, libc::TCP_INFO) {
            return Ok(self.tcp_info(fd));
        }
        let mss = self.socket(fd)?.connection().and_then(|id| self.machine(id)).map(|m| m.mss());
        let socket = self.socket_mut(fd)?;
        let options = &socket.options;
        match (level, name) {
            (SOL_SOCKET, libc::SO_ERROR) => int(socket.error.take().unwrap_or(0)),
            (SOL_SOCKET, libc::SO_TYPE) => int(libc::SOCK_STREAM),
            (SOL_SOCKET, libc::SO_KEEPALIVE) => int(c_int::from(options.keepalive)),
            (SOL_SOCKET, libc::SO_REUSEADDR) => int(1),
            (SOL_SOCKET, libc::SO_RCVBUF) => int(options.receive_buffer.unwrap_or(sysctl.rmem[1]) as c_int),
            (SOL_SOCKET, libc::SO_SNDBUF) => {
                let socket = self.socket(fd)?;
                int(self.send_buffer(socket) as c_int)
            }
            (SOL_SOCKET, libc::SO_LINGER) => {
                let time = options.linger.map_or(0, |time| time.as_secs() as c_int);
                let on = c_int::from(options.linger.is_some());
                Ok([on.to_ne_bytes(), time.to_ne_bytes()].concat())
            }
            // Nine memory counters, none of which is kept.
            (SOL_SOCKET, libc::SO_MEMINFO) => Ok(vec![0; 36]),
            (SOL_SOCKET, _) => Err(ENOPROTOOPT),
            (IPPROTO_TCP, TCP_CC_INFO) => Ok(Vec::new()),
            (IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let chosen = options.congestion.or(algorithm(&sysctl.congestion)).unwrap_or_default();
                let name = if chosen == Algorithm::Cubic { "cubic" } else { "reno" };
                let mut bytes = name.as_bytes().to_vec();
                bytes.resize(16, 0);
                Ok(bytes)
            }
            (IPPROTO_TCP, libc::TCP_MAXSEG) => int(c_int::from(mss.or(options.max_segment).unwrap_or(536))),
            (IPPROTO_TCP, libc::TCP_NODELAY) => int(c_int::from(options.nodelay)),
            (IPPROTO_TCP, libc::TCP_CORK) => int(c_int::from(options.cork)),
            (IPPROTO_TCP, libc::TCP_FASTOPEN) => int(options.fast_open.unwrap_or(0) as c_int),
            (IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => int(c_int::from(options.fast_open_connect)),
            (IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE) => int(c_int::from(options.no_cookie)),
            (IPPROTO_TCP, libc::TCP_INQ) => int(c_int::from(options.inq)),
            (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => int(options.notsent_lowat.unwrap_or(0) as c_int),
            (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                int(options.user_timeout.map_or(0, |time| time.as_millis() as c_int))
            }
            (IPPROTO_TCP, libc::TCP_KEEPIDLE) => int(options.probing.idle.as_secs() as c_int),
            (IPPROTO_TCP, libc::TCP_KEEPINTVL) => int(options.probing.interval.as_secs() as c_int),
            (IPPROTO_TCP, libc::TCP_KEEPCNT) => int(c_int::from(options.probing.probes)),
            (IPPROTO_TCP, libc::TCP_SYNCNT) => {
                int(c_int::from(options.syn_count.unwrap_or(sysctl.syn_retries)))
            }
            (IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6, _) => Err(ENOPROTOOPT),
            _ => Err(EOPNOTSUPP),
        }
    }
}

fn set_fast_open(socket: &mut Socket, name: c_int, n: c_int, bits: u32) -> Result<(), c_int> {
    let fresh = matches!(socket.kind, Kind::Fresh | Kind::Listener { .. });
    let listens_or_new = fresh;
    match name {
        libc::TCP_FASTOPEN if n >= 0 && listens_or_new => socket.options.fast_open = Some(n.unsigned_abs()),
        libc::TCP_FASTOPEN_CONNECT if !(0..=1).contains(&n) => return Err(EINVAL),
        libc::TCP_FASTOPEN_CONNECT if bits & CLIENT == 0 => return Err(EOPNOTSUPP),
        libc::TCP_FASTOPEN_CONNECT if matches!(socket.kind, Kind::Fresh) => {
            socket.options.fast_open_connect = n == 1;
        }
        libc::TCP_FASTOPEN_NO_COOKIE if !(0..=1).contains(&n) => return Err(EINVAL),
        libc::TCP_FASTOPEN_NO_COOKIE if fresh => socket.options.no_cookie = n == 1,
        _ => return Err(EINVAL),
    }
    Ok(())
}

fn set_keepalive(socket: &mut Socket, name: c_int, n: c_int) -> Result<(), c_int> {
    let probing = &mut socket.options.probing;
    match name {
        libc::TCP_KEEPIDLE if (1..=32_767).contains(&n) => probing.idle = seconds(n),
        libc::TCP_KEEPINTVL if (1..=32_767).contains(&n) => probing.interval = seconds(n),
        libc::TCP_KEEPCNT if (1..=127).contains(&n) => probing.probes = n.unsigned_abs() as u8,
        _ => return Err(EINVAL),
    }
    Ok(())
}

fn set_other(socket: &mut Socket, name: c_int, n: c_int) -> Result<(), c_int> {
    let listening = matches!(socket.kind, Kind::Listener { .. });
    let options = &mut socket.options;
    match name {
        libc::TCP_NODELAY => options.nodelay = n != 0,
        libc::TCP_CORK => options.cork = n != 0,
        libc::TCP_MAXSEG if n == 0 => options.max_segment = None,
        libc::TCP_MAXSEG if (88..=MAX_SEGMENT).contains(&n) => {
            options.max_segment = Some(n.unsigned_abs() as u16)
        }
        libc::TCP_USER_TIMEOUT if n >= 0 => {
            let time = Duration::from_millis(u64::from(n.unsigned_abs()));
            options.user_timeout = (!time.is_zero()).then_some(time);
        }
        libc::TCP_SYNCNT if (1..=127).contains(&n) => options.syn_count = Some(n.unsigned_abs() as u8),
        libc::TCP_LINGER2 => options.linger2 = (n > 0).then(|| seconds(n)),
        libc::TCP_INQ if (0..=1).contains(&n) => options.inq = n == 1,
        libc::TCP_NOTSENT_LOWAT => options.notsent_lowat = Some(n.cast_unsigned()),
        libc::TCP_QUICKACK
        | libc::TCP_DEFER_ACCEPT
        | libc::TCP_WINDOW_CLAMP
        | libc::TCP_THIN_LINEAR_TIMEOUTS => {}
        libc::TCP_THIN_DUPACK => {}
        libc::TCP_REPAIR => return Err(if listening { EISCONN } else { EALREADY }),
        libc::TCP_MAXSEG | libc::TCP_USER_TIMEOUT | libc::TCP_SYNCNT | libc::TCP_INQ => return Err(EINVAL),
        _ => return Err(ENOPROTOOPT),
    }
    Ok(())
}
