/* A client in a loop of poll(2), and blocking. */
#include "check.h"

static char last_line[512];
static int lines;

static void note(int level, const char *line, void *user)
{
    CHECK(user == (void *)last_line);
    CHECK(level == FF_LOG_ERROR || level == FF_LOG_INFO);
    snprintf(last_line, sizeof last_line, "%d %s", level, line);
    lines++;
    ff_set_log(note, user); /* it is allowed here */
}

static int wait_for(ff_conn *conn)
{
    struct pollfd fds[FF_MOST_FDS];
    size_t count;
    int timeout, result;

    while ((result = ff_conn_step(conn)) == 0) {
        count = FF_MOST_FDS;
        CHECK(ff_conn_poll(conn, fds, &count, &timeout) == 0);
        CHECK(count >= 1 && count <= FF_MOST_FDS);
        CHECK(timeout >= -1 && fds[0].events == POLLOUT);
        CHECK(poll(fds, (nfds_t)count, timeout) >= 0);
    }
    return result;
}

static ff_conn *start(const ff_client *client, const struct place *place, int safety)
{
    ff_conn *conn = NULL;

    CHECK(ff_connect_start(client, &place->info, "here", REQUEST, LENGTH, safety, &conn) == 0);
    return conn;
}

static void visit(const ff_client *client, const struct place *place, int listener, int safety, int result, int reason)
{
    struct pollfd fds[FF_MOST_FDS];
    struct ff_outcome outcome;
    size_t sent = 77, count = FF_MOST_FDS;
    char end;
    int fd, timeout;
    ff_conn *conn = start(client, place, safety);

    CHECK(wait_for(conn) == 1 && ff_conn_step(conn) == 1);
    CHECK(ff_conn_poll(conn, fds, &count, &timeout) == 0 && count == 0 && timeout == 0);
    outcome.size = sizeof outcome;
    CHECK(ff_conn_outcome(conn, &outcome) == (result == FF_OUTCOME_ACCEPTED));
    CHECK(outcome.outcome == result);
    CHECK(outcome.reason == reason);
    CHECK(outcome.confirmed == 1);
    CHECK((fd = ff_conn_take_fd(conn, &sent)) >= 0);
    CHECK(sent == (result == FF_OUTCOME_ACCEPTED ? LENGTH : 0));
    CHECK(ff_conn_take_fd(conn, &sent) == -EALREADY);
    ff_conn_free(conn); /* the descriptor stays open */
    CHECK(send(fd, REQUEST + sent, LENGTH - sent, MSG_NOSIGNAL) == (ssize_t)(LENGTH - sent));
    serve(accept(listener, NULL, NULL));
    fds[0].fd = fd;
    fds[0].events = POLLIN;
    CHECK(poll(fds, 1, -1) == 1 && read(fd, &end, 1) == 0);
    close(fd);
}

static void refused(const ff_client *client)
{
    struct place place;
    struct ff_outcome outcome;
    size_t sent;
    ff_conn *conn;

    close(listen_here(&place, NULL, 0));
    conn = start(client, &place, FF_MAY_RUN_TWICE);
    CHECK(wait_for(conn) == -ECONNREFUSED && ff_conn_step(conn) == -ECONNREFUSED);
    CHECK(ff_conn_take_fd(conn, &sent) == -ECONNREFUSED);
    CHECK(strncmp(last_line, "1 here: 127.0.0.1:", 18) == 0);
    ff_conn_free(conn);
    outcome.size = sizeof outcome;
    CHECK(ff_connect(client, &place.info, NULL, REQUEST, LENGTH, FF_RUN_ONCE, -1, &outcome) == -ECONNREFUSED);
    CHECK(outcome.outcome == FF_OUTCOME_UNDECIDED);
}

/* The first address of the list refuses, and the second one answers. */
static void second_address(const ff_client *client, struct place *place, int listener)
{
    struct place closed;
    char end;
    int fd;

    close(listen_here(&closed, NULL, 0));
    closed.info.ai_next = &place->info;
    fd = ff_connect(client, &closed.info, "two", REQUEST, LENGTH, FF_MAY_RUN_TWICE, 30000, NULL);
    CHECK(fd >= 0);
    CHECK(strncmp(last_line, "2 two: connected to ", 20) == 0);
    serve(accept(listener, NULL, NULL));
    CHECK(read(fd, &end, 1) == 0); /* it blocks */
    close(fd);
}

/* A server that does not answer: its queue of connections is full. */
static void no_answer(const ff_client *client)
{
    struct place place;
    int i, others[3], listener = listen_here(&place, NULL, 0);
    struct ff_outcome outcome;

    CHECK(listen(listener, 0) == 0);
    for (i = 0; i < 3; i++) {
        CHECK((others[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
        CHECK(connect(others[i], place.info.ai_addr, place.info.ai_addrlen) == -1 && errno == EINPROGRESS);
    }
    outcome.size = sizeof outcome;
    CHECK(ff_connect(client, &place.info, NULL, REQUEST, LENGTH, FF_RUN_ONCE, 50, &outcome) == -ETIMEDOUT);
    CHECK(outcome.outcome == FF_OUTCOME_UNDECIDED);
    /* The kernel has a cookie of this address: the data has left. */
    CHECK(ff_connect(client, &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE, 50, &outcome) == -ETIMEDOUT);
    CHECK(outcome.outcome == FF_OUTCOME_HANDSHAKE && outcome.reason == FF_REASON_UNKNOWN);
    for (i = 0; i < 3; i++)
        close(others[i]);
    close(listener);
}

/* Fast Open is off, by the options and by the environment. */
static void plain(const struct place *place, int listener)
{
    struct ff_client_options options;
    ff_client *client;
    int i;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    for (i = 0; i < 2; i++) {
        options.plain = i == 0;
        if (i == 1)
            setenv("FIRSTFLIGHT", "off", 1);
        CHECK(ff_client_new(&options, &client) == 0);
        visit(client, place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_HANDSHAKE, FF_REASON_NOT_REQUESTED);
        ff_client_free(client);
    }
    unsetenv("FIRSTFLIGHT");
}

/* A program that closes what is not its own gets an error, or another attempt. */
static void closed_under_us(const ff_client *client)
{
    struct place place;
    struct pollfd fds[FF_MOST_FDS];
    size_t count = FF_MOST_FDS;
    int timeout, result;
    ff_conn *conn;

    close(listen_here(&place, NULL, 0));
    place.at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    conn = start(client, &place, FF_MAY_RUN_TWICE);
    if (ff_conn_step(conn) == 0) {
        CHECK(ff_conn_poll(conn, fds, &count, &timeout) == 0);
        if (count > 0)
            close(fds[0].fd);
        result = wait_for(conn);
        CHECK(result == -EBADF || result == -ECONNREFUSED);
    }
    ff_conn_free(conn);
}

int main(void)
{
    static const uint8_t network[16] = {1};
    struct place place;
    int free_fd = lowest_free(), listener = listen_here(&place, NULL, 0);
    ff_client *client;
    ff_conn *conn;

    ff_set_log(note, last_line);
    CHECK(ff_client_new(NULL, &client) == 0);
    visit(client, &place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_HANDSHAKE, FF_REASON_NO_CREDENTIAL);
    visit(client, &place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_ACCEPTED, FF_REASON_NONE);
    CHECK(strstr(last_line, "the first flight was accepted") != NULL);
    visit(client, &place, listener, FF_RUN_ONCE, FF_OUTCOME_HANDSHAKE, FF_REASON_NOT_REPLAY_SAFE);
    refused(client);
    second_address(client, &place, listener);
    CHECK(ff_client_network_changed(client, network) == 0 && ff_client_network_changed(client, NULL) == 0);
    visit(client, &place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_ACCEPTED, FF_REASON_NONE);

    closed_under_us(client);
    no_answer(client);
    plain(&place, listener);
    CHECK(lines > 5);
    ff_set_log(NULL, NULL);
    lines = 0;

    /* A connect outlives its client, and ends with its sockets if it is freed under way. */
    conn = start(client, &place, FF_MAY_RUN_TWICE);
    ff_client_free(client);
    CHECK(wait_for(conn) == 1);
    ff_conn_free(conn);
    serve(accept(listener, NULL, NULL));
    CHECK(ff_client_new(NULL, &client) == 0);
    conn = start(client, &place, FF_RUN_ONCE);
    ff_conn_step(conn);
    ff_conn_free(conn);
    ff_client_free(client);
    CHECK(lines == 0);

    close(listener);
    CHECK(lowest_free() == free_fd && threads() == 1);
    return 0;
}
