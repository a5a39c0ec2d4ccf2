//go:build linux && !386 && !s390x

package firstflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Options of TCP that package syscall has no names for.
const (
	tcpFastOpen        = 23
	tcpSaveSyn         = 27
	tcpSavedSyn        = 28
	tcpFastOpenConnect = 30
	tcpFastOpenKey     = 33
)

// States and bits of struct tcp_info.
const (
	synSent = 2
	synRecv = 3
	closed  = 7
	synData = 32
)

// Failures of a client (tcpi_fastopen_client_fail).
const (
	failNone = iota
	failNoCookie
	failNotAcked
	failSynAgain
)

// Control lets the first Write of a connection ride in its SYN, for the field of this name in net.Dialer: the connection's
// first write must be one that may run twice, as the ClientHello of TLS. If the kernel has a cookie of the server, the
// connect returns at once, and the SYN leaves with the first Write. Where the system switches Fast Open off, the connect is an
// ordinary one.
func Control(_, _ string, c syscall.RawConn) error {
	return on(c, func(fd int) error {
		err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpFastOpenConnect, 1)
		// net.ipv4.tcp_fastopen lacks bit 1, the socket is one of Multipath TCP, or the kernel is an old one.
		if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOPROTOOPT) {
			return nil
		}
		return os.NewSyscallError("setsockopt", err)
	})
}

// Control after the program's own function, as net.Dialer calls one of them.
func both(
	withContext func(context.Context, string, string, syscall.RawConn) error,
	without func(string, string, syscall.RawConn) error,
) func(context.Context, string, string, syscall.RawConn) error {
	return func(ctx context.Context, network, address string, c syscall.RawConn) error {
		var err error
		switch {
		case withContext != nil:
			err = withContext(ctx, network, address, c)
		case without != nil:
			err = without(network, address, c)
		}
		if err != nil {
			return err
		}
		return Control(network, address, c)
	}
}

// ListenControl lets a listener take first flights, for the field Control of net.ListenConfig. See [Listen], which also sets
// what else such a listener needs.
func ListenControl(queue int, keys []byte) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return on(c, func(fd int) error {
			// The keys come first: with others, a SYN would get a cookie that is worth nothing later.
			if len(keys) > 0 {
				if err := setKeys(fd, keys); err != nil {
					return err
				}
			}
			if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpFastOpen, queue); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
			// Without the SYNs' headers the reasons are less exact.
			_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpSaveSyn, 1)
			return nil
		})
	}
}

// SetKeys replaces the keys of a listener's cookies, from the next SYN on: 16 bytes, or 32 with a backup key. To lose no cookie,
// give all servers of a farm the new key as the backup first.
func SetKeys(listener net.Listener, keys []byte) error {
	return with(listener, func(fd int) error { return setKeys(fd, keys) })
}

func setKeys(fd int, keys []byte) error {
	if len(keys) != 16 && len(keys) != 32 {
		return fmt.Errorf("firstflight: %d bytes of keys: give 16, or 32 with a backup: %w", len(keys), syscall.EINVAL)
	}
	err := syscall.SetsockoptString(fd, syscall.IPPROTO_TCP, tcpFastOpenKey, string(keys))
	return os.NewSyscallError("setsockopt", err)
}

// Confirmed says, at a server, whether the client's ACK has completed the handshake. Until then everything that was read
// arrived in the SYN, and may be a copy that the network made. A connection that is over is an error.
func Confirmed(conn net.Conn) (bool, error) {
	var told info
	err := with(conn, func(fd int) (err error) { told, err = infoOf(fd); return })
	if err == nil && told.state == closed {
		err = os.NewSyscallError("getsockopt", syscall.ENOTCONN)
	}
	return told.confirmed(), err
}

// ClientOutcome is the outcome at a client, whoever made the connect; of a *tls.Conn that of the connection below. Undecided until the handshake is complete, and of a
// connection that is over.
func ClientOutcome(conn net.Conn) (Outcome, error) {
	var told info
	err := with(conn, func(fd int) (err error) { told, err = infoOf(fd); return })
	if err != nil {
		return Outcome{}, err
	}
	host, _ := HostCheck()
	return told.client(host), nil
}

// ServerOutcome is the outcome of a connection that a listener returned. Call it once, soon after Accept: the kernel gives the
// headers of a SYN once.
func ServerOutcome(conn net.Conn) (Outcome, error) {
	var told info
	var headers []byte
	err := with(conn, func(fd int) (err error) {
		told, err = infoOf(fd)
		headers = make([]byte, 1024)
		// A listener may have kept none.
		size, _ := getsockopt(fd, tcpSavedSyn, headers)
		headers = headers[:size]
		return
	})
	if err != nil {
		return Outcome{}, err
	}
	host, _ := HostCheck()
	return told.server(host, headers), nil
}

// HostCheck reads net.ipv4.tcp_fastopen of this network namespace: the first question when every outcome is a handshake.
func HostCheck() (Host, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_fastopen")
	if err != nil {
		return Host{Client: true, Server: true}, err
	}
	bits, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return Host{Client: bits&1 != 0, Server: bits&2 != 0, WithoutCookie: bits&4 != 0}, err
}

// What the kernel says of a connection (struct tcp_info).
type info struct {
	state, options, fail uint8
	rtt, rttvar          time.Duration
	bytes                uint64
	again                uint32
}

func infoOf(fd int) (info, error) {
	var raw [136]byte
	size, err := getsockopt(fd, syscall.TCP_INFO, raw[:])
	if err != nil {
		return info{}, err
	}
	return parseInfo(raw[:size])
}

func parseInfo(raw []byte) (info, error) {
	if len(raw) < 136 {
		return info{}, errors.ErrUnsupported
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	// A bit field, which compilers lay out from the lowest bit on little-endian machines, and from the highest on others.
	fail := raw[7] >> 1 & 3
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		fail = raw[7] >> 5 & 3
	}
	micros := func(at int) time.Duration { return time.Duration(word(at)) * time.Microsecond }
	return info{
		state:   raw[0],
		options: raw[5],
		fail:    fail,
		rtt:     micros(68),
		rttvar:  micros(72),
		again:   word(100),
		bytes:   binary.NativeEndian.Uint64(raw[128:]),
	}, nil
}

func (i info) confirmed() bool {
	return i.state != synSent && i.state != synRecv && i.state != closed
}

func (i info) outcome(result Result, reason Reason) Outcome {
	return Outcome{
		Result: result, Reason: reason, Confirmed: i.confirmed(), RTT: i.rtt, RTTVar: i.rttvar, Retransmissions: i.again,
	}
}

func (i info) client(host Host) Outcome {
	switch {
	case i.options&synData != 0:
		return i.outcome(Accepted, None)
	case !i.confirmed():
		return i.outcome(Undecided, None)
	case i.fail == failNoCookie:
		return i.outcome(Handshake, NoCredential)
	case i.fail == failNotAcked:
		return i.outcome(Handshake, DataNotAcknowledged)
	case i.fail == failSynAgain:
		return i.outcome(Handshake, SynTimedOut)
	case !host.Client:
		return i.outcome(Handshake, SystemDisabled)
	default:
		return i.outcome(Handshake, NotRequested)
	}
}

func (i info) server(host Host, headers []byte) Outcome {
	asked, known := parseSyn(headers)
	switch {
	case i.options&synData != 0:
		outcome := i.outcome(Accepted, None)
		// The headers of a SYN may not have been kept, or not be understood. What has arrived by now is then early.
		outcome.EarlyBytes = max(int(i.bytes), 1)
		if asked.data > 0 {
			outcome.EarlyBytes = asked.data
		}
		return outcome
	case !known:
		return i.outcome(Handshake, Unknown)
	case !asked.option:
		return i.outcome(Handshake, NotRequested)
	case !host.Server:
		return i.outcome(Handshake, SystemDisabled)
	case !asked.cookie:
		return i.outcome(Handshake, NoCredential)
	case asked.data == 0:
		return i.outcome(Handshake, NoData)
	default:
		return i.outcome(Handshake, StaleOrWrongCredential)
	}
}

// What a SYN asked for, by its headers.
type syn struct {
	// It has the option of Fast Open, and a cookie in it.
	option, cookie bool
	// Bytes of data.
	data int
}

// Reads the headers of a SYN, from IP on. False if they are not those of a SYN in a packet without extensions of IPv6.
func parseSyn(headers []byte) (syn, bool) {
	var head, whole int
	switch {
	case len(headers) >= 20 && headers[0]>>4 == 4:
		head, whole = int(headers[0]&15)*4, int(binary.BigEndian.Uint16(headers[2:]))
	case len(headers) >= 40 && headers[0]>>4 == 6 && headers[6] == syscall.IPPROTO_TCP:
		head, whole = 40, 40+int(binary.BigEndian.Uint16(headers[4:]))
	default:
		return syn{}, false
	}
	if head < 20 || len(headers) < head+20 {
		return syn{}, false
	}
	tcp := headers[head:]
	length := int(tcp[12]>>4) * 4
	if length < 20 || len(tcp) < length || whole < head+length {
		return syn{}, false
	}
	found := syn{data: whole - head - length}
	for options := tcp[20:length]; len(options) > 0; {
		size := 1
		switch kind := options[0]; {
		case kind == 0:
			return found, true
		case kind == 1:
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return syn{}, false
		default:
			size = int(options[1])
			// Kind 34, or the experimental kind with the number of Fast Open (RFC 7413 section 4.1.1).
			rest := options[2:size]
			if kind == 254 && len(rest) >= 2 && rest[0] == 0xf9 && rest[1] == 0x89 {
				kind, rest = 34, rest[2:]
			}
			if kind == 34 {
				found.option, found.cookie = true, len(rest) > 0
			}
		}
		options = options[size:]
	}
	return found, true
}

func getsockopt(fd, name int, into []byte) (int, error) {
	size := uint32(len(into))
	// The kernel writes at most size bytes into the slice, and their number into size. Both live until the call is over.
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.IPPROTO_TCP, uintptr(name),
		uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt", errno)
	}
	return int(size), nil
}

// Calls act with the descriptor, which stays open meanwhile.
func on(c syscall.RawConn, act func(fd int) error) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = act(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

func with(conn any, act func(fd int) error) error {
	// As *tls.Conn has.
	for {
		above, wraps := conn.(interface{ NetConn() net.Conn })
		if !wraps {
			break
		}
		conn = above.NetConn()
	}
	socket, isSocket := conn.(syscall.Conn)
	if !isSocket {
		return fmt.Errorf("firstflight: %T is no socket: %w", conn, errors.ErrUnsupported)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return on(raw, act)
}
