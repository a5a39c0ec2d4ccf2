//go:build !linux || 386 || s390x

package firstflight

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Control does nothing on this system: the connect is an ordinary one.
func Control(_, _ string, _ syscall.RawConn) error { return nil }

func both(
	withContext func(context.Context, string, string, syscall.RawConn) error,
	without func(string, string, syscall.RawConn) error,
) func(context.Context, string, string, syscall.RawConn) error {
	if withContext != nil || without == nil {
		return withContext
	}
	return func(_ context.Context, network, address string, c syscall.RawConn) error {
		return without(network, address, c)
	}
}

// ListenControl does nothing on this system: the listener takes no first flights.
func ListenControl(_ int, _ []byte) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, _ syscall.RawConn) error { return nil }
}

// SetKeys is not supported on this system.
func SetKeys(_ net.Listener, _ []byte) error { return errors.ErrUnsupported }

// Confirmed is not supported on this system.
func Confirmed(_ net.Conn) (bool, error) { return false, errors.ErrUnsupported }

// ClientOutcome is not supported on this system.
func ClientOutcome(_ net.Conn) (Outcome, error) { return Outcome{}, errors.ErrUnsupported }

// ServerOutcome is not supported on this system.
func ServerOutcome(_ net.Conn) (Outcome, error) { return Outcome{}, errors.ErrUnsupported }

// HostCheck is not supported on this system.
func HostCheck() (Host, error) { return Host{}, errors.ErrUnsupported }
