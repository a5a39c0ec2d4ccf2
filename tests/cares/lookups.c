/*
 * Lookups by TCP with c-ares 1.34, and how long each takes.
 *
 *     lookups off|own|ours SERVER COUNT
 *
 * off: no Fast Open. own: that of c-ares. ours: the client of libfirstflight, by ares_set_socket_functions_ex(). Each lookup has a channel
 * and so a connection of its own. Prints a line each: milliseconds, the connection's outcome and reason, or why it failed.
 */
#define _GNU_SOURCE
#include <ares.h>
#include <errno.h>
#include <firstflight.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A channel has one connection. */
static struct {
    ff_client *client;
    ff_conn *conn;
    int fd; /* the number by which c-ares knows the connection */
    int fast_open;
    struct pollfd wanted; /* by c-ares */
    unsigned char *query;
    size_t len;
    struct ff_outcome outcome;
} one;

static ares_socket_t open_socket(int domain, int type, int protocol, void *user)
{
    (void)user;
    return one.fd = socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

static int close_socket(ares_socket_t fd, void *user)
{
    (void)user;
    ff_conn_free(one.conn);
    one.conn = NULL;
    return close(fd);
}

static int set_option(ares_socket_t fd, ares_socket_opt_t option, const void *value, ares_socklen_t len, void *user)
{
    (void)fd, (void)value, (void)len, (void)user;
    if (option == ARES_SOCKET_OPT_TCP_FASTOPEN && one.fast_open)
        return 0;
    errno = ENOSYS;
    return -1;
}

/* With Fast Open, the connect comes with the query. */
static int connect_socket(ares_socket_t fd, const struct sockaddr *to, ares_socklen_t len, unsigned int flags, void *user)
{
    (void)user;
    return flags & ARES_SOCKET_CONN_TCP_FASTOPEN ? 0 : connect(fd, to, len);
}

static ares_ssize_t receive(ares_socket_t fd, void *buffer, size_t len, int flags, struct sockaddr *from, ares_socklen_t *from_len,
                            void *user)
{
    (void)user;
    if (one.conn != NULL) { /* it connects */
        errno = EAGAIN;
        return -1;
    }
    return recvfrom(fd, buffer, len, flags, from, from_len);
}

static ares_ssize_t send_to(ares_socket_t fd, const void *data, size_t len, int flags, const struct sockaddr *to, ares_socklen_t to_len,
                            void *user)
{
    struct addrinfo place;
    int result;

    (void)user;
    if (to == NULL || !one.fast_open)
        return sendto(fd, data, len, flags | MSG_NOSIGNAL, to, to_len);
    memset(&place, 0, sizeof place);
    place.ai_addr = (struct sockaddr *)(size_t)to;
    place.ai_addrlen = to_len;
    /* A query may run twice. */
    result = ff_connect_start(one.client, &place, NULL, (const uint8_t *)data, len, FF_MAY_RUN_TWICE, &one.conn);
    if (result == 0 && (result = ff_conn_step(one.conn)) >= 0) {
        one.query = (unsigned char *)realloc(one.query, len);
        memcpy(one.query, data, len);
        one.len = len;
        return (ares_ssize_t)len;
    }
    errno = -result;
    return -1;
}

static const struct ares_socket_functions_ex functions = {
    1, 0, open_socket, close_socket, set_option, connect_socket, receive, send_to, NULL, NULL, NULL, NULL,
};

static void wants(void *user, ares_socket_t fd, int readable, int writable)
{
    (void)user;
    one.wanted.fd = fd;
    one.wanted.events = (short)((readable ? POLLIN : 0) | (writable ? POLLOUT : 0));
}

/* The winner takes the place of the socket that c-ares knows. */
static void won(void)
{
    size_t sent = 0;
    int fd = ff_conn_take_fd(one.conn, &sent);

    one.outcome.size = sizeof one.outcome;
    ff_conn_outcome(one.conn, &one.outcome);
    ff_conn_free(one.conn);
    one.conn = NULL;
    if (fd < 0 || dup2(fd, one.fd) < 0 || send(fd, one.query + sent, one.len - sent, MSG_NOSIGNAL) < 0)
        perror("the winner");
    close(fd);
}

/* Until c-ares has no descriptor to wait for, or the lookup is over. */
static void run(ares_channel_t *channel, const int *over)
{
    while (!*over) {
        struct pollfd fds[FF_MOST_FDS];
        int i, count = 0, timeout = -1;
        struct timeval limit, *next = ares_timeout(channel, NULL, &limit);
        size_t ours = 0;

        if (one.conn != NULL) {
            ours = FF_MOST_FDS;
            ff_conn_poll(one.conn, fds, &ours, &timeout);
            count = (int)ours;
        } else if (one.wanted.events != 0) {
            fds[count++] = one.wanted;
        }
        if (next != NULL && (timeout < 0 || timeout > next->tv_sec * 1000 + next->tv_usec / 1000))
            timeout = (int)(next->tv_sec * 1000 + next->tv_usec / 1000) + 1;
        poll(fds, (nfds_t)count, timeout);
        if (one.conn != NULL) {
            int result = ff_conn_step(one.conn);

            if (result == 0) {
                ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
                continue;
            }
            if (result == 1)
                won();
            else {
                ff_conn_free(one.conn); /* c-ares finds a socket that is not connected */
                one.conn = NULL;
            }
            ares_process_fd(channel, one.fd, one.fd);
            continue;
        }
        for (i = 0; i < count; i++)
            ares_process_fd(channel, fds[i].revents & (POLLIN | POLLHUP | POLLERR) ? fds[i].fd : ARES_SOCKET_BAD,
                            fds[i].revents & POLLOUT ? fds[i].fd : ARES_SOCKET_BAD);
        if (count == 0)
            ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    }
}

static int over, failed;

static void answered(void *user, ares_status_t status, size_t timeouts, const ares_dns_record_t *record)
{
    (void)user, (void)timeouts, (void)record;
    over = 1;
    failed = status;
}

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    struct ares_options options;
    int i, count;

    if (argc != 4 || ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS || ff_client_new(NULL, &one.client) != 0)
        return 2;
    one.fast_open = strcmp(argv[1], "ours") == 0;
    count = atoi(argv[3]);
    memset(&options, 0, sizeof options);
    options.flags = ARES_FLAG_USEVC | ARES_FLAG_NOSEARCH;
    options.lookups = (char *)(size_t) "b";
    options.sock_state_cb = wants;
    for (i = 0; i < count; i++) {
        ares_channel_t *channel;
        double began;

        if (ares_init_options(&channel, &options, ARES_OPT_FLAGS | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB) != ARES_SUCCESS ||
            ares_set_servers_csv(channel, argv[2]) != ARES_SUCCESS ||
            (strcmp(argv[1], "own") != 0 && ares_set_socket_functions_ex(channel, &functions, NULL) != ARES_SUCCESS))
            return 2;
        memset(&one.outcome, 0, sizeof one.outcome);
        over = 0;
        began = now_ms();
        ares_query_dnsrec(channel, "www.example.com", ARES_CLASS_IN, ARES_REC_TYPE_A, answered, NULL, NULL);
        run(channel, &over);
        printf("%.1f %s %s %s\n", now_ms() - began, ff_outcome_name(one.outcome.outcome), ff_reason_name(one.outcome.reason),
               failed == ARES_SUCCESS ? "answered" : ares_strerror(failed));
        fflush(stdout);
        ares_destroy(channel);
    }
    ff_client_free(one.client);
    free(one.query);
    ares_library_cleanup();
    return 0;
}
