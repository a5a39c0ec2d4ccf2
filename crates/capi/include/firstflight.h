/*
 * libfirstflight: first flights of the kernel's TCP.
 *
 * A first flight is what a client sends before it has heard of the server: with TCP Fast Open (RFC 7413) the SYN carries the
 * request. This library connects so, and says at both ends what became of the data, and why. It needs Linux; on other Unix
 * systems connects are ordinary ones, and functions that ask the kernel return -ENOTSUP.
 *
 * Rules that hold for every function:
 *
 * - Functions that return int return a number >= 0, or a negative error number: -EINVAL. ff_strerror() has a sentence for it.
 * - A pointer must not be NULL unless its function says so, and must have as many bytes as its function says. What an argument
 *   points to is used during the call only.
 * - A structure begins with its size. Set it to sizeof before the call: struct ff_outcome o; o.size = sizeof o;. So programs and
 *   libraries of different versions fit together. Members that an older library does not know become 0.
 * - A descriptor is one of the caller's sockets. It must stay open during the call, and stays the caller's.
 * - No function starts a thread, except ff_client_start() and ff_server_new(). None installs a signal handler, or raises SIGPIPE.
 *   After fork(), parent and child each have their own client and connects; a connect under way has the same sockets in both, so
 *   only one of them goes on with it.
 * - Texts that functions return stay valid until the program ends, and are not freed.
 * - A fault inside the library ends the call with -ENOTRECOVERABLE, and not the program.
 *
 * Different threads may call all functions at the same time, except that one ff_conn is used by one thread at a time, and that
 * an object is not used while, or after, it is freed.
 */
#ifndef FIRSTFLIGHT_H
#define FIRSTFLIGHT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct addrinfo; /* <netdb.h> */
struct pollfd;   /* <poll.h> */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions and words ---- */

/* The interface of this header. It changes when programs have to be compiled again, and with it the soname. */
#define FF_ABI 0

/* The interface of the library that is loaded: the same as FF_ABI. */
int ff_abi(void);

/* The version of the library that is loaded: "0.1.0". */
const char *ff_version(void);

/* A sentence for a negative result, or for an error number of errno(3). Never NULL. */
const char *ff_strerror(int error);

/* What became of a first flight. */
#define FF_OUTCOME_UNDECIDED 0               /* no answer yet */
#define FF_OUTCOME_ACCEPTED 1                /* the data skipped the handshake */
#define FF_OUTCOME_ACCEPTED_REPLY_STRIPPED 2 /* so it did, and something on the path removed the server's option */
#define FF_OUTCOME_ACCEPTED_PART 3           /* a part of it did, and the rest followed */
#define FF_OUTCOME_HANDSHAKE 4               /* an ordinary handshake, for a reason */

/* The name of FF_OUTCOME_...: "accepted". "?" for another number. */
const char *ff_outcome_name(int outcome);

/*
 * Why a first flight was not accepted, or what was unusual. The numbers stay as they are. A later library may return others.
 * Many do not occur on the kernel's TCP. With FF_REASON_UNKNOWN the server may have run the data, or not.
 */
#define FF_REASON_NONE 0
#define FF_REASON_NOT_REQUESTED                1 /* the application did not ask for it */
#define FF_REASON_NO_CREDENTIAL                2 /* the client has no credential for this server yet, and asks for one */
#define FF_REASON_STALE_OR_WRONG_CREDENTIAL    3 /* the server did not recognise the credential: too old, or for another address or server */
#define FF_REASON_DATA_NOT_ACKNOWLEDGED        4 /* the SYN-ACK acknowledged the SYN, but none of its data */
#define FF_REASON_DATA_PARTLY_ACKNOWLEDGED     5 /* the SYN-ACK acknowledged only a part of the data in the SYN */
#define FF_REASON_OPTION_STRIPPED              6 /* something on the path removed the option from the SYN */
#define FF_REASON_SYN_TIMED_OUT                7 /* the SYN with data got no answer, and a plain SYN was sent instead */
#define FF_REASON_POLICY                       8 /* the listener or the connection is configured not to */
#define FF_REASON_REPLAY                       9 /* the credential or the first flight was seen before */
#define FF_REASON_UNTRUSTED_VERIFIER          10 /* the server does not trust the verifier that signed the certificate */
#define FF_REASON_EXPIRED                     11 /* the credential has expired */
#define FF_REASON_CLOCK_SKEW                  12 /* the clocks are too far apart, or too uncertain, to judge the credential's age */
#define FF_REASON_OVERLOADED                  13 /* the server had no time to verify the credential, or no room for the first flight */
#define FF_REASON_STORE_UNAVAILABLE           14 /* the farm's shared store gave no answer in time */
#define FF_REASON_PENDING_LIMIT               15 /* too many first flights of the listener still wait for their client's ACK */
#define FF_REASON_CLIENT_LIMIT                16 /* too many first flights from this client's prefix still wait for their ACK */
#define FF_REASON_SERVER_LIMIT                17 /* too many first flights of the whole server still wait for their client's ACK */
#define FF_REASON_NOT_ACTIVE                  18 /* the one-time cookie was granted in a handshake that is not complete */
#define FF_REASON_SYN_COOKIE                  19 /* the server answered with a SYN cookie: under SYN pressure, or to a forged credential */
#define FF_REASON_NO_DATA                     20 /* the SYN carried a credential but no data */
#define FF_REASON_DEFERRED_TOO_LONG           21 /* the verification was not finished before its deadline */
#define FF_REASON_REPLY_STRIPPED              22 /* something on the path removed the option from the SYN-ACK */
#define FF_REASON_ACK_INSIDE                  23 /* the SYN-ACK acknowledged a number inside the credential */
#define FF_REASON_OVERLAP_BLACKHOLE           24 /* the path drops segments that repeat sequence numbers with other bytes */
#define FF_REASON_ADDRESS_MISMATCH            25 /* the credential was given to another address than the one it came from */
#define FF_REASON_WRONG_IDENTITY              26 /* the first flight was meant for a server of another identity */
#define FF_REASON_GUARD_FLOOR                 27 /* the first flight is older than the replay guard's memory */
#define FF_REASON_CAPABILITY_UNKNOWN          28 /* it is not known whether the server understands the credential */
#define FF_REASON_PEER_WITHOUT_FAST_OPEN      29 /* the server was asked for a cookie and granted none */
#define FF_REASON_SIMULTANEOUS_OPEN           30 /* both ends opened at the same time */
#define FF_REASON_FAILURE_MEMORY              31 /* first flights to this server on this network failed lately */
#define FF_REASON_MESSAGE_TOO_LARGE           32 /* none of the data fits into the SYN */
#define FF_REASON_BAD_SIGNATURE               33 /* a signature of the credential is wrong */
#define FF_REASON_MALFORMED                   34 /* the option or the credential is malformed */
#define FF_REASON_PEER_MISBEHAVED             35 /* the server's answer contradicts itself */
#define FF_REASON_UNKNOWN                     36 /* no SYN-ACK said whether the server took the data: it may have, or not */
#define FF_REASON_NOT_REPLAY_SAFE             37 /* the data must not be executed twice, so it waited for the handshake */
#define FF_REASON_NOT_FIRST_ADDRESS           38 /* another of the server's addresses was tried first, and only that SYN may carry the data */
#define FF_REASON_OLD_CONNECTION              39 /* the SYN met an earlier connection of the same ports at the server, and a plain SYN was sent instead */
#define FF_REASON_SYN_REFUSED                 40 /* a RST or an ICMP error answered the SYN with the option or data, and a plain SYN was sent instead */
#define FF_REASON_PATH_TOO_SMALL              41 /* the SYN with data was larger than the path passes, and a smaller SYN was sent instead */
#define FF_REASON_BARRED                      42 /* the client's key or address is barred for a while, after resets or wrong signatures */
#define FF_REASON_NETWORK_LIMIT               43 /* the share of the client's network in the server's time for signatures is used up */
#define FF_REASON_SYSTEM_DISABLED             44 /* the system's settings switch Fast Open off, or the system does so for a while */
#define FF_REASON_ACCEPTED_PART               45 /* the SYN had room for a part of the data, and the rest followed after the handshake */

/* The name of FF_REASON_...: "no-credential", "none" for FF_REASON_NONE, "?" for another number. */
const char *ff_reason_name(int reason);

/* A sentence for FF_REASON_...: empty for FF_REASON_NONE, "?" for another number. */
const char *ff_reason_text(int reason);

/* Levels of lines. */
#define FF_LOG_ERROR 1 /* a connect failed, and why */
#define FF_LOG_INFO 2  /* a connect succeeded, with the outcome of its first flight */

/* Gets a line, without a line feed at its end. The line is valid during the call. */
typedef void (*ff_log)(int level, const char *line, void *user);

/*
 * Lines about connects of clients go to call, with user; to nowhere if call is NULL, which is the default. It is called by the
 * threads that call the library, from within these calls, so that several may call it at the same time. It must not jump out
 * (longjmp, a C++ exception), and must not use the ff_conn or free the ff_client of the call that it is called from.
 */
void ff_set_log(ff_log call, void *user);

/* ---- Any descriptor: no state is kept ---- */

/* Whose end of a connection. */
#define FF_CLIENT 1
#define FF_SERVER 2

/*
 * Whether a server may run data twice. A cookie does not prove that a SYN is new: if the network duplicates a SYN with data, the
 * server may run it twice (RFC 7413, section 6.1). Only data that may run twice rides in a SYN; the other data waits for the
 * handshake.
 */
#define FF_MAY_RUN_TWICE 1
#define FF_RUN_ONCE 2

struct ff_outcome {
    size_t size;              /* sizeof(struct ff_outcome), set by the caller */
    int32_t outcome;          /* FF_OUTCOME_... */
    int32_t reason;           /* FF_REASON_... */
    int32_t accepted;         /* 1 if the data, or a part of it, skipped the handshake */
    int32_t confirmed;        /* 1 if the handshake is complete: see ff_fd_confirmed() */
    uint32_t early_bytes;     /* server: how many bytes at the beginning of the stream arrived in the SYN */
    uint32_t rtt_us;          /* smoothed round-trip time, microseconds; 0 before the first measurement */
    uint32_t rttvar_us;       /* its variation, microseconds */
    uint32_t retransmissions; /* segments sent again since the connection began, SYNs among them */
};

/*
 * What became of the first flight of a connection, whoever made it. fd is a TCP socket, and side says whose end it is. Returns 1 if
 * the data, or a part of it, was accepted, and else 0; *outcome has more.
 *
 * FF_SERVER: call it once, soon after accept(). The kernel gives the headers of a SYN once; without them, early bytes and reasons are
 * less exact. It keeps them if ff_listen_prepare() was called on the listener before the SYN came; otherwise the reason of an
 * ordinary handshake is FF_REASON_UNKNOWN. FF_REASON_STALE_OR_WRONG_CREDENTIAL stands for a full queue of the listener, too.
 * FF_CLIENT: FF_OUTCOME_UNDECIDED until the handshake is complete, and of a connection that is over. Without a trace of Fast Open
 * the reason is FF_REASON_SYSTEM_DISABLED if net.ipv4.tcp_fastopen switches it off, or else FF_REASON_NOT_REQUESTED. A part
 * that was accepted counts as FF_OUTCOME_ACCEPTED.
 *
 * Errors: -EINVAL if side or the structure's size is wrong; -EBADF, -ENOTSOCK; -EOPNOTSUPP or -ENOPROTOOPT if it is not TCP.
 */
int ff_fd_outcome(int fd, int side, struct ff_outcome *outcome);

/*
 * Server: 1 if the client's ACK has completed the handshake, 0 if not yet. Until then everything that was read arrived in the SYN,
 * and may be a copy that the network made: a server that must not run it twice waits. The socket is writable before that, so
 * POLLOUT of poll(2) does not tell: ask again after a short wait. epoll(7) with EPOLLET reports EPOLLOUT once more when the ACK
 * arrives.
 *
 * Errors: -ENOTCONN if the connection is over, or never was one; -EBADF, -ENOTSOCK, as ff_fd_outcome().
 */
int ff_fd_confirmed(int fd);

/*
 * Connects fd, a TCP socket that is not connected, to address, an IPv4 or IPv6 address of address_len bytes. data (len bytes; NULL
 * is allowed if len is 0) rides in the SYN if safety is FF_MAY_RUN_TWICE and the kernel has a cookie for the server. Otherwise the
 * SYN asks for a cookie. Where the system has no Fast Open, this is connect(2).
 *
 * Returns how many bytes of data the kernel has taken: send the rest when the socket is connected. If the socket does not block,
 * the connect goes on: wait for POLLOUT, and read SO_ERROR, as after connect(2) with EINPROGRESS, which is no error here. If the
 * socket blocks, so does this function, until the handshake is complete.
 *
 * A path that drops SYNs with data, or a server that is slow to answer, costs time here. ff_connect_start() does not have that
 * weakness.
 *
 * Errors: -EINVAL if safety or an address is wrong, -EAFNOSUPPORT; those of connect(2).
 */
int ff_fd_connect(int fd, const struct sockaddr *address, socklen_t address_len, const uint8_t *data, size_t len, int safety);

/*
 * Lets a TCP socket that listens, or will listen, grant cookies, and take data in the SYNs of clients that have one. Connections with
 * such data can be accepted before their handshake is complete. At most queue of them wait for their ACK at one time; others get
 * an ordinary handshake, and 0 switches Fast Open off. keys are those of the cookies: NULL and 0 for the network namespace's, 16
 * bytes, or 32 bytes with a backup key; all servers of a farm need the same.
 *
 * Returns 1 if the namespace lets listeners grant cookies, or 0 if net.ipv4.tcp_fastopen lacks the bit 2: then every handshake is an
 * ordinary one until the administrator sets it.
 *
 * Errors: -EINVAL if keys_len is wrong; -EBADF, -ENOTSOCK, -ENOPROTOOPT.
 */
int ff_listen_prepare(int fd, uint32_t queue, const uint8_t *keys, size_t keys_len);

/*
 * Replaces the keys of a listener's cookies, from the next SYN on: 16 bytes, or 32 bytes with a backup key. To lose no cookie, give
 * all servers of a farm the new key as the backup first.
 *
 * Errors: as ff_listen_prepare().
 */
int ff_listen_set_keys(int fd, const uint8_t *keys, size_t keys_len);

struct ff_host {
    size_t size;            /* sizeof(struct ff_host), set by the caller */
    int32_t client;         /* 1 if connects may use Fast Open (net.ipv4.tcp_fastopen, bit 1) */
    int32_t server;         /* 1 if listeners may (bit 2) */
    int32_t without_cookie; /* 1 if connects send data without a cookie (bit 4) */
    uint32_t blackhole_secs; /* for how long the kernel stops Fast Open at first after a black hole, seconds; 0: it does not */
};

/*
 * What the network namespace lets TCP do: the first question when every outcome is FF_OUTCOME_HANDSHAKE. Returns 0.
 *
 * Errors: -EINVAL if the structure's size is wrong; -ENOENT if the kernel has no Fast Open, or /proc is not mounted.
 */
int ff_host_check(struct ff_host *host);

/* ---- A client that remembers servers and paths ---- */

/*
 * What is known of servers: where first flights failed, round-trip times, addresses that lost. It is in memory only. The cookies
 * are the kernel's.
 */
typedef struct ff_client ff_client;

/* A connect. */
typedef struct ff_conn ff_conn;

struct ff_client_options {
    size_t size;            /* sizeof(struct ff_client_options), set by the caller */
    const uint8_t *network; /* 16 bytes: the id of the network that the host is on; NULL: not known */
    int32_t plain;          /* 1: all connects are ordinary ones, as with FIRSTFLIGHT=off in the environment; else 0 */
    int32_t reserved;       /* 0 */
};

/*
 * Makes a client, and stores it in *out. options may be NULL, which is all zeros. What is learnt on one network is not used on another. Free it with
 * ff_client_free(). Returns 0.
 *
 * Errors: -EINVAL.
 */
int ff_client_new(const struct ff_client_options *options, ff_client **out);

/* Frees a client; NULL is allowed. Its connects go on. */
void ff_client_free(ff_client *client);

/*
 * Reports that the host is on another network: one with an id of 16 bytes, or, with NULL, one that is not known. What was learnt on a
 * network that is not known is forgotten. Returns 0.
 *
 * Errors: -EINVAL.
 */
int ff_client_network_changed(const ff_client *client, const uint8_t *network);

/*
 * Stores the id of the network of the default route in the 16 bytes at out. It follows from the gateway's link-layer address, and has
 * no meaning outside this host. Returns 0. If the gateway's address is not known yet, it sends one empty UDP datagram to the
 * gateway, and blocks for at most 200 ms.
 *
 * Errors: -ENOENT if it cannot be found out, for example without a gateway.
 */
int ff_network_id(uint8_t *out);

/* How many descriptors ff_conn_poll() asks for at most. */
#define FF_MOST_FDS 2

/* How many addresses of a list are used; those behind them are not. */
#define FF_MOST_ADDRESSES 64

/*
 * Begins a connect to the first of addresses that answers, and stores it in *out. addresses is a list as getaddrinfo(3) makes it, best
 * one first, of which ai_addr, ai_addrlen and ai_next are used. name is for lines of the log, and may be NULL. data (len bytes; NULL
 * is allowed if len is 0) is copied: what the server gets first. safety says whether it may run twice: FF_MAY_RUN_TWICE or
 * FF_RUN_ONCE. Nothing is sent before the first ff_conn_step(). Returns 0.
 *
 * The first attempt uses Fast Open, unless that failed at this server and network lately. If it has no answer after twice the
 * round-trip time (50 ms to 1 s; 1 s if that is not known), an ordinary SYN follows from another port. Addresses race as RFC 8305
 * says, two attempts at a time; only the first attempt carries data.
 *
 * Errors: -EINVAL, -EADDRNOTAVAIL if there is no address of IPv4 or IPv6, -EMSGSIZE if data is longer than INT_MAX.
 */
int ff_connect_start(const ff_client *client, const struct addrinfo *addresses, const char *name, const uint8_t *data, size_t len,
                     int safety, ff_conn **out);

/*
 * What to wait for before the next ff_conn_step(). fds has room for *count entries, at least FF_MOST_FDS. Sets *count to how many are
 * used, with fd and events of poll(2), and *timeout_ms to the longest wait, -1 for no limit. Ask again after each step: sockets come
 * and go. They belong to the connect: wait for them, and do not close them. Before the first step, and when the connect is over, *timeout_ms is 0. Returns 0.
 *
 * Errors: -EINVAL, also if *count is less than FF_MOST_FDS.
 */
int ff_conn_poll(const ff_conn *conn, struct pollfd *fds, size_t *count, int *timeout_ms);

/*
 * Does what is to be done now, and never blocks. Returns 1 when there is a connection, 0 while the connect goes on. It may be called
 * at any time.
 *
 * Errors: that of the first attempt, when all have failed: -ECONNREFUSED, -ETIMEDOUT. ff_set_log() has all of them.
 */
int ff_conn_step(ff_conn *conn);

/*
 * The connection's descriptor, once: an ordinary connected socket, which does not block, and is the caller's from now on. *sent is how
 * many bytes of data the kernel has taken: send the rest.
 *
 * Errors: -EBUSY while the connect goes on, -EALREADY if it was taken, the error of ff_conn_step() if it failed, -EINVAL.
 */
int ff_conn_take_fd(ff_conn *conn, size_t *sent);

/*
 * What became of the first flight, as it was when the connection was made; FF_OUTCOME_UNDECIDED before. After a failure,
 * FF_REASON_UNKNOWN says that a server may have run the data. Returns 1 if the data, or a part of it, was accepted, and else 0.
 *
 * Errors: -EINVAL.
 */
int ff_conn_outcome(const ff_conn *conn, struct ff_outcome *outcome);

/* Frees a connect, and closes the sockets that were not taken; NULL is allowed. */
void ff_conn_free(ff_conn *conn);

/*
 * ff_connect_start() for programs that may block: connects, sends all of data, and returns a descriptor that blocks. timeout_ms is the
 * longest time for all of it, milliseconds; a negative number for no limit. outcome may be NULL; it is also filled after a failure of
 * the connect, and when time is up: FF_REASON_UNKNOWN says that a server may have run the data. A signal does not end the wait.
 *
 * Errors: as ff_connect_start() and ff_conn_step(); -ETIMEDOUT when time is up.
 */
int ff_connect(const ff_client *client, const struct addrinfo *addresses, const char *name, const uint8_t *data, size_t len, int safety,
               int timeout_ms, struct ff_outcome *outcome);

/* ---- A client and servers on the library's own thread ---- */

/*
 * A library that was built without its feature "runtime" lacks the functions from here on. A program that uses them does not link then.
 *
 * They add what needs somebody who always listens: certificates (ASAP), TCP in UDP, names, and servers that take both. The process
 * gets one thread, named "firstflight", with all signals blocked; while a name is looked up or a file is read, there is another one. The
 * thread begins with the first ff_client_start() or ff_server_new(), and ends with the last client, server and connection. It never calls
 * the program.
 *
 * A connection in UDP has no socket of its own. Its descriptor is an end of a socket pair of AF_UNIX: read, write, poll and shutdown are
 * as with TCP, also the error ECONNRESET when the connection breaks (Linux). Options of TCP, addresses and ff_fd_...() do not apply to it.
 * A connection of the kernel's TCP has its own socket.
 *
 * After fork(), the child may free these objects, and make others. All else returns -ECHILD there.
 */

struct ff_start_options {
    size_t size;              /* sizeof(struct ff_start_options), set by the caller */
    const char *memory;       /* file for what is learnt of servers; NULL: it is in memory only */
    const char *verifier;     /* a verifier that gives certificates: "192.0.2.1:4433"; NULL: no UDP */
    const char *verifier_key; /* its public key, 64 hexadecimal digits; NULL if verifier is NULL */
    const char *certificates; /* file for certificates and their keys, mode 0600; NULL: they are in memory only */
    const char *servers;      /* servers that trust the verifier, and the UDP ports where they take certificates of it:
                                 "www.example.com:443=443,..."; the DNS is not asked about them. NULL: none */
    int32_t plain;            /* 1: all connects are ordinary ones, as with FIRSTFLIGHT=off in the environment; else 0 */
    int32_t servers_run_once; /* 1: data that must not run twice may ride in UDP, because the servers run each request once; else 0 */
};

/*
 * Makes a client on the library's thread, and stores it in *out. options may be NULL, which is all zeros. ff_connect_start(),
 * ff_connect() and all functions of ff_conn and ff_client take it, with these differences:
 *
 * - addresses may be NULL. Then name says where to connect, as "www.example.com:443", "192.0.2.1:443" or "[2001:db8::1]:443", and the
 *   library looks it up. With addresses, name is the server's name; certificates are for that name.
 * - The connect begins at once. ff_conn_poll() has one descriptor, for POLLIN.
 * - The client finds out on which network the host is.
 * - ff_client_free() writes the files, and blocks until then, at most 3 s. Connections go on.
 *
 * Returns 0. Free the client with ff_client_free().
 *
 * Errors: -EINVAL; -EIO if a file cannot be used, and ff_set_log() has the reason; those of pthread_create(3). The connect's error
 * is -EADDRNOTAVAIL if the name cannot be looked up.
 */
int ff_client_start(const struct ff_start_options *options, ff_client **out);

/* A server. */
typedef struct ff_server ff_server;

struct ff_server_options {
    size_t size;           /* sizeof(struct ff_server_options), set by the caller */
    const char *addresses; /* where to listen: "0.0.0.0:443,[::]:443"; all with the same port. Port 0: one that is free */
    const uint8_t *keys;   /* keys of the kernel's cookies, as ff_listen_prepare() takes them; NULL: the namespace's */
    size_t keys_len;       /* 0, 16 or 32 */
    const char *trust;     /* file of the verifiers whose certificates are taken in UDP; NULL: none */
    const char *names;     /* names that clients use for this server: "www.example.com,..."; NULL: its addresses */
    uint32_t queue;        /* first flights that may wait for their ACK, as in ff_listen_prepare() */
    int32_t udp_port;      /* 0: the number of the TCP port, if that is free in UDP; -1: no UDP */
    int32_t safety;        /* FF_MAY_RUN_TWICE: connections come at once; FF_RUN_ONCE: when their client's ACK has come */
    int32_t reserved;      /* 0 */
};

/*
 * Listens on the kernel's TCP and in UDP, and stores the server in *out. Returns 0. At most 1024 connections wait for
 * ff_server_accept() or for their ACK; others wait in the system.
 *
 * Errors: -EINVAL, also if the file cannot be used; -EADDRINUSE, -EACCES, -EADDRNOTAVAIL: ff_set_log() has a line with the address.
 */
int ff_server_new(const struct ff_server_options *options, ff_server **out);

/*
 * A descriptor that is readable while connections wait for ff_server_accept(), and when no more will come. It belongs to the
 * server: wait for it, and do not read or close it.
 *
 * Errors: -EINVAL.
 */
int ff_server_fd(const ff_server *server);

/*
 * The next connection: a descriptor that does not block, and is the caller's from now on. Never blocks. outcome may be NULL. address
 * and address_len are those of accept(2): both may be NULL.
 *
 * Errors: -EAGAIN if none waits, -ENOTCONN if none will come after ff_server_drain(), -EINVAL.
 */
int ff_server_accept(const ff_server *server, struct ff_outcome *outcome, struct sockaddr *address, socklen_t *address_len);

/*
 * Replaces the keys of the kernel's cookies, unless keys_len is 0, and reads the file of the verifiers again. Connections go on. A file
 * that cannot be used changes nothing. Returns 0.
 *
 * Errors: -EINVAL: ff_set_log() has the reason.
 */
int ff_server_reload(const ff_server *server, const uint8_t *keys, size_t keys_len);

/*
 * Stops listening. Connections that the system has made by then still come from ff_server_accept(), so that no data is lost that was
 * acknowledged; then it returns -ENOTCONN. Returns 0.
 *
 * Errors: -EINVAL, those of listen(2).
 */
int ff_server_drain(const ff_server *server);

/*
 * Frees a server; NULL is allowed. It stops listening, and closes connections that wait. The connections that the program has go on.
 * Blocks for at most 3 s, while connections in UDP end in order.
 */
void ff_server_free(ff_server *server);

#ifdef __cplusplus
}
#endif

#endif
