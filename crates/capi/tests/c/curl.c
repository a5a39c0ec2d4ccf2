/*
 * libcurl's own sockets have an outcome: libcurl asks for Fast Open, and the library says what became of it.
 *
 *     ./curl URL VISITS
 */
#include "check.h"

#include <curl/curl.h>

/* The last moment at which the socket is open. */
static int closing(void *user, curl_socket_t fd)
{
    struct ff_outcome outcome;

    CHECK(user == NULL);
    outcome.size = sizeof outcome;
    CHECK(ff_fd_outcome(fd, FF_CLIENT, &outcome) >= 0);
    printf("%s: %s\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason));
    return close(fd);
}

static size_t discard(char *data, size_t size, size_t number, void *user)
{
    (void)data;
    (void)user;
    return size * number;
}

int main(int argc, char **argv)
{
    int visits;

    CHECK(argc == 3);
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == 0);
    for (visits = atoi(argv[2]); visits > 0; visits--) {
        CURL *curl = curl_easy_init();

        CHECK(curl != NULL);
        CHECK(curl_easy_setopt(curl, CURLOPT_URL, argv[1]) == CURLE_OK);
        CHECK(curl_easy_setopt(curl, CURLOPT_TCP_FASTOPEN, 1L) == CURLE_OK);
        CHECK(curl_easy_setopt(curl, CURLOPT_CLOSESOCKETFUNCTION, closing) == CURLE_OK);
        CHECK(curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard) == CURLE_OK);
        CHECK(curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK);
        CHECK(curl_easy_perform(curl) == CURLE_OK);
        curl_easy_cleanup(curl);
    }
    curl_global_cleanup();
    return 0;
}
