/*
 * conformance.c - what users of verbs may rely on with reliable connections, case by case, against libibverbs' public headers.
 *
 *     conformance NEAR FAR [UNCABLED|-] [CASE...]
 *
 * One process with a queue pair at each of two ports, which are found by their IPv4 addresses (RoCE v2 GIDs); a cable must join
 * them, and none may lead from NEAR to UNCABLED. A line a case, `ok NAME` or `FAILED NAME: what: got ... wanted ...`; exit status
 * 1 if any failed, 2 if it could not begin.
 *
 * It is run unchanged on soft verbs and on Linux's soft RoCE driver (rxe), by conformance.sh one folder up: what differs shows as
 * a failure of one of them. The InfiniBand specification decides (volume 1, chapters 9 to 11). Where rxe is known not to do
 * what it asks for, both outcomes pass, with a comment at the case, and the line says `(deviates: ...)`; conformance.sh does not
 * let that pass on soft verbs.
 *
 * It is no test of speed, of several processes, of cables that are cut, of queues that are shared or of memory that is not the
 * host's; and no test of hardware, though it runs there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One program in several files, compiled as one; each needs those before it. */
#include "say.h"
#include "pairs.h"
#include "requests.h"
#include "data.h"
#include "order.h"
#include "errors.h"
#include "events.h"
#include "states.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(write_data), CASE(write_with_imm), CASE(zero_length_write_with_imm), CASE(send_receive), CASE(send_with_imm),
    CASE(inline_data), CASE(scatter_lists), CASE(read_data), CASE(fetch_and_add), CASE(compare_and_swap),
    CASE(completions_in_order), CASE(data_before_message), CASE(data_before_flag), CASE(read_between_writes),
    CASE(unsignalled_requests), CASE(list_with_a_bad_one), CASE(full_queues),
    CASE(wrong_key), CASE(wrong_key_of_a_read), CASE(wrong_key_of_an_atomic), CASE(beyond_the_end), CASE(before_the_beginning),
    CASE(region_without_write_right), CASE(region_without_read_right), CASE(region_without_atomic_right),
    CASE(pair_without_write_right), CASE(pair_without_read_right), CASE(pair_without_atomic_right), CASE(unaligned_atomic),
    CASE(key_of_a_deregistered_region), CASE(key_of_another_domain),
    CASE(own_wrong_key), CASE(own_beyond_the_end), CASE(own_wrong_key_of_a_send),
    CASE(receive_too_small), CASE(receive_with_a_wrong_key), CASE(no_receive_and_few_retries), CASE(no_receive_and_patience),
    CASE(peer_reset), CASE(peer_destroyed), CASE(peer_in_error), CASE(error_by_hand), CASE(receive_posted_in_error),
    CASE(used_again),
    CASE(no_event_unasked), CASE(one_event_each_time), CASE(solicited_only), CASE(any_after_solicited),
    CASE(errors_are_solicited), CASE(failed_requests_are_solicited),
    CASE(no_way_without_a_cable), CASE(ready_to_receive_is_enough), CASE(steps_left_out),
};

/* Whether it passed. */
static int play(int at)
{
    failure[0] = deviation[0] = skipped[0] = 0;
    cases[at].run();
    close_pairs();
    if (failure[0])
        printf("FAILED %s: %s\n", cases[at].name, failure);
    else if (skipped[0])
        printf("skipped %s: %s\n", cases[at].name, skipped);
    else if (deviation[0])
        printf("ok %s (deviates: %s)\n", cases[at].name, deviation);
    else
        printf("ok %s\n", cases[at].name);
    return !failure[0];
}

static int chosen(const char *name, int count, char **names)
{
    for (int at = 0; at < count; at++)
        if (strcmp(name, names[at]) == 0)
            return 1;
    return count == 0;
}

int main(int count, char **arguments)
{
    int played = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3) {
        printf("usage: conformance NEAR FAR [UNCABLED|-] [CASE...]\n");
        return 2;
    }
    find_port(arguments[1], &near_port);
    find_port(arguments[2], &far_port);
    have_uncabled = count > 3 && strcmp(arguments[3], "-") != 0;
    if (have_uncabled)
        uncabled = gid_of(arguments[3]);
    alarm(240); /* a call that never returns */
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (!chosen(cases[at].name, count > 4 ? count - 4 : 0, arguments + 4))
            continue;
        played++;
        failed += !play(at);
    }
    printf("%d cases, %d failed\n", played, failed);
    return failed != 0 || played == 0;
}
