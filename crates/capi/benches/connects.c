/*
 * What a connect of a client costs beside bare sockets. This process is client and server.
 *
 *     valgrind --tool=callgrind --callgrind-out-file=/dev/null ./connects bare|client COUNT
 *     ./connects turns ROUNDS
 *
 * The first counts instructions: run it with two counts, and divide the difference of the instructions by that of the counts.
 * The second prints CPU time, of getrusage(2): medians over rounds of 100 connects of each kind in turn.
 */
#include "check.h"

#include <sys/resource.h>

static struct place place;
static ff_client *client;
static int listener;

static int bare_socket(size_t *sent)
{
    struct pollfd wait;
    ssize_t taken;

    CHECK((wait.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0);
    taken = sendto(wait.fd, REQUEST, LENGTH, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&place.at, sizeof place.at);
    CHECK(taken >= 0 || errno == EINPROGRESS);
    *sent = taken > 0 ? (size_t)taken : 0;
    wait.events = POLLOUT;
    CHECK(poll(&wait, 1, -1) == 1);
    return wait.fd;
}

static int clients_socket(size_t *sent)
{
    struct pollfd fds[FF_MOST_FDS];
    ff_conn *conn;
    int fd, timeout;

    CHECK(ff_connect_start(client, &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE, &conn) == 0);
    while (ff_conn_step(conn) == 0) {
        size_t used = FF_MOST_FDS;

        CHECK(ff_conn_poll(conn, fds, &used, &timeout) == 0);
        CHECK(poll(fds, (nfds_t)used, timeout) >= 0);
    }
    CHECK((fd = ff_conn_take_fd(conn, sent)) >= 0);
    ff_conn_free(conn);
    return fd;
}

static void visits(int bare, int count)
{
    while (count-- > 0) {
        struct pollfd wait;
        size_t sent = 0;
        char end;

        wait.fd = bare ? bare_socket(&sent) : clients_socket(&sent);
        CHECK(send(wait.fd, REQUEST + sent, LENGTH - sent, MSG_NOSIGNAL) == (ssize_t)(LENGTH - sent));
        serve(accept(listener, NULL, NULL));
        wait.events = POLLIN;
        CHECK(poll(&wait, 1, -1) == 1 && read(wait.fd, &end, 1) == 0);
        close(wait.fd);
    }
}

static double cpu_us(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return 1e6 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int smaller(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static void turns(int rounds)
{
    double *cost[2], *more = (double *)calloc((size_t)rounds, sizeof *more);
    int i, kind;

    cost[0] = (double *)calloc((size_t)rounds, sizeof **cost);
    cost[1] = (double *)calloc((size_t)rounds, sizeof **cost);
    CHECK(cost[0] != NULL && cost[1] != NULL && more != NULL);
    for (i = 0; i < rounds; i++) {
        for (kind = 0; kind < 2; kind++) {
            int bare = (kind + i) % 2;
            double before = cpu_us();

            visits(bare, 100);
            cost[bare][i] = (cpu_us() - before) / 100;
        }
        more[i] = cost[0][i] - cost[1][i];
    }
    qsort(cost[0], (size_t)rounds, sizeof **cost, smaller);
    qsort(cost[1], (size_t)rounds, sizeof **cost, smaller);
    qsort(more, (size_t)rounds, sizeof *more, smaller);
    printf("bare %.1f us, client %.1f us, more by %.1f us (medians of %d rounds of 100)\n", cost[1][rounds / 2], cost[0][rounds / 2],
           more[rounds / 2], rounds);
    free(cost[0]);
    free(cost[1]);
    free(more);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    listener = listen_here(&place, NULL, 0);
    CHECK(ff_client_new(NULL, &client) == 0);
    visits(1, 1); /* the cookie */
    if (strcmp(argv[1], "turns") == 0)
        turns(atoi(argv[2]));
    else
        visits(strcmp(argv[1], "bare") == 0, atoi(argv[2]));
    ff_client_free(client);
    close(listener);
    return 0;
}
