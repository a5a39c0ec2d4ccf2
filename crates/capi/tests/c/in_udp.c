/*
 * Connections in UDP with certificates are descriptors like others.
 *
 *     in_udp VERIFIER KEY TRUSTFILE
 */
#include "check.h"

#define BIG 300000

static void wait_for(int fd, short events)
{
    struct pollfd wait;

    wait.fd = fd;
    wait.events = events;
    CHECK(poll(&wait, 1, -1) == 1);
}

static int family(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    return at.ss_family;
}

/* Both ends of a connection in UDP; the client's end has sent the request. */
static void pair(ff_client *client, ff_server *server, int ends[2])
{
    struct ff_outcome outcome;
    char got[LENGTH];

    outcome.size = sizeof outcome;
    ends[0] = ff_connect(client, NULL, "127.0.0.1:8080", REQUEST, LENGTH, FF_MAY_RUN_TWICE, 60000, &outcome);
    CHECK(ends[0] >= 0);
    for (;;) {
        wait_for(ff_server_fd(server), POLLIN);
        ends[1] = ff_server_accept(server, &outcome, NULL, NULL);
        CHECK(ends[1] >= 0);
        wait_for(ends[1], POLLIN);
        if (family(ends[0]) == family(ends[1]) && read(ends[1], got, sizeof got) == (ssize_t)LENGTH)
            break;
        close(ends[1]); /* an attempt that lost */
    }
    CHECK(memcmp(got, REQUEST, LENGTH) == 0);
}

/* As many bytes as the other end sends until it ends; the last result of read(). */
static ssize_t read_all(int fd, size_t *total)
{
    static char piece[4096];
    ssize_t more;

    *total = 0;
    do {
        wait_for(fd, POLLIN);
        more = read(fd, piece, sizeof piece);
        if (more > 0)
            *total += (size_t)more;
    } while (more > 0 || (more < 0 && errno == EAGAIN));
    return more;
}

int main(int argc, char **argv)
{
    struct ff_server_options options;
    struct ff_start_options start;
    ff_server *server;
    ff_client *client;
    size_t total, in, out;
    ssize_t more;
    char piece[4096];
    int ends[2], i, lowest = lowest_free();
    static char bytes[BIG];

    alarm(300);
    CHECK(argc == 4);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.addresses = "127.0.0.1:8080";
    options.trust = argv[3];
    options.queue = 64;
    options.safety = FF_RUN_ONCE;
    CHECK(ff_server_new(&options, &server) == 0);
    memset(&start, 0, sizeof start);
    start.size = sizeof start;
    start.verifier = argv[1];
    start.verifier_key = argv[2];
    start.servers = "127.0.0.1:8080=8080";
    CHECK(ff_client_start(&start, &client) == 0);

    /*
     * The certificate comes in the background. Until then the kernel's TCP carries connections, and for ten minutes after UDP has
     * lost a race, which it can on a busy machine: then another client tries.
     */
    for (i = 0;; i++) {
        pair(client, server, ends);
        if (family(ends[0]) == AF_UNIX)
            break;
        CHECK(i < 2000);
        close(ends[0]);
        close(ends[1]);
        poll(NULL, 0, 10);
        if (i % 100 == 99) {
            ff_client_free(client);
            CHECK(ff_client_start(&start, &client) == 0);
        }
    }

    /* Many bytes from the server, and its end; then the client can still send. */
    for (in = 0, out = 0; in < BIG; in += (size_t)more) {
        if (out < BIG && (more = write(ends[1], bytes + out, BIG - out)) > 0) {
            out += (size_t)more;
            CHECK(out < BIG || shutdown(ends[1], SHUT_WR) == 0);
        }
        wait_for(ends[0], POLLIN);
        CHECK((more = read(ends[0], piece, sizeof piece)) > 0);
    }
    CHECK(read_all(ends[0], &total) == 0 && total == 0);
    CHECK(write(ends[0], "more", 4) == 4);
    close(ends[0]);
    CHECK(read_all(ends[1], &total) == 0 && total == 4);
    close(ends[1]);

    /* A connection that breaks is no end. The server closes with unread bytes. */
    pair(client, server, ends);
    CHECK(family(ends[0]) == AF_UNIX);
    CHECK(write(ends[1], "half", 4) == 4);
    wait_for(ends[0], POLLIN);
    ff_server_free(server);
    ff_client_free(client); /* connections go on */
    CHECK(threads() > 1);
    CHECK(write(ends[0], "unread", 6) == 6);
    wait_for(ends[1], POLLIN);
    close(ends[1]);
    CHECK(read_all(ends[0], &total) == -1 && errno == ECONNRESET && total == 4);
    close(ends[0]);
    for (i = 0; threads() > 1; i++) {
        CHECK(i < 2000);
        poll(NULL, 0, 10);
    }
    CHECK(lowest_free() == lowest);
    return 0;
}
