/* A client on the library's thread connects by addresses and names, and a server gives connections; both end. */
#include "check.h"

static void set(struct ff_server_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->addresses = "127.0.0.1:8080";
    options->queue = 64;
    options->udp_port = -1;
    options->safety = FF_MAY_RUN_TWICE;
}

static int accepted(ff_server *server, struct ff_outcome *outcome)
{
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    struct pollfd wait;
    int fd;

    wait.fd = ff_server_fd(server);
    wait.events = POLLIN;
    CHECK(poll(&wait, 1, -1) == 1);
    outcome->size = sizeof *outcome;
    fd = ff_server_accept(server, outcome, (struct sockaddr *)&from, &len);
    CHECK(fd >= 0 && len == sizeof from && from.sin_family == AF_INET && ntohl(from.sin_addr.s_addr) == INADDR_LOOPBACK);
    return fd;
}

/* A descriptor of the library does not block. */
static void read_request(int fd)
{
    struct pollfd wait;

    wait.fd = fd;
    wait.events = POLLIN;
    CHECK(poll(&wait, 1, -1) == 1);
    serve(fd);
}

static int connected(ff_client *client, const struct addrinfo *at, const char *name, int safety, struct ff_outcome *outcome)
{
    struct pollfd fds[FF_MOST_FDS];
    size_t count, sent = 0;
    int fd, timeout, result;
    ff_conn *conn;

    CHECK(ff_connect_start(client, at, name, REQUEST, LENGTH, safety, &conn) == 0);
    while ((result = ff_conn_step(conn)) == 0) {
        count = FF_MOST_FDS;
        CHECK(ff_conn_poll(conn, fds, &count, &timeout) == 0 && count == 1 && fds[0].events == POLLIN && timeout == -1);
        CHECK(poll(fds, (nfds_t)count, timeout) == 1);
    }
    outcome->size = sizeof *outcome;
    CHECK(ff_conn_outcome(conn, outcome) >= 0);
    if (result == 1) {
        fd = ff_conn_take_fd(conn, &sent);
        CHECK(fd >= 0 && sent == LENGTH && ff_conn_take_fd(conn, &sent) == -EALREADY);
    } else {
        fd = result;
        CHECK(ff_conn_take_fd(conn, &sent) == result);
    }
    ff_conn_free(conn);
    return fd;
}

int main(void)
{
    struct ff_server_options options;
    struct ff_start_options start;
    struct ff_outcome ours, theirs;
    struct place place;
    uint8_t keys[32];
    ff_server *server = NULL, *other = NULL;
    ff_client *client = NULL;
    ff_conn *conn;
    int i, fd, status, lowest = lowest_free();

    alarm(300);
    set_place(&place, 8080);
    memset(keys, 7, sizeof keys);

    set(&options);
    options.safety = 0;
    CHECK(ff_server_new(&options, &server) == -EINVAL);
    set(&options);
    options.addresses = "here";
    CHECK(ff_server_new(&options, &server) == -EINVAL);
    set(&options);
    options.keys = keys;
    options.keys_len = 15;
    CHECK(ff_server_new(&options, &server) == -EINVAL);
    set(&options);
    options.udp_port = 0;
    options.trust = "/nowhere/trust.toml";
    CHECK(ff_server_new(&options, &server) == -EINVAL && server == NULL);
    CHECK(ff_server_new(NULL, &server) == -EINVAL && ff_server_new(&options, NULL) == -EINVAL);
    memset(&start, 0, sizeof start);
    start.size = sizeof start;
    start.verifier = "127.0.0.1:4433";
    CHECK(ff_client_start(&start, &client) == -EINVAL); /* without its key */
    start.verifier = NULL;
    start.plain = 2;
    CHECK(ff_client_start(&start, &client) == -EINVAL);
    start.plain = 0;
    start.memory = "/nowhere/memory";
    CHECK(ff_client_start(&start, &client) == -EIO && client == NULL);
    CHECK(ff_client_start(NULL, NULL) == -EINVAL);
    CHECK(threads() == 1 && lowest_free() == lowest);

    set(&options);
    options.keys = keys;
    options.keys_len = 16;
    CHECK(ff_server_new(&options, &server) == 0);
    CHECK(ff_server_new(&options, &other) == -EADDRINUSE && other == NULL);
    CHECK(ff_server_accept(server, NULL, NULL, NULL) == -EAGAIN && ff_server_accept(NULL, NULL, NULL, NULL) == -EINVAL);
    CHECK(ff_client_start(NULL, &client) == 0);

    /* The cookie, data in the SYN, a name, and keys that change: the old ones are the backup. */
    for (i = 0; i < 4; i++) {
        int cookie = i > 0;

        fd = connected(client, i == 2 ? NULL : &place.info, i == 2 ? "localhost:8080" : "www.example.com", FF_MAY_RUN_TWICE, &ours);
        CHECK(fd >= 0 && ours.accepted == cookie && ours.outcome == (cookie ? FF_OUTCOME_ACCEPTED : FF_OUTCOME_HANDSHAKE));
        read_request(accepted(server, &theirs));
        CHECK(theirs.early_bytes == (cookie ? LENGTH : 0) && theirs.accepted == cookie);
        close(fd);
        if (i == 2) {
            memset(keys, 8, 16);
            CHECK(ff_server_reload(server, keys, 32) == 0);
        }
    }
    CHECK(ff_server_reload(server, keys, 3) == -EINVAL && ff_server_reload(NULL, NULL, 0) == -EINVAL);
    CHECK(ff_server_reload(server, NULL, 0) == 0);

    /* What must not run twice waits for the handshake. */
    fd = connected(client, NULL, "127.0.0.1:8080", FF_RUN_ONCE, &ours);
    CHECK(fd >= 0 && ours.accepted == 0 && ours.reason == FF_REASON_NOT_REPLAY_SAFE);
    read_request(accepted(server, &theirs));
    close(fd);

    /* The connect that blocks. */
    fd = ff_connect(client, NULL, "localhost:8080", REQUEST, LENGTH, FF_MAY_RUN_TWICE, 60000, &ours);
    CHECK(fd >= 0 && ours.accepted == 1);
    read_request(accepted(server, &theirs));
    close(fd);

    CHECK(connected(client, NULL, "127.0.0.1:9", FF_MAY_RUN_TWICE, &ours) == -ECONNREFUSED);
    CHECK(connected(client, NULL, "no.such.name.invalid:80", FF_MAY_RUN_TWICE, &ours) == -EADDRNOTAVAIL);
    CHECK(ff_connect_start(client, NULL, "no port", NULL, 0, FF_RUN_ONCE, &conn) == -EADDRNOTAVAIL);
    CHECK(ff_client_network_changed(client, NULL) == 0);

    /* A child has no such thread; freeing disturbs nobody. */
    if (fork() == 0) {
        CHECK(ff_connect_start(client, NULL, "127.0.0.1:8080", NULL, 0, FF_RUN_ONCE, &conn) == -ECHILD);
        CHECK(ff_server_accept(server, NULL, NULL, NULL) == -ECHILD && ff_server_drain(server) == -ECHILD);
        ff_client_free(client);
        ff_server_free(server);
        CHECK(ff_client_start(NULL, &client) == 0);
        fd = ff_connect(client, NULL, "127.0.0.1:8080", REQUEST, LENGTH, FF_MAY_RUN_TWICE, 60000, &ours);
        CHECK(fd >= 0);
        close(fd);
        ff_client_free(client);
        /* At an exit, valgrind would take the memory of the parent's threads for lost. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(wait(&status) > 0 && status == 0);
    read_request(accepted(server, &theirs));

    /* A connection that the system made before the drain still comes. */
    fd = connected(client, &place.info, NULL, FF_MAY_RUN_TWICE, &ours);
    CHECK(fd >= 0 && ff_server_drain(server) == 0 && ff_server_drain(server) == 0);
    read_request(accepted(server, &theirs));
    close(fd);
    CHECK(connected(client, &place.info, NULL, FF_MAY_RUN_TWICE, &ours) == -ECONNREFUSED);
    {
        struct pollfd wait;

        wait.fd = ff_server_fd(server);
        wait.events = POLLIN;
        CHECK(poll(&wait, 1, -1) == 1);
    }
    CHECK(ff_server_accept(server, NULL, NULL, NULL) == -ENOTCONN);
    CHECK(threads() > 1);

    /* One that is given up. */
    CHECK(ff_connect_start(client, NULL, "127.0.0.1:8080", REQUEST, LENGTH, FF_RUN_ONCE, &conn) == 0);
    ff_conn_free(conn);
    ff_client_free(client);
    ff_server_free(server);
    ff_server_free(NULL);
    for (i = 0; threads() > 1 && i < 2000; i++) /* the functions that free wait for some seconds at most */
        poll(NULL, 0, 10);
    CHECK(threads() == 1 && lowest_free() == lowest);
    return 0;
}
