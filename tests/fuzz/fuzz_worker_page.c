/* libFuzzer target: gives any bytes to the agent as the page that a worker shares with it. Whatever
 * the worker has written, each value that the agent reads from the page must be in its range. */
#include "agent/node/worker_page.h"
#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct channel_page page;
    struct worker_progress got;
    memset((void *) &page, 0, sizeof(page));
    memcpy((void *) &page, data, size < sizeof(page) ? size : sizeof(page));
    worker_page_read(&page, &got);
    CR_ASSERT(got.connected);
    CR_ASSERT(got.step < INT64_MAX); /* so that the next step is a valid number too */
    CR_ASSERT(got.answer <= CHANNEL_NEEDS);
    CR_ASSERT(got.needs_ms >= 0 && got.needs_ms <= INT64_C(1000) * 3600 * 24 * 365);
    CR_ASSERT(got.needs_ms == 0 || got.answer == CHANNEL_NEEDS);
    struct worker_steps steps;
    worker_page_read_steps(&page, &steps);
    CR_ASSERT(steps.count < INT64_MAX && steps.first_ns >= 0 && steps.last_ns >= steps.first_ns);
    CR_ASSERT(steps.count > 0 || steps.last_ns == 0);
    worker_page_begin_round(&page);
    worker_page_read(&page, &got);
    CR_ASSERT(got.step == 0 && got.stopped_for == 0);
    return 0;
}
