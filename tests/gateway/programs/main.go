// A program in Go that knows nothing of first flights.
//
//	main visit CA COUNT URL...       a page and its objects, each time by a new connection
//	main grpc-serve ADDRESS          a service of gRPC without TLS: echoes a message, with trailers
//	main grpc-call CA URL            calls it
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A client with the environment's proxy, and connections of its own.
func client(ca string) (*http.Client, *http.Transport) {
	pem, err := os.ReadFile(ca)
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: transport}, transport
}

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}

func visit(ca string, urls []string) {
	client, transport := client(ca)
	defer transport.CloseIdleConnections()
	began := time.Now()
	var first float64
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() {
		if first == 0 {
			first = milliseconds(began)
		}
	}}
	for _, url := range urls {
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", url, nil)
		must(err)
		answer, err := client.Do(request)
		must(err)
		_, err = io.Copy(io.Discard, answer.Body)
		must(err)
		answer.Body.Close()
		if answer.StatusCode != 200 {
			must(fmt.Errorf("%s: %s", url, answer.Status))
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]float64{"first": first, "page": milliseconds(began)}))
}

func grpcServe(address string) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	handler := func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		if err == nil && r.Header.Get("Te") == "trailers" && r.ProtoMajor == 2 {
			w.Write(message)
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set("Grpc-Message", strconv.Itoa(len(message))+" bytes")
		} else {
			w.Header().Set("Grpc-Status", "13")
			w.Header().Set("Grpc-Message", "not gRPC: "+r.Proto)
		}
	}
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(handler), Protocols: protocols}
	fmt.Println("listening")
	must(server.ListenAndServe())
}

func grpcCall(ca, url string) {
	client, _ := client(ca)
	message := append([]byte{0, 0, 0, 3, 232}, bytes.Repeat([]byte("m"), 1000)...)
	request, err := http.NewRequest("POST", url, bytes.NewReader(message))
	must(err)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	answer, err := client.Do(request)
	must(err)
	body, err := io.ReadAll(answer.Body)
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"status":   answer.StatusCode,
		"protocol": answer.Proto,
		"echoed":   bytes.Equal(body, message),
		"trailers": answer.Trailer,
	}))
}

func main() {
	switch os.Args[1] {
	case "visit":
		count, err := strconv.Atoi(os.Args[3])
		must(err)
		for range count {
			visit(os.Args[2], os.Args[4:])
		}
	case "grpc-serve":
		grpcServe(os.Args[2])
	case "grpc-call":
		grpcCall(os.Args[2], os.Args[3])
	}
}
