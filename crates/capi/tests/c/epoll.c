/* Connects in a loop of epoll(7), edge-triggered: sockets are added after each step, and taken out before the next one. */
#include "check.h"

#include <sys/epoll.h>

#define CONNECTS 8

static int loop;

/* Waits for the sockets of a connect, or for its time. */
static void wait_for_events(const ff_conn *conn, struct pollfd fds[FF_MOST_FDS], size_t *count)
{
    struct epoll_event event;
    size_t i;
    int timeout;

    *count = FF_MOST_FDS;
    CHECK(ff_conn_poll(conn, fds, count, &timeout) == 0);
    for (i = 0; i < *count; i++) {
        memset(&event, 0, sizeof event);
        event.events = EPOLLOUT | EPOLLET;
        CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fds[i].fd, &event) == 0);
    }
    CHECK(epoll_wait(loop, &event, 1, timeout) >= 0);
    for (i = 0; i < *count; i++)
        CHECK(epoll_ctl(loop, EPOLL_CTL_DEL, fds[i].fd, &event) == 0);
}

int main(void)
{
    struct place place, closed;
    struct pollfd fds[FF_MOST_FDS];
    int i, fd, result, accepted = 0, free_fd = lowest_free(), listener = listen_here(&place, NULL, 0);
    ff_client *client;
    ff_conn *conn;

    close(listen_here(&closed, NULL, 0));
    closed.info.ai_next = &place.info;
    CHECK((loop = epoll_create1(0)) >= 0 && ff_client_new(NULL, &client) == 0);
    for (i = 0; i < CONNECTS; i++) {
        size_t sent, count;
        struct ff_outcome outcome;

        /* The last one has an address that refuses in front. */
        CHECK(ff_connect_start(client, i == CONNECTS - 1 ? &closed.info : &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE,
                               &conn) == 0);
        while ((result = ff_conn_step(conn)) == 0)
            wait_for_events(conn, fds, &count);
        CHECK(result == 1);
        outcome.size = sizeof outcome;
        accepted += ff_conn_outcome(conn, &outcome);
        CHECK((fd = ff_conn_take_fd(conn, &sent)) >= 0);
        CHECK(send(fd, REQUEST + sent, LENGTH - sent, MSG_NOSIGNAL) == (ssize_t)(LENGTH - sent));
        serve(accept(listener, NULL, NULL));
        close(fd);
        ff_conn_free(conn);
    }
    /* The first one fetched the cookie; the last one began at the other address. */
    CHECK(accepted == CONNECTS - 2);
    ff_client_free(client);
    close(loop);
    close(listener);
    CHECK(lowest_free() == free_fd && threads() == 1);
    return 0;
}
