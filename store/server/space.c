/* Opens, clears and closes spaces.
 *
 * Clearing takes effect at once: the table of keys becomes "remains" (store/keyspace/remains.h),
 * whose memory is freed later, and the connections are dismissed (close.c). An idle handle frees
 * one piece of the remains in each turn of the loop, so that clients are served between two pieces.
 * The struct of a closed space is freed when its remains are freed and its libuv handles are
 * closed. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

#include <sys/random.h>

/* ---- opening ---- */

static void draw_seed(uint64_t seed[2]) {
    seed[1] = 0;
    if (getrandom(seed, 2 * sizeof(seed[0]), 0) < 0) seed[0] = uv_hrtime();
}

static void init_keys(struct store_space *space) {
    uint64_t seed[2];
    draw_seed(seed);
    store_keyspace_init(&space->keys, seed);
    space->keys.memory_max = space->server->options.memory_max;
    space->keys.reply_max = space->server->options.client_buffer_max;
}

int store_space_attach(struct store_space *space) {
    struct store_server *server = space->server;
    int rc = store_listener_attach(space);
    if (rc < 0) return rc;
    init_keys(space);
    LIST_INSERT_HEAD(&server->spaces, space, next);
    uv_update_time(&server->loop);
    space->opened_ms = space->rate_since_ms = uv_now(&server->loop);
    return 0;
}

const char *store_space_address(const struct store_space *space) { return space->address; }

/* ---- clearing ---- */

static void drop_user(struct store_space *space) {
    if (--space->users > 0) return;
    cr_network_list_done(&space->admitted);
    free(space);
}

/* Removes the first space from the list server->cleared, when all remains of that space are
 * freed. */
static void end_clearing(struct store_server *server) {
    struct store_space *space = STAILQ_FIRST(&server->cleared);
    STAILQ_REMOVE_HEAD(&server->cleared, clearing_next);
    space->clearing = false;
    drop_user(space);
}

static void on_clearing(uv_idle_t *idle) {
    struct store_server *server = CR_CONTAINER_OF(idle, struct store_server, clearing);
    struct store_space *space = STAILQ_FIRST(&server->cleared);
    if (!store_keyspace_free_some(&space->keys)) end_clearing(server);
    if (STAILQ_EMPTY(&server->cleared)) (void) uv_idle_stop(idle);
}

static void begin_clearing(struct store_space *space) {
    struct store_server *server = space->server;
    if (space->clearing || space->keys.remains == NULL) return;
    space->clearing = true;
    space->users++;
    STAILQ_INSERT_TAIL(&server->cleared, space, clearing_next);
    (void) uv_idle_start(&server->clearing, on_clearing);
}

void store_space_clear_now(struct store_space *space) {
    uint64_t seed[2];
    draw_seed(seed);
    while (!LIST_EMPTY(&space->connections))
        store_connection_dismiss(LIST_FIRST(&space->connections));
    store_gates_drop(space);
    store_keyspace_clear(&space->keys, seed);
    begin_clearing(space);
}

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *handle) { drop_user(handle->data); }

void store_space_close_now(struct store_space *space) {
    space->closing = true;
    store_listener_turn_away(space);
    store_space_clear_now(space);
    LIST_REMOVE(space, next);
    uv_close((uv_handle_t *) &space->poll, on_handle_closed);
    uv_close((uv_handle_t *) &space->resume, on_handle_closed);
    uv_close((uv_handle_t *) &space->waking, on_handle_closed);
    cr_close_fd(&space->fd);
}

/* ---- all spaces of a server ---- */

void store_spaces_init(struct store_server *server) {
    STAILQ_INIT(&server->cleared);
    (void) uv_idle_init(&server->loop, &server->clearing);
}

void store_spaces_close(struct store_server *server) {
    while (!LIST_EMPTY(&server->spaces)) store_space_close_now(LIST_FIRST(&server->spaces));
    while (!STAILQ_EMPTY(&server->cleared)) {
        store_keyspace_done(&STAILQ_FIRST(&server->cleared)->keys);
        end_clearing(server);
    }
    uv_close((uv_handle_t *) &server->clearing, NULL);
}
