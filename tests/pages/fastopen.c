/* Preloaded into a browser: every connect of a TCP socket uses the kernel's Fast Open.
 *
 * With TCP_FASTOPEN_CONNECT, connect() returns at once if the kernel has a cookie, and the first write sends the SYN with
 * the data (Linux 4.11). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
    static int (*next)(int, const struct sockaddr *, socklen_t);
    int type = 0, one = 1, before = errno;
    socklen_t size = sizeof type;

    if (!next)
        next = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    if ((to->sa_family == AF_INET || to->sa_family == AF_INET6) &&
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one);
    errno = before;
    return next(fd, to, length);
}
