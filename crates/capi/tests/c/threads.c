/* Several threads use one client, and every function, at the same time. */
#include "check.h"

#include <pthread.h>

#define THREADS 4
#define CONNECTS 16

struct work {
    const ff_client *client;
    int refused; /* connects to a port that is closed */
};

static void note(int level, const char *line, void *user)
{
    CHECK(level == FF_LOG_ERROR || level == FF_LOG_INFO);
    CHECK(strlen(line) > 0 && user == NULL);
}

static void *run(void *argument)
{
    struct work *work = (struct work *)argument;
    struct place place, closed;
    struct ff_host host;
    int i, listener = listen_here(&place, NULL, 0);

    close(listen_here(&closed, NULL, 0));
    host.size = sizeof host;
    for (i = 0; i < CONNECTS; i++) {
        char end;
        int fd = ff_connect(work->client, &place.info, NULL, REQUEST, LENGTH, FF_MAY_RUN_TWICE, -1, NULL);

        CHECK(fd >= 0);
        serve(accept(listener, NULL, NULL));
        CHECK(read(fd, &end, 1) == 0);
        close(fd);
        CHECK(ff_host_check(&host) == 0 && strcmp(ff_reason_name(1 + i), "?") != 0);
        ff_set_log(note, NULL);
        CHECK(ff_client_network_changed(work->client, NULL) == 0);
        work->refused += ff_connect(work->client, &closed.info, NULL, NULL, 0, FF_RUN_ONCE, -1, NULL) == -ECONNREFUSED;
    }
    close(listener);
    return NULL;
}

int main(void)
{
    pthread_t others[THREADS];
    struct work works[THREADS];
    int i, free_fd = lowest_free();
    ff_client *client;

    CHECK(ff_client_new(NULL, &client) == 0);
    for (i = 0; i < THREADS; i++) {
        works[i].client = client;
        works[i].refused = 0;
        CHECK(pthread_create(&others[i], NULL, run, &works[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(others[i], NULL) == 0);
        CHECK(works[i].refused == CONNECTS);
    }
    ff_client_free(client);
    CHECK(lowest_free() == free_fd && threads() == 1);
    return 0;
}
