/* Versions and words. */
#include "check.h"

int main(void)
{
    int i;

    CHECK(ff_abi() == FF_ABI);
    CHECK(strchr(ff_version(), '.') != NULL);
    CHECK(strcmp(ff_strerror(-EINVAL), ff_strerror(EINVAL)) == 0);
    CHECK(strcmp(ff_strerror(-ECONNREFUSED), "connection refused") == 0);
    for (i = -200; i < 200; i++)
        CHECK(strlen(ff_strerror(i)) > 0);
    CHECK(strlen(ff_strerror(-2147483647 - 1)) > 0);
    CHECK(strcmp(ff_outcome_name(FF_OUTCOME_ACCEPTED), "accepted") == 0);
    CHECK(strcmp(ff_outcome_name(FF_OUTCOME_UNDECIDED), "undecided") == 0);
    CHECK(strcmp(ff_outcome_name(77), "?") == 0 && strcmp(ff_outcome_name(-1), "?") == 0);
    CHECK(strcmp(ff_reason_name(FF_REASON_NONE), "none") == 0 && strcmp(ff_reason_text(FF_REASON_NONE), "") == 0);
    CHECK(strcmp(ff_reason_name(FF_REASON_NO_CREDENTIAL), "no-credential") == 0);
    CHECK(ff_reason_name(FF_REASON_UNKNOWN) == ff_reason_name(FF_REASON_UNKNOWN));
    for (i = 1; i <= FF_REASON_ACCEPTED_PART; i++) {
        CHECK(strcmp(ff_reason_name(i), "?") != 0);
        CHECK(strlen(ff_reason_text(i)) > strlen(ff_reason_name(i)));
    }
    CHECK(strcmp(ff_reason_name(i), "?") == 0 && strcmp(ff_reason_text(-1), "?") == 0);
    CHECK(threads() == 1);
    return 0;
}
