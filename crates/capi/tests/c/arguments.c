/* Wrong arguments of each function are errors, and change nothing. */
#include "check.h"

#include <limits.h>

int main(void)
{
    struct place place;
    struct ff_outcome outcome;
    struct ff_host host;
    struct ff_client_options options;
    struct pollfd fds[FF_MOST_FDS];
    struct sockaddr_in6 six;
    uint8_t bytes[32];
    size_t count = FF_MOST_FDS, sent;
    int timeout, tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), file = dup(0);
    ff_client *client = NULL;
    ff_conn *conn = NULL;

    memset(bytes, 1, sizeof bytes);
    memset(&six, 0, sizeof six);
    six.sin6_family = AF_INET6;
    set_place(&place, 9);
    CHECK(tcp >= 0 && udp >= 0 && file >= 0);

    outcome.size = sizeof outcome;
    CHECK(ff_fd_outcome(-1, FF_CLIENT, &outcome) == -EBADF);
    CHECK(ff_fd_outcome(INT_MIN, FF_CLIENT, &outcome) == -EBADF);
    CHECK(ff_fd_outcome(9999, FF_SERVER, &outcome) == -EBADF);
    CHECK(ff_fd_outcome(file, FF_CLIENT, &outcome) == -ENOTSOCK);
    CHECK(ff_fd_outcome(udp, FF_CLIENT, &outcome) < 0);
    CHECK(ff_fd_outcome(tcp, 0, &outcome) == -EINVAL);
    CHECK(ff_fd_outcome(tcp, FF_CLIENT, NULL) == -EINVAL);
    outcome.size = sizeof outcome - 1;
    CHECK(ff_fd_outcome(tcp, FF_CLIENT, &outcome) == -EINVAL);
    outcome.size = sizeof outcome;
    CHECK(ff_fd_outcome(tcp, FF_CLIENT, &outcome) == 0 && outcome.outcome == FF_OUTCOME_UNDECIDED);
    CHECK(outcome.size == sizeof outcome && outcome.confirmed == 0);

    CHECK(ff_fd_confirmed(-1) == -EBADF && ff_fd_confirmed(file) == -ENOTSOCK && ff_fd_confirmed(udp) < 0);
    CHECK(ff_fd_confirmed(tcp) == -ENOTCONN);

    CHECK(ff_fd_connect(tcp, NULL, sizeof place.at, NULL, 0, FF_RUN_ONCE) == -EINVAL);
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, 0, NULL, 0, FF_RUN_ONCE) == -EINVAL);
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, 4096, NULL, 0, FF_RUN_ONCE) == -EINVAL);
    CHECK(ff_fd_connect(tcp, (struct sockaddr *)&six, sizeof place.at, NULL, 0, FF_RUN_ONCE) == -EINVAL);
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, sizeof place.at, NULL, 0, 0) == -EINVAL);
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, sizeof place.at, NULL, 1, FF_RUN_ONCE) == -EINVAL);
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, sizeof place.at, bytes, SIZE_MAX, FF_MAY_RUN_TWICE) == -EMSGSIZE);
    CHECK(ff_fd_connect(-1, place.info.ai_addr, sizeof place.at, NULL, 0, FF_RUN_ONCE) == -EBADF);
    place.at.sin_family = AF_UNIX;
    CHECK(ff_fd_connect(tcp, place.info.ai_addr, sizeof place.at, NULL, 0, FF_RUN_ONCE) == -EAFNOSUPPORT);

    CHECK(ff_listen_prepare(-1, 1, NULL, 0) == -EBADF && ff_listen_prepare(file, 1, NULL, 0) == -ENOTSOCK);
    CHECK(ff_listen_prepare(udp, 1, NULL, 0) < 0);
    CHECK(ff_listen_prepare(tcp, 1, bytes, 15) == -EINVAL && ff_listen_prepare(tcp, 1, NULL, 16) == -EINVAL);
    CHECK(ff_listen_set_keys(tcp, NULL, 0) == -EINVAL && ff_listen_set_keys(tcp, bytes, 31) == -EINVAL);
    CHECK(ff_listen_set_keys(-1, bytes, 16) == -EBADF && ff_listen_set_keys(tcp, bytes, 32) == 0);

    host.size = 3;
    CHECK(ff_host_check(NULL) == -EINVAL && ff_host_check(&host) == -EINVAL);
    host.size = sizeof host;
    CHECK(ff_host_check(&host) == 0 && host.client == 1 && host.server == 1 && host.without_cookie == 0);

    options.size = 1;
    options.network = NULL;
    options.plain = options.reserved = 0;
    CHECK(ff_client_new(NULL, NULL) == -EINVAL && ff_client_new(&options, &client) == -EINVAL && client == NULL);
    options.size = sizeof options;
    options.reserved = 1;
    CHECK(ff_client_new(&options, &client) == -EINVAL);
    options.reserved = 0;
    options.plain = 2;
    CHECK(ff_client_new(&options, &client) == -EINVAL && client == NULL);
    options.plain = 0;
    CHECK(ff_client_new(&options, &client) == 0 && client != NULL);
    CHECK(ff_client_network_changed(NULL, NULL) == -EINVAL && ff_client_network_changed(client, bytes) == 0);
    CHECK(ff_network_id(NULL) == -EINVAL);
    CHECK(ff_network_id(bytes) == -ENOENT); /* there is no gateway */

    CHECK(ff_connect_start(client, &place.info, NULL, NULL, 0, FF_RUN_ONCE, &conn) == -EADDRNOTAVAIL);
    place.at.sin_family = AF_INET;
    CHECK(ff_connect_start(client, NULL, NULL, NULL, 0, FF_RUN_ONCE, &conn) == -EADDRNOTAVAIL);
    CHECK(ff_connect_start(NULL, &place.info, NULL, NULL, 0, FF_RUN_ONCE, &conn) == -EINVAL);
    CHECK(ff_connect_start(client, &place.info, NULL, NULL, 0, FF_RUN_ONCE, NULL) == -EINVAL);
    CHECK(ff_connect_start(client, &place.info, NULL, NULL, 0, 3, &conn) == -EINVAL);
    CHECK(ff_connect_start(client, &place.info, NULL, NULL, 1, FF_RUN_ONCE, &conn) == -EINVAL && conn == NULL);
    CHECK(ff_connect_start(client, &place.info, "\xff\xfe", bytes, 1, FF_RUN_ONCE, &conn) == 0 && conn != NULL);

    CHECK(ff_conn_poll(NULL, fds, &count, &timeout) == -EINVAL && ff_conn_poll(conn, NULL, &count, &timeout) == -EINVAL);
    CHECK(ff_conn_poll(conn, fds, NULL, &timeout) == -EINVAL && ff_conn_poll(conn, fds, &count, NULL) == -EINVAL);
    count = FF_MOST_FDS - 1;
    CHECK(ff_conn_poll(conn, fds, &count, &timeout) == -EINVAL && count == FF_MOST_FDS - 1);
    count = FF_MOST_FDS;
    CHECK(ff_conn_poll(conn, fds, &count, &timeout) == 0 && count == 0 && timeout == 0);
    CHECK(ff_conn_step(NULL) == -EINVAL);
    CHECK(ff_conn_take_fd(NULL, &sent) == -EINVAL && ff_conn_take_fd(conn, NULL) == -EINVAL);
    CHECK(ff_conn_take_fd(conn, &sent) == -EBUSY);
    CHECK(ff_conn_outcome(NULL, &outcome) == -EINVAL && ff_conn_outcome(conn, NULL) == -EINVAL);
    CHECK(ff_conn_outcome(conn, &outcome) == 0 && outcome.outcome == FF_OUTCOME_UNDECIDED);
    ff_conn_free(conn);
    outcome.size = 1;
    CHECK(ff_connect(client, &place.info, NULL, NULL, 0, FF_RUN_ONCE, 1000, &outcome) == -EINVAL);
    CHECK(ff_connect(NULL, &place.info, NULL, NULL, 0, FF_RUN_ONCE, 1000, NULL) == -EINVAL);
    ff_client_free(client);
    ff_client_free(NULL);
    ff_conn_free(NULL);
    close(tcp);
    close(udp);
    close(file);
    return 0;
}
