/*
 * Accepts one connection, and says what became of its first flight.
 *
 *     cc -o outcome outcome.c $(pkg-config --cflags --libs firstflight)
 *     ./outcome PORT
 *
 * Everything but two calls of the library is an ordinary server.
 */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <errno.h>
#include <firstflight.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int listen_at(int port)
{
    struct sockaddr_in at;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    at.sin_port = htons((unsigned short)port);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 16) != 0) {
        perror("listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct ff_outcome outcome;
    int result, fd, listener = listen_at(argc > 1 ? atoi(argv[1]) : 8080);

    result = ff_listen_prepare(listener, 256, NULL, 0);
    if (result < 0) {
        fprintf(stderr, "ff_listen_prepare: %s\n", ff_strerror(result));
        return 1;
    }
    if (result == 0)
        fprintf(stderr, "no first flights: sysctl net.ipv4.tcp_fastopen=3 allows them\n");
    printf("ready\n");
    fflush(stdout);
    do
        fd = accept(listener, NULL, NULL);
    while (fd < 0 && errno == EINTR);
    outcome.size = sizeof outcome;
    result = ff_fd_outcome(fd, FF_SERVER, &outcome);
    if (result < 0) {
        fprintf(stderr, "ff_fd_outcome: %s\n", ff_strerror(result));
        return 1;
    }
    printf("%s: %s, %u bytes in the SYN\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason),
           (unsigned)outcome.early_bytes);
    close(fd);
    close(listener);
    return 0;
}
