/*
 * Sends a request with the first packet, and prints the answer.
 *
 *     cc -o blocking_client blocking_client.c $(pkg-config --cflags --libs firstflight)
 *     ./blocking_client HOST PORT [VISITS]
 *
 * On the second visit the kernel has a cookie, and the request rides in the SYN.
 */
#define _POSIX_C_SOURCE 200809L
#include <firstflight.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int visit(const ff_client *client, const struct addrinfo *addresses, const char *host)
{
    /* A GET may run twice without harm. */
    static const char request[] = "GET / HTTP/1.0\r\n\r\n";
    struct ff_outcome outcome;
    char answer[4096];
    ssize_t len;
    int fd;

    outcome.size = sizeof outcome;
    fd = ff_connect(client, addresses, host, (const uint8_t *)request, strlen(request), FF_MAY_RUN_TWICE, 10000, &outcome);
    if (fd < 0) {
        fprintf(stderr, "%s: %s\n", host, ff_strerror(fd));
        return 1;
    }
    printf("%s: %s, %u us\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason), (unsigned)outcome.rtt_us);
    while ((len = read(fd, answer, sizeof answer)) > 0)
        fwrite(answer, 1, (size_t)len, stdout);
    close(fd);
    return len < 0;
}

int main(int argc, char **argv)
{
    struct addrinfo hints, *addresses;
    ff_client *client;
    int error, failed = 0, visits = argc > 3 ? atoi(argv[3]) : 2;

    if (argc < 3) {
        fprintf(stderr, "usage: %s HOST PORT [VISITS]\n", argv[0]);
        return 2;
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if ((error = getaddrinfo(argv[1], argv[2], &hints, &addresses)) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(error));
        return 1;
    }
    if ((error = ff_client_new(NULL, &client)) < 0) {
        fprintf(stderr, "ff_client_new: %s\n", ff_strerror(error));
        return 1;
    }
    while (visits-- > 0 && !failed)
        failed = visit(client, addresses, argv[1]);
    ff_client_free(client);
    freeaddrinfo(addresses);
    return failed;
}
