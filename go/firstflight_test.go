//go:build linux && !386 && !s390x

package firstflight

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Servers of other programs, each with a file /small: "nginx=127.0.0.1:8101 serve=127.0.0.1:8102". The one named "hole" is
// behind a path that drops SYNs with data. tests/interop/test_go.py starts them.
const servers = "FIRSTFLIGHT_SERVERS"

var (
	request = []byte("GET /small HTTP/1.0\r\nHost: www.example.com\r\n\r\n")
	end     = []byte("\r\n\r\n")
)

func needsFastOpen(t *testing.T) {
	t.Helper()
	if host, err := HostCheck(); err != nil || !host.Client || !host.Server {
		t.Skip("net.ipv4.tcp_fastopen is not 3")
	}
}

type told struct {
	outcome Outcome
	data    []byte
	err     error
}

// Listens at a loopback address, and tells the outcome and the data of each connection. It answers with "ok" when the data has
// an empty line at its end.
func listen(t *testing.T, address string, keys []byte) (*net.TCPListener, <-chan told) {
	t.Helper()
	made, err := Listen(context.Background(), "tcp", address, 16, keys)
	if err != nil {
		t.Fatal(err)
	}
	listener := made.(*net.TCPListener)
	t.Cleanup(func() { listener.Close() })
	seen := make(chan told, 16)
	go func() {
		for {
			conn, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			outcome, err := ServerOutcome(conn)
			go func() {
				defer conn.Close()
				var data []byte
				for part := make([]byte, 65_536); err == nil && !bytes.HasSuffix(data, end); {
					var size int
					size, err = conn.Read(part)
					data = append(data, part[:size]...)
				}
				conn.Write([]byte("ok"))
				seen <- told{outcome, data, err}
				// The client asks the kernel about the connection before it is over.
				io.Copy(io.Discard, conn)
			}()
		}
	}()
	return listener, seen
}

// Connects, and waits for the answer. The outcome is that at the client.
func exchange(t *testing.T, address string, first []byte, safety Safety) Outcome {
	t.Helper()
	dialer := Dialer{net.Dialer{Timeout: 20 * time.Second}}
	conn, err := dialer.Connect(context.Background(), "tcp", address, first, safety)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 2)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "ok" {
		t.Fatalf("answer %q, %v", answer, err)
	}
	outcome, err := ClientOutcome(conn)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func expect(t *testing.T, seen told, text string, early int, data []byte) {
	t.Helper()
	if seen.err != nil || seen.outcome.String() != text || seen.outcome.EarlyBytes != early || !bytes.Equal(seen.data, data) {
		t.Fatalf("server: %v, %d early bytes, %d of %d bytes, %v; not %s, %d",
			seen.outcome, seen.outcome.EarlyBytes, len(seen.data), len(data), seen.err, text, early)
	}
}

// A key of its own for each test, so that the kernel's cookies of earlier ones are worth nothing.
func key(t *testing.T) []byte {
	return fmt.Appendf(nil, "%016d", time.Now().UnixNano()%1e15)
}

func TestTheSecondConnectIsInTheSyn(t *testing.T) {
	needsFastOpen(t)
	for _, host := range []string{"127.0.0.2", "[::1]"} {
		listener, seen := listen(t, host+":0", key(t))
		address := listener.Addr().String()
		// Perhaps with a cookie of another test.
		exchange(t, address, request, MayRunTwice)
		<-seen
		outcome := exchange(t, address, request, MayRunTwice)
		if outcome.String() != "accepted" || outcome.RTT <= 0 {
			t.Fatalf("%s: %v %v", host, outcome, outcome.RTT)
		}
		expect(t, <-seen, "accepted", len(request), request)
		// More than a SYN has room for.
		large := append(bytes.Repeat([]byte("x"), 300_000), end...)
		if outcome := exchange(t, address, large, MayRunTwice); outcome.Result != Accepted {
			t.Fatal(outcome)
		}
		arrived := <-seen
		if arrived.outcome.EarlyBytes < 1000 || arrived.outcome.EarlyBytes > 65_535 || !bytes.Equal(arrived.data, large) {
			t.Fatalf("%d early bytes, %d bytes", arrived.outcome.EarlyBytes, len(arrived.data))
		}
		// What must not run twice waits, although there is a cookie.
		if outcome := exchange(t, address, request, RunOnce); outcome.String() != "handshake (not-requested)" {
			t.Fatal(outcome)
		}
		expect(t, <-seen, "handshake (not-requested)", 0, request)
	}
}

func TestTheFirstConnectAsksForACookie(t *testing.T) {
	needsFastOpen(t)
	// An address that no other test connects to.
	listener, seen := listen(t, "127.0.0.3:0", nil)
	if outcome := exchange(t, listener.Addr().String(), request, MayRunTwice); outcome.String() != "handshake (no-credential)" {
		t.Fatal(outcome)
	}
	expect(t, <-seen, "handshake (no-credential)", 0, request)
}

func TestACookieOfAnotherKeyIsRefused(t *testing.T) {
	needsFastOpen(t)
	first, second := key(t), []byte("another key, 16 ")
	listener, seen := listen(t, "127.0.0.4:0", first)
	address := listener.Addr().String()
	exchange(t, address, request, MayRunTwice)
	<-seen
	// The former key is the backup, then it is gone: by then the client has a cookie of the new one.
	for _, keys := range [][]byte{append(bytes.Clone(second), first...), second} {
		if err := SetKeys(listener, keys); err != nil {
			t.Fatal(err)
		}
		if outcome := exchange(t, address, request, MayRunTwice); outcome.Result != Accepted {
			t.Fatal(outcome)
		}
		expect(t, <-seen, "accepted", len(request), request)
	}
	if err := SetKeys(listener, key(t)); err != nil {
		t.Fatal(err)
	}
	if outcome := exchange(t, address, request, MayRunTwice); outcome.String() != "handshake (data-not-acknowledged)" {
		t.Fatal(outcome)
	}
	expect(t, <-seen, "handshake (stale-or-wrong-credential)", 0, request)
}

func TestConfirmedFollowsTheAck(t *testing.T) {
	needsFastOpen(t)
	listener, _ := listen(t, "127.0.0.5:0", nil)
	conn, err := (&Dialer{}).Connect(context.Background(), "tcp", listener.Addr().String(), request, MayRunTwice)
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := ClientOutcome(tls.Client(conn, &tls.Config{})); outcome.Result == "" || err != nil {
		t.Fatal("below TLS:", outcome, err)
	}
	if confirmed, err := Confirmed(conn); !confirmed || err != nil {
		t.Fatal(confirmed, err)
	}
	conn.Close()
	if _, err := Confirmed(conn); err == nil {
		t.Fatal("a closed connection is confirmed")
	}
	// A connection in SYN-RECEIVED cannot be held on loopback: its ACK comes at once.
	for state, confirmed := range map[uint8]bool{1: true, synSent: false, synRecv: false, closed: false, 8: true} {
		if (info{state: state}).confirmed() != confirmed {
			t.Fatal(state)
		}
	}
}

func TestWhereTheSystemSwitchesItOffConnectsAreOrdinary(t *testing.T) {
	host, err := HostCheck()
	if err != nil || host.Client {
		t.Skip("net.ipv4.tcp_fastopen has bit 1")
	}
	listener, seen := listen(t, "127.0.0.8:0", nil)
	for visit := 0; visit < 2; visit++ {
		if outcome := exchange(t, listener.Addr().String(), request, MayRunTwice); outcome.String() != "handshake (system-disabled)" {
			t.Fatal(outcome)
		}
		expect(t, <-seen, "handshake (not-requested)", 0, request)
	}
}

func TestOtherServers(t *testing.T) {
	needsFastOpen(t)
	given := strings.Fields(os.Getenv(servers))
	if len(given) == 0 {
		t.Skip("no " + servers)
	}
	for _, server := range given {
		name, address, _ := strings.Cut(server, "=")
		t.Run(name, func(t *testing.T) {
			get := func() Outcome {
				conn, err := (&Dialer{net.Dialer{Timeout: 20 * time.Second}}).Connect(context.Background(), "tcp", address, request, MayRunTwice)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				page, err := io.ReadAll(conn)
				if err != nil || !bytes.Contains(page, []byte(" 200 OK\r\n")) {
					t.Fatalf("%q, %v", page, err)
				}
				outcome, err := ClientOutcome(conn)
				if err != nil {
					t.Fatal(err)
				}
				return outcome
			}
			first := get()
			outcome, want := get(), "accepted"
			if name == "hole" {
				// At the same address as the others, whose cookie it shows. After it the kernel may send no more.
				outcome, want = first, "handshake (syn-timed-out)"
			}
			if outcome.String() != want {
				t.Fatalf("%v, not %s", outcome, want)
			}
		})
	}
}

func TestARequestOfNetHTTPIsInTheSyn(t *testing.T) {
	needsFastOpen(t)
	made, err := Listen(context.Background(), "tcp", "127.0.0.6:0", 16, nil)
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(made, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer made.Close()
	transport := &http.Transport{DialContext: (&net.Dialer{Control: Control}).DialContext, DisableKeepAlives: true}
	for visit := range 3 {
		var conn net.Conn
		trace := httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { conn = got.Conn }}
		ask, _ := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), &trace), "GET", "http://"+made.Addr().String(), nil)
		response, err := transport.RoundTrip(ask)
		if err != nil {
			t.Fatal(err)
		}
		// Before the end of the body, which closes the connection.
		outcome, err := ClientOutcome(conn)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != "ok" || visit > 0 && outcome.Result != Accepted {
			t.Fatal(visit, outcome, err, body)
		}
	}
}

func TestWrongArgumentsAreErrors(t *testing.T) {
	background := context.Background()
	dialer := Dialer{}
	if _, err := dialer.Connect(background, "tcp", "127.0.0.1:9", request, 0); err == nil {
		t.Fatal("no word about safety")
	}
	if _, err := dialer.Connect(background, "udp", "127.0.0.1:9", request, RunOnce); err == nil {
		t.Fatal("UDP")
	}
	listener, _ := listen(t, "127.0.0.7:0", nil)
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := dialer.Connect(ended, "tcp", listener.Addr().String(), request, MayRunTwice); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	late := Dialer{net.Dialer{Deadline: time.Unix(1, 0)}}
	if _, err := late.Connect(background, "tcp", listener.Addr().String(), request, MayRunTwice); err == nil {
		t.Fatal("connected after the deadline")
	}
	refusing := errors.New("no")
	for _, own := range []net.Dialer{
		{Control: func(string, string, syscall.RawConn) error { return refusing }},
		{ControlContext: func(context.Context, string, string, syscall.RawConn) error { return refusing }},
	} {
		if _, err := (&Dialer{own}).Connect(background, "tcp", listener.Addr().String(), request, MayRunTwice); !errors.Is(err, refusing) {
			t.Fatal("the program's own control was not called:", err)
		}
	}
	if err := SetKeys(listener, make([]byte, 5)); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	if _, err := Listen(background, "tcp", "127.0.0.1:0", 1, make([]byte, 15)); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	if _, err := ClientOutcome(tls.Client(pipe(t), &tls.Config{})); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal("an outcome of a pipe:", err)
	}
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	if _, err := ClientOutcome(datagrams.(*net.UDPConn)); err == nil {
		t.Fatal("an outcome of UDP")
	}
	if _, err := ServerOutcome(datagrams.(*net.UDPConn)); err == nil {
		t.Fatal("an outcome of UDP")
	}
}

func pipe(t *testing.T) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	return near
}

// A SYN with a cookie of eight bytes and 100 bytes of data, without the data.
func ofSyn(v6 bool, options ...byte) []byte {
	for len(options)%4 != 0 {
		options = append(options, 1)
	}
	tcp := append([]byte{0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, byte(5+len(options)/4) << 4, 2, 0xff, 0xff, 0, 0, 0, 0}, options...)
	if v6 {
		head := make([]byte, 40)
		head[0], head[6] = 0x60, syscall.IPPROTO_TCP
		binary.BigEndian.PutUint16(head[4:], uint16(len(tcp)+100))
		return append(head, tcp...)
	}
	head := make([]byte, 20)
	head[0], head[9] = 0x45, syscall.IPPROTO_TCP
	binary.BigEndian.PutUint16(head[2:], uint16(20+len(tcp)+100))
	return append(head, tcp...)
}

func TestASynIsReadByItsHeaders(t *testing.T) {
	cookie := []byte{34, 10, 1, 2, 3, 4, 5, 6, 7, 8}
	experimental := []byte{254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8}
	for _, v6 := range []bool{false, true} {
		for _, row := range []struct {
			options []byte
			want    syn
		}{
			{cookie, syn{true, true, 100}},
			{append([]byte{2, 4, 5, 0xb4, 1}, cookie...), syn{true, true, 100}},
			{experimental, syn{true, true, 100}},
			{[]byte{34, 2}, syn{true, false, 100}},
			{[]byte{254, 4, 0xf9, 0x89}, syn{true, false, 100}},
			{[]byte{254, 4, 0xfa, 0xce}, syn{false, false, 100}},
			{[]byte{0, 34, 2, 0}, syn{false, false, 100}},
			{nil, syn{false, false, 100}},
		} {
			if found, ok := parseSyn(ofSyn(v6, row.options...)); !ok || found != row.want {
				t.Fatalf("%v: %v, %v", row.options, found, ok)
			}
		}
		whole := ofSyn(v6, cookie...)
		for size := range whole {
			if found, ok := parseSyn(whole[:size]); ok {
				t.Fatalf("%d bytes: %v", size, found)
			}
		}
	}
}

func FuzzSyn(f *testing.F) {
	f.Add(ofSyn(false, 34, 10, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(ofSyn(true, 254, 4, 0xf9, 0x89))
	f.Fuzz(func(t *testing.T, headers []byte) {
		if found, ok := parseSyn(headers); ok && (found.data < 0 || found.data > 65_535 || found.cookie && !found.option) {
			t.Fatal(found)
		}
	})
}

func TestEachAnswerOfTheKernelHasItsReason(t *testing.T) {
	all, none := Host{Client: true, Server: true}, Host{}
	for _, row := range []struct {
		info info
		host Host
		want string
	}{
		{info{state: 1, options: synData}, all, "accepted"},
		{info{state: 1, options: synData, fail: failSynAgain}, all, "accepted"},
		{info{state: synSent}, all, "undecided"},
		{info{state: closed}, all, "undecided"},
		{info{state: 1, fail: failNoCookie}, all, "handshake (no-credential)"},
		{info{state: 1, fail: failNotAcked}, all, "handshake (data-not-acknowledged)"},
		{info{state: 1, fail: failSynAgain}, all, "handshake (syn-timed-out)"},
		{info{state: 1}, all, "handshake (not-requested)"},
		{info{state: 1}, none, "handshake (system-disabled)"},
	} {
		if outcome := row.info.client(row.host); outcome.String() != row.want {
			t.Fatalf("%v: %v, not %s", row.info, outcome, row.want)
		}
	}
	for _, row := range []struct {
		options []byte
		host    Host
		want    string
	}{
		{[]byte{34, 10, 1, 2, 3, 4, 5, 6, 7, 8}, all, "handshake (stale-or-wrong-credential)"},
		{[]byte{34, 2}, all, "handshake (no-credential)"},
		{[]byte{34, 2}, none, "handshake (system-disabled)"},
		{nil, none, "handshake (not-requested)"},
	} {
		if outcome := (info{state: 1}).server(row.host, ofSyn(false, row.options...)); outcome.String() != row.want {
			t.Fatalf("%v: %v, not %s", row.options, outcome, row.want)
		}
	}
	if outcome := (info{state: 1}).server(all, nil); outcome.String() != "handshake (unknown)" {
		t.Fatal(outcome)
	}
	kept := ofSyn(false, 34, 10, 1, 2, 3, 4, 5, 6, 7, 8)
	if outcome := (info{state: synRecv, options: synData, bytes: 7}).server(all, kept); outcome.EarlyBytes != 100 || outcome.Confirmed {
		t.Fatal(outcome)
	}
	if outcome := (info{state: synRecv, options: synData, bytes: 7}).server(all, nil); outcome.EarlyBytes != 7 {
		t.Fatal(outcome)
	}
}
