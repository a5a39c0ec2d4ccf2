/*
 * A server on the library's thread: the kernel's TCP, and UDP with certificates if a file of trusted verifiers is named.
 *
 *     cc -o own_server own_server.c $(pkg-config --cflags --libs firstflight)
 *     ./own_server ADDRESS:PORT [REQUESTS [TRUSTFILE]]
 *
 * SIGHUP reads the file again, and SIGTERM ends the server in order.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <firstflight.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t hangup, ending;

static void on_signal(int number)
{
    *(number == SIGHUP ? &hangup : &ending) = 1;
}

static void on_line(int level, const char *line, void *user)
{
    (void)level, (void)user;
    fprintf(stderr, "%s\n", line);
}

/* Descriptors of the library do not block. This one waits for one client at a time. */
static void answer(int fd, const struct ff_outcome *outcome)
{
    static const char page[] = "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello\n";
    struct pollfd wait;
    char head[4096] = "";
    size_t len = 0;
    ssize_t more = 1;

    wait.fd = fd;
    wait.events = POLLIN;
    while (more > 0 && strstr(head, "\r\n\r\n") == NULL && len < sizeof head - 1 && poll(&wait, 1, 10000) == 1)
        if ((more = read(fd, head + len, sizeof head - 1 - len)) > 0)
            len += (size_t)more;
    send(fd, page, strlen(page), MSG_NOSIGNAL);
    close(fd);
    printf("%s: %s, %u bytes in the SYN\n", ff_outcome_name(outcome->outcome), ff_reason_name(outcome->reason),
           (unsigned)outcome->early_bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int fd = 0, left = argc > 2 ? atoi(argv[2]) : -1;
    struct ff_server_options options;
    struct ff_outcome outcome;
    struct sigaction action;
    struct pollfd wait;
    ff_server *server;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.addresses = argc > 1 ? argv[1] : "0.0.0.0:8080";
    options.trust = argc > 3 ? argv[3] : NULL;
    options.queue = 256;
    options.safety = FF_MAY_RUN_TWICE; /* all requests are alike */
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    ff_set_log(on_line, NULL);
    if ((fd = ff_server_new(&options, &server)) < 0) {
        fprintf(stderr, "cannot listen: %s\n", ff_strerror(fd));
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    wait.fd = ff_server_fd(server);
    wait.events = POLLIN;
    outcome.size = sizeof outcome;
    do {
        if (hangup) {
            hangup = 0;
            ff_server_reload(server, NULL, 0);
        }
        if (ending)
            ff_server_drain(server);
        poll(&wait, 1, 1000);
        while ((fd = ff_server_accept(server, &outcome, NULL, NULL)) >= 0 && left != 0) {
            answer(fd, &outcome);
            left -= left > 0;
        }
    } while (fd != -ENOTCONN && left != 0);
    ff_server_free(server);
    return 0;
}
