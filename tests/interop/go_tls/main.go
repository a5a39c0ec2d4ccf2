// An end of TLS 1.3 by Go's crypto/tls: a client or a server that says, as JSON lines, what its handshakes were.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

type handshake struct {
	Curve    string `json:"curve"`
	Resumed  bool   `json:"resumed"`
	Retried  bool   `json:"retried"`
	Protocol string `json:"protocol"`
	Status   string `json:"status,omitempty"`
	Error    string `json:"error,omitempty"`
}

func of(conn *tls.Conn) handshake {
	state := conn.ConnectionState()
	return handshake{
		Curve: state.CurveID.String(), Resumed: state.DidResume, Retried: retried(state), Protocol: state.NegotiatedProtocol,
	}
}

func say(said handshake) {
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The groups that are offered or taken, the preferred one first.
func curves(names string) []tls.CurveID {
	known := map[string]tls.CurveID{"hybrid": tls.X25519MLKEM768, "x25519": tls.X25519, "p256": tls.CurveP256}
	var ids []tls.CurveID
	for _, name := range strings.Split(names, ",") {
		id, ok := known[name]
		if !ok {
			check(fmt.Errorf("no group %q", name))
		}
		ids = append(ids, id)
	}
	return ids
}

const request = "GET /small HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n"

// One visit. The tickets are read with the response.
func visit(at string, config *tls.Config) handshake {
	conn, err := tls.Dial("tcp", at, config)
	if err != nil {
		return handshake{Error: err.Error()}
	}
	defer conn.Close()
	said := of(conn)
	if _, err := io.WriteString(conn, request); err != nil {
		said.Error = err.Error()
		return said
	}
	reader := bufio.NewReader(conn)
	status, err := reader.ReadString('\n')
	if err == nil {
		_, err = io.Copy(io.Discard, reader)
	}
	said.Status = strings.TrimSpace(status)
	if err != nil {
		said.Error = err.Error()
	}
	return said
}

func answer(conn *tls.Conn) {
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		say(handshake{Error: err.Error()})
		return
	}
	said := of(conn)
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			said.Error = err.Error()
			break
		}
		if line == "\r\n" {
			break
		}
	}
	io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nanswer")
	say(said)
}

func main() {
	role := flag.String("role", "client", "client or server")
	at := flag.String("at", "127.0.0.1:4433", "address")
	ca := flag.String("ca", "", "authority of the server, PEM")
	cert := flag.String("cert", "", "chain of the server, PEM")
	key := flag.String("key", "", "its key, PEM")
	groups := flag.String("groups", "hybrid,x25519,p256", "groups")
	visits := flag.Int("visits", 1, "how many visits")
	flag.Parse()
	config := &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: curves(*groups), NextProtos: []string{"http/1.1"}}
	if *role == "client" {
		pem, err := os.ReadFile(*ca)
		check(err)
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			check(fmt.Errorf("no certificate in %s", *ca))
		}
		config.ServerName = "www.example.com"
		config.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		for range *visits {
			say(visit(*at, config))
		}
		return
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	check(err)
	config.Certificates = []tls.Certificate{pair}
	listener, err := net.Listen("tcp", *at)
	check(err)
	fmt.Println("listening on", listener.Addr())
	for {
		conn, err := listener.Accept()
		check(err)
		go answer(tls.Server(conn, config))
	}
}

func retried(state tls.ConnectionState) bool {
	return state.HelloRetryRequest
}
