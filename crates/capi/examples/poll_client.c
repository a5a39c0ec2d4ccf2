/*
 * Several requests at one time in the program's own loop of poll(2).
 *
 *     cc -o poll_client poll_client.c $(pkg-config --cflags --libs firstflight)
 *     ./poll_client ADDRESS PORT [REQUESTS]
 */
#define _POSIX_C_SOURCE 200809L
#include <firstflight.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 32

static const char request[] = "GET / HTTP/1.0\r\n\r\n";

struct visit {
    ff_conn *conn; /* until it is connected */
    int fd;        /* from then on; -1 before, and when it is over */
    size_t sent;
};

static int fail(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, ff_strerror(error));
    exit(1);
}

/* The connect is over: the descriptor is an ordinary one from now on. */
static void connected(struct visit *visit)
{
    struct ff_outcome outcome;

    outcome.size = sizeof outcome;
    ff_conn_outcome(visit->conn, &outcome);
    printf("%s: %s\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason));
    if ((visit->fd = ff_conn_take_fd(visit->conn, &visit->sent)) < 0)
        fail("ff_conn_take_fd", visit->fd);
    ff_conn_free(visit->conn);
    visit->conn = NULL;
}

static void transfer(struct visit *visit, short revents)
{
    char answer[4096];
    ssize_t len;

    if (revents & POLLOUT && visit->sent < strlen(request)) {
        len = send(visit->fd, request + visit->sent, strlen(request) - visit->sent, MSG_NOSIGNAL);
        visit->sent += len > 0 ? (size_t)len : 0;
    }
    if (revents & (POLLIN | POLLHUP | POLLERR)) {
        len = read(visit->fd, answer, sizeof answer);
        if (len > 0) {
            fwrite(answer, 1, (size_t)len, stdout);
        } else {
            close(visit->fd);
            visit->fd = -1;
        }
    }
}

int main(int argc, char **argv)
{
    static struct visit visits[MOST];
    struct pollfd fds[MOST * FF_MOST_FDS];
    struct addrinfo hints, *addresses;
    ff_client *client;
    int i, error, open, number = argc > 3 ? atoi(argv[3]) : 2;

    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST; /* this lookup does not block */
    if (argc < 3 || number > MOST || getaddrinfo(argv[1], argv[2], &hints, &addresses) != 0) {
        fprintf(stderr, "usage: %s ADDRESS PORT [REQUESTS]\n", argv[0]);
        return 2;
    }
    if ((error = ff_client_new(NULL, &client)) < 0)
        fail("ff_client_new", error);
    for (i = 0; i < number; i++) {
        visits[i].fd = -1;
        error = ff_connect_start(client, addresses, argv[1], (const uint8_t *)request, strlen(request), FF_MAY_RUN_TWICE,
                                 &visits[i].conn);
        if (error < 0)
            fail("ff_connect_start", error);
    }
    do {
        size_t used = 0, count;
        int timeout = -1, own, at[MOST];

        for (i = 0; i < number; i++) {
            at[i] = (int)used;
            if (visits[i].conn != NULL) {
                count = FF_MOST_FDS;
                ff_conn_poll(visits[i].conn, fds + used, &count, &own);
                timeout = own >= 0 && (timeout < 0 || own < timeout) ? own : timeout;
                used += count;
            } else if (visits[i].fd >= 0) {
                fds[used].fd = visits[i].fd;
                fds[used].events = visits[i].sent < strlen(request) ? POLLIN | POLLOUT : POLLIN;
                used++;
            }
        }
        poll(fds, (nfds_t)used, timeout);
        for (i = open = 0; i < number; i++) {
            if (visits[i].conn != NULL) {
                if ((error = ff_conn_step(visits[i].conn)) < 0)
                    fail(argv[1], error);
                if (error == 1)
                    connected(&visits[i]);
            } else if (visits[i].fd >= 0) {
                transfer(&visits[i], fds[at[i]].revents);
            }
            open += visits[i].conn != NULL || visits[i].fd >= 0;
        }
    } while (open > 0);
    ff_client_free(client);
    freeaddrinfo(addresses);
    return 0;
}
