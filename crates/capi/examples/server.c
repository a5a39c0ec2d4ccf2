/*
 * A server that answers requests from the first packet at once, and keeps the others until the client's address is proved.
 *
 *     cc -o server server.c $(pkg-config --cflags --libs firstflight)
 *     ./server PORT [REQUESTS]
 */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <firstflight.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int listen_at(int port)
{
    struct sockaddr_in at;
    int one = 1, granted, fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    at.sin_port = htons((unsigned short)port);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        perror("bind");
        exit(1);
    }
    /* Before listen(), so that the first SYN is treated as all others. */
    granted = ff_listen_prepare(fd, 256, NULL, 0);
    if (granted < 0 || listen(fd, 128) != 0) {
        fprintf(stderr, "cannot listen: %s\n", granted < 0 ? ff_strerror(granted) : "listen");
        exit(1);
    }
    if (granted == 0)
        fprintf(stderr, "no first flights: sysctl net.ipv4.tcp_fastopen=3 allows them\n");
    return fd;
}

/* A GET may run twice. What else came in a SYN waits until the client's ACK shows that it is no copy. */
static int wait_until_confirmed(int fd)
{
    int confirmed;

    while ((confirmed = ff_fd_confirmed(fd)) == 0)
        poll(NULL, 0, 1);
    return confirmed;
}

static void answer(int fd)
{
    static const char page[] = "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello\n";
    struct ff_outcome outcome;
    char head[4096];
    ssize_t len = 0, more;

    outcome.size = sizeof outcome;
    if (ff_fd_outcome(fd, FF_SERVER, &outcome) >= 0)
        printf("%s: %s, %u bytes in the SYN\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason),
               (unsigned)outcome.early_bytes);
    fflush(stdout);
    do {
        more = read(fd, head + len, sizeof head - 1 - (size_t)len);
        len += more > 0 ? more : 0;
        head[len] = 0;
    } while (more > 0 && strstr(head, "\r\n\r\n") == NULL && (size_t)len < sizeof head - 1);
    if (strncmp(head, "GET ", 4) == 0 || wait_until_confirmed(fd) == 1)
        send(fd, page, strlen(page), MSG_NOSIGNAL);
    close(fd);
}

int main(int argc, char **argv)
{
    int fd, listener = listen_at(argc > 1 ? atoi(argv[1]) : 8080), number = argc > 2 ? atoi(argv[2]) : -1;

    printf("ready\n");
    fflush(stdout);
    while (number < 0 || number-- > 0)
        if ((fd = accept(listener, NULL, NULL)) >= 0)
            answer(fd);
    close(listener);
    return 0;
}
