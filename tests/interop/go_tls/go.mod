module firstflight/tests/go_tls

go 1.26
