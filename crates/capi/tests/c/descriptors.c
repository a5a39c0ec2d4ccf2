/* Any descriptor: both ends, keys, and a fork. */
#include "check.h"

/* Connects an ordinary socket, sends the rest, and accepts at the other end. */
static int visit(const struct place *place, int listener, int safety, int *server)
{
    int taken, fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(fd >= 0);
    taken = ff_fd_connect(fd, place->info.ai_addr, place->info.ai_addrlen, REQUEST, LENGTH, safety);
    CHECK(taken >= 0 && (size_t)taken <= LENGTH);
    CHECK(send(fd, REQUEST + taken, LENGTH - (size_t)taken, MSG_NOSIGNAL) == (ssize_t)LENGTH - taken);
    CHECK((*server = accept(listener, NULL, NULL)) >= 0);
    return fd;
}

static void expect(int fd, int side, int result, int reason, uint32_t early)
{
    struct ff_outcome outcome;

    memset(&outcome, 0xff, sizeof outcome);
    outcome.size = sizeof outcome;
    CHECK(ff_fd_outcome(fd, side, &outcome) == (result == FF_OUTCOME_ACCEPTED));
    CHECK(outcome.outcome == result);
    CHECK(outcome.reason == reason);
    CHECK(outcome.accepted == (result == FF_OUTCOME_ACCEPTED));
    CHECK(outcome.early_bytes == early);
    /* Data that a SYN-ACK does not acknowledge is sent again. */
    CHECK(outcome.confirmed == 1 && outcome.retransmissions <= 1);
    CHECK(outcome.rtt_us < 60000000);
}

/* Both ends say this. */
static void expect_both(const struct place *place, int listener, int safety, int result, const int reasons[2], uint32_t early)
{
    char end;
    int server, client = visit(place, listener, safety, &server);

    while (ff_fd_confirmed(server) == 0)
        poll(NULL, 0, 1);
    CHECK(ff_fd_confirmed(server) == 1);
    expect(server, FF_SERVER, result, reasons[1], early);
    expect(client, FF_CLIENT, result, reasons[0], 0);
    serve(server);
    CHECK(read(client, &end, 1) == 0);
    close(client);
}

int main(void)
{
    static const int asked[2] = {FF_REASON_NO_CREDENTIAL, FF_REASON_NO_CREDENTIAL}, none[2] = {0, 0};
    /* The client says what it knows: nobody asked the kernel to send data. */
    static const int once[2] = {FF_REASON_NOT_REQUESTED, FF_REASON_NO_DATA};
    static const int stale[2] = {FF_REASON_DATA_NOT_ACKNOWLEDGED, FF_REASON_STALE_OR_WRONG_CREDENTIAL};
    struct place place;
    uint8_t keys[32];
    int status, free_fd = lowest_free(), listener;
    pid_t child;

    memset(keys, 1, 16);
    memset(keys + 16, 2, 16);
    listener = listen_here(&place, keys, 16);
    expect_both(&place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_HANDSHAKE, asked, 0);
    expect_both(&place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_ACCEPTED, none, LENGTH);
    expect_both(&place, listener, FF_RUN_ONCE, FF_OUTCOME_HANDSHAKE, once, 0);
    /* The old key as the backup. */
    memset(keys, 2, 16);
    memset(keys + 16, 1, 16);
    CHECK(ff_listen_set_keys(listener, keys, 32) == 0);
    expect_both(&place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_ACCEPTED, none, LENGTH);
    memset(keys, 3, 16);
    CHECK(ff_listen_set_keys(listener, keys, 16) == 0);
    expect_both(&place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_HANDSHAKE, stale, 0);

    /* A child uses the library as its parent does. */
    fflush(stderr);
    CHECK((child = fork()) >= 0);
    if (child == 0) {
        expect_both(&place, listener, FF_MAY_RUN_TWICE, FF_OUTCOME_ACCEPTED, none, LENGTH);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    close(listener);
    CHECK(ff_fd_confirmed(listener) == -EBADF);
    CHECK(lowest_free() == free_fd && threads() == 1);
    return 0;
}
