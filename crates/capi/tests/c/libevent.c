/* A connect as events of libevent, which waits for the library's sockets and then for the program's own. */
#include "check.h"

#include <event2/event.h>

#define VISITS 3

struct visit {
    struct event_base *base;
    ff_conn *conn;
    int listener;
    struct event *events[FF_MOST_FDS + 1];
};

static int accepted, answered;

static void step(evutil_socket_t fd, short what, void *user);
static void serve_one(evutil_socket_t listener, short what, void *user);

/* The answer, or the end. */
static void answer(evutil_socket_t fd, short what, void *user)
{
    char end;

    CHECK(what == EV_READ && user == NULL);
    CHECK(read(fd, &end, 1) == 0);
    close(fd);
    answered++;
}

/* Waits for what the connect waits for. */
static void wait_for(struct visit *visit)
{
    struct pollfd fds[FF_MOST_FDS];
    struct timeval time;
    size_t i, count = FF_MOST_FDS;
    int timeout;

    CHECK(ff_conn_poll(visit->conn, fds, &count, &timeout) == 0);
    for (i = 0; i < count; i++) {
        CHECK((visit->events[i] = event_new(visit->base, fds[i].fd, EV_WRITE, step, visit)) != NULL);
        CHECK(event_add(visit->events[i], NULL) == 0);
    }
    time.tv_sec = timeout / 1000;
    time.tv_usec = timeout % 1000 * 1000;
    CHECK((visit->events[FF_MOST_FDS] = evtimer_new(visit->base, step, visit)) != NULL);
    CHECK(timeout < 0 || evtimer_add(visit->events[FF_MOST_FDS], &time) == 0);
}

static void step(evutil_socket_t fd, short what, void *user)
{
    struct visit *visit = (struct visit *)user;
    struct ff_outcome outcome;
    size_t i, sent;
    int result;

    (void)what;
    for (i = 0; i <= FF_MOST_FDS; i++) {
        if (visit->events[i] != NULL)
            event_free(visit->events[i]);
        visit->events[i] = NULL;
    }
    if ((result = ff_conn_step(visit->conn)) == 0) {
        wait_for(visit);
        return;
    }
    CHECK(result == 1);
    outcome.size = sizeof outcome;
    accepted += ff_conn_outcome(visit->conn, &outcome);
    CHECK((fd = ff_conn_take_fd(visit->conn, &sent)) >= 0);
    ff_conn_free(visit->conn);
    CHECK(send(fd, REQUEST + sent, LENGTH - sent, MSG_NOSIGNAL) == (ssize_t)(LENGTH - sent));
    CHECK(event_base_once(visit->base, fd, EV_READ, answer, NULL, NULL) == 0);
    /* It reads the whole request at once. */
    CHECK(event_base_once(visit->base, visit->listener, EV_READ, serve_one, NULL, NULL) == 0);
}

static void serve_one(evutil_socket_t listener, short what, void *user)
{
    (void)what;
    (void)user;
    serve(accept(listener, NULL, NULL));
}

int main(void)
{
    struct place place;
    struct event_base *base = event_base_new();
    struct visit visit;
    int i, listener = listen_here(&place, NULL, 0);
    ff_client *client;

    CHECK(base != NULL && ff_client_new(NULL, &client) == 0);
    for (i = 0; i < VISITS; i++) {
        memset(&visit, 0, sizeof visit);
        visit.base = base;
        CHECK(ff_connect_start(client, &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE, &visit.conn) == 0);
        visit.listener = listener;
        step(-1, 0, &visit);
        CHECK(event_base_dispatch(base) == 1); /* until there is no event */
    }
    CHECK(answered == VISITS && accepted == VISITS - 1);
    ff_client_free(client);
    event_base_free(base);
    close(listener);
    CHECK(threads() == 1);
    return 0;
}
