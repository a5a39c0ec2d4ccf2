/*
 * What a connect of a client costs beside bare sockets: instructions of this process, which is client and server.
 *
 *     valgrind --tool=callgrind --callgrind-out-file=/dev/null ./connects bare|client COUNT
 *
 * Run it with two counts, and divide the difference of the instructions by that of the counts.
 */
#include "check.h"

int main(int argc, char **argv)
{
    struct place place;
    struct pollfd fds[FF_MOST_FDS];
    int i, listener, count, bare;
    ff_client *client;

    CHECK(argc == 3);
    bare = strcmp(argv[1], "bare") == 0;
    count = atoi(argv[2]);
    listener = listen_here(&place, NULL, 0);
    CHECK(ff_client_new(NULL, &client) == 0);
    for (i = 0; i < count; i++) {
        size_t sent = 0, used;
        int fd, timeout;
        char end;

        if (bare) {
            ssize_t taken;

            CHECK((fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0);
            taken = sendto(fd, REQUEST, LENGTH, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&place.at, sizeof place.at);
            CHECK(taken >= 0 || errno == EINPROGRESS);
            sent = taken > 0 ? (size_t)taken : 0;
            fds[0].fd = fd;
            fds[0].events = POLLOUT;
            CHECK(poll(fds, 1, -1) == 1);
        } else {
            ff_conn *conn;

            CHECK(ff_connect_start(client, &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE, &conn) == 0);
            while (ff_conn_step(conn) == 0) {
                used = FF_MOST_FDS;
                CHECK(ff_conn_poll(conn, fds, &used, &timeout) == 0);
                CHECK(poll(fds, (nfds_t)used, timeout) >= 0);
            }
            CHECK((fd = ff_conn_take_fd(conn, &sent)) >= 0);
            ff_conn_free(conn);
        }
        CHECK(send(fd, REQUEST + sent, LENGTH - sent, MSG_NOSIGNAL) == (ssize_t)(LENGTH - sent));
        serve(accept(listener, NULL, NULL));
        fds[0].fd = fd;
        fds[0].events = POLLIN;
        CHECK(poll(fds, 1, -1) == 1 && read(fd, &end, 1) == 0);
        close(fd);
    }
    ff_client_free(client);
    close(listener);
    return 0;
}
