/*
 * hiredis takes a connection whose first command has left in the SYN.
 *
 *     hiredis PORT COUNT
 */
#include "check.h"

#include <hiredis/hiredis.h>

int main(int argc, char **argv)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct place place;
    ff_client *client;
    int i, count;

    CHECK(argc == 3);
    alarm(300);
    set_place(&place, atoi(argv[1]));
    count = atoi(argv[2]);
    CHECK(ff_client_new(NULL, &client) == 0);
    for (i = 0; i < count; i++) {
        struct ff_outcome outcome;
        redisContext *redis;
        redisReply *reply;
        int fd;

        outcome.size = sizeof outcome;
        fd = ff_connect(client, &place.info, NULL, (const uint8_t *)ping, sizeof ping - 1, FF_MAY_RUN_TWICE, 60000, &outcome);
        CHECK(fd >= 0);
        redis = redisConnectFd(fd); /* closes it at the end */
        CHECK(redis != NULL && redis->err == 0);
        CHECK(redisGetReply(redis, (void **)&reply) == REDIS_OK && strcmp(reply->str, "PONG") == 0);
        freeReplyObject(reply);
        reply = (redisReply *)redisCommand(redis, "ECHO %s", "more");
        CHECK(reply != NULL && strcmp(reply->str, "more") == 0);
        freeReplyObject(reply);
        redisFree(redis);
        printf("%s: %s\n", ff_outcome_name(outcome.outcome), ff_reason_name(outcome.reason));
    }
    ff_client_free(client);
    return 0;
}
