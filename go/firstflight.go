// Package firstflight gives first flights of the kernel's TCP (TCP Fast Open, RFC 7413) to programs in Go: a request that
// travels in the SYN, listeners that take such requests, and a word for what became of each of them, and why.
//
// It needs Linux, and neither cgo nor other modules. On other systems connects are ordinary ones, listeners listen, and
// functions that ask the kernel return [errors.ErrUnsupported].
//
// The network may duplicate a SYN with data, and the server may then run that data twice (RFC 7413 section 6.1). So each
// connect says whether its data may run twice, and a server that must not run a request twice waits until [Confirmed].
package firstflight

import (
	"context"
	"errors"
	"net"
	"time"
)

// Safety says whether a server may run data twice.
type Safety int

const (
	// MayRunTwice is data that may run twice, as a GET: it rides in the SYN.
	MayRunTwice Safety = iota + 1
	// RunOnce is data that must not: it waits for the handshake.
	RunOnce
)

// Result is what became of a first flight.
type Result string

const (
	// Undecided: no answer yet, or the connection is over.
	Undecided Result = "undecided"
	// Accepted: the data, or a part of it, skipped the handshake.
	Accepted Result = "accepted"
	// Handshake: an ordinary handshake, for a reason.
	Handshake Result = "handshake"
)

// Reason is why a first flight was not accepted. The words are those of all programs of firstflight; these occur here.
type Reason string

const (
	// None: it was accepted, or nothing is decided.
	None Reason = ""
	// NotRequested: no Fast Open was asked for.
	NotRequested Reason = "not-requested"
	// NoCredential: the client had no cookie yet, and asked for one.
	NoCredential Reason = "no-credential"
	// StaleOrWrongCredential, at a server: it did not recognise the cookie, or its queue was full.
	StaleOrWrongCredential Reason = "stale-or-wrong-credential"
	// DataNotAcknowledged, at a client: the SYN-ACK acknowledged none of the data.
	DataNotAcknowledged Reason = "data-not-acknowledged"
	// SynTimedOut, at a client: the SYN with data got no answer, and a plain one did.
	SynTimedOut Reason = "syn-timed-out"
	// NoData, at a server: a cookie came without data.
	NoData Reason = "no-data"
	// SystemDisabled: net.ipv4.tcp_fastopen switches Fast Open off.
	SystemDisabled Reason = "system-disabled"
	// Unknown, at a server: the listener kept no headers of SYNs, so why is not known.
	Unknown Reason = "unknown"
)

// Outcome is what became of the first flight of a connection.
type Outcome struct {
	Result Result
	Reason Reason
	// Confirmed: the handshake is complete. See the function of this name.
	Confirmed bool
	// EarlyBytes, at a server: how many bytes at the beginning of the stream arrived in the SYN.
	EarlyBytes int
	// RTT is the smoothed round-trip time, 0 before the first measurement, and RTTVar its variation.
	RTT, RTTVar time.Duration
	// Retransmissions are segments sent again since the connection began, SYNs among them.
	Retransmissions uint32
}

// String is "accepted", or "handshake (no-credential)".
func (o Outcome) String() string {
	if o.Reason == None {
		return string(o.Result)
	}
	return string(o.Result) + " (" + string(o.Reason) + ")"
}

// Host is what net.ipv4.tcp_fastopen lets TCP do in this network namespace.
type Host struct {
	// Client: connects may use Fast Open (bit 1).
	Client bool
	// Server: listeners may (bit 2). Linux' default is that they may not.
	Server bool
	// WithoutCookie: connects send data without a cookie (bit 4).
	WithoutCookie bool
}

// Dialer connects with a first flight. Its embedded net.Dialer has the timeouts and addresses; the functions of net.Dialer
// make ordinary connects.
type Dialer struct {
	net.Dialer
}

// Connect connects, and sends all of first. If first may run twice, and the kernel has a cookie of the server, first rides in
// the SYN, and Connect returns without an answer of the server: then the error of a connect comes with the first Read. If
// the kernel has no cookie, it asks for one, and first follows the handshake.
//
// Of a server's addresses, one with a cookie counts as one that answers. A path that drops SYNs with data costs a second,
// because the kernel sends the SYN again without them.
func (d *Dialer) Connect(ctx context.Context, network, address string, first []byte, safety Safety) (*net.TCPConn, error) {
	if safety != MayRunTwice && safety != RunOnce {
		return nil, errors.New("firstflight: say MayRunTwice or RunOnce")
	}
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, net.UnknownNetworkError(network)
	}
	dialer := d.Dialer
	if d.Timeout > 0 {
		limited, end := context.WithTimeout(ctx, d.Timeout)
		ctx = limited
		defer end()
	}
	if !d.Deadline.IsZero() {
		limited, end := context.WithDeadline(ctx, d.Deadline)
		ctx = limited
		defer end()
	}
	if safety == MayRunTwice && len(first) > 0 {
		dialer.Control, dialer.ControlContext = nil, both(d.ControlContext, d.Control)
	}
	dialed, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn, isTCP := dialed.(*net.TCPConn)
	if !isTCP {
		return nil, errors.Join(net.UnknownNetworkError(network), dialed.Close())
	}
	if err := write(ctx, conn, first); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Writes all, unless ctx ends before.
func write(ctx context.Context, conn net.Conn, first []byte) error {
	if len(first) == 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := conn.Write(first)
	if !stop() {
		return ctx.Err()
	}
	return err
}

// Listen listens for connections with data in the SYN. At most queue of them wait for their client's ACK at one time; others
// get an ordinary handshake. keys are those of the cookies: nil for the network namespace's, 16 bytes, or 32 with a backup
// key. All servers of a farm need the same. Whether listeners may use Fast Open is the administrator's word ([HostCheck]).
func Listen(ctx context.Context, network, address string, queue int, keys []byte) (net.Listener, error) {
	config := net.ListenConfig{Control: ListenControl(queue, keys)}
	// Multipath TCP takes no first flights.
	config.SetMultipathTCP(false)
	return config.Listen(ctx, network, address)
}
