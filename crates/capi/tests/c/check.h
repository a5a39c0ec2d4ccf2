/* What the programs of the tests have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <errno.h>
#include <firstflight.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

#define REQUEST ((const uint8_t *)"request")
#define LENGTH ((size_t)7)

/* An address of IPv4 on this host, as getaddrinfo() gives it. */
struct place {
    struct sockaddr_in at;
    struct addrinfo info;
};

static inline void set_place(struct place *place, int port)
{
    memset(place, 0, sizeof *place);
    place->at.sin_family = AF_INET;
    place->at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place->at.sin_port = htons((unsigned short)port);
    place->info.ai_addr = (struct sockaddr *)&place->at;
    place->info.ai_addrlen = sizeof place->at;
}

/* A socket that listens, and its place. */
static inline int listen_here(struct place *place, const uint8_t *keys, size_t keys_len)
{
    socklen_t len = sizeof place->at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    alarm(300); /* a program that hangs ends */
    set_place(place, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&place->at, sizeof place->at) == 0);
    CHECK(ff_listen_prepare(fd, 64, keys, keys_len) == 1);
    CHECK(listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&place->at, &len) == 0);
    return fd;
}

/* The lowest free descriptor: it is the same before and after what leaves none open. */
static inline int lowest_free(void)
{
    int fd = dup(0);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

/* How many threads this process has. */
static inline int threads(void)
{
    char line[256];
    int number = -1;
    FILE *status = fopen("/proc/self/status", "r");

    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "Threads: %d", &number) == 1)
            break;
    fclose(status);
    return number;
}

/* Reads the request, and closes. */
static inline void serve(int fd)
{
    char got[16];
    size_t len = 0;

    while (len < LENGTH) {
        ssize_t more = read(fd, got + len, sizeof got - len);

        CHECK(more > 0);
        len += (size_t)more;
    }
    CHECK(len == LENGTH && memcmp(got, REQUEST, LENGTH) == 0);
    close(fd);
}

#endif
