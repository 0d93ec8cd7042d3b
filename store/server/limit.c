/* Limits how many connections the server holds, so that clients cannot use up the descriptors of
 * the process, and closes connections that stay silent. A connection is silent until the first
 * bytes, which show its dialect, have come.
 *
 * A client is *near* if it is on this machine or at a node of the round, as far as the space knows
 * (store_space_know(), store_space_restrict()). The last eighth of the connections is for near
 * clients only. If there is no room for a new client, the server closes the oldest silent
 * connection that is not near. If there is none, and the new client is near, the server closes the
 * oldest silent connection of a near client.
 *
 * In a space that knows its nodes, a connection that is not near is closed after SILENT_MAX_MS of
 * silence. Near clients may be silent for ever: torch 1.13 and older open a second connection, on
 * which they send nothing until they watch a key. */
#include "store/server/server_internal.h"

#include <sys/resource.h>

#define SILENT_MAX_MS    UINT64_C(30000)
#define DESCRIPTORS_KEPT 256 /* number of descriptors left to the rest of the process, or a fourth
                              * of all descriptors if that is less */

size_t store_limit_of_connections(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    size_t all = (size_t) limit.rlim_cur;
    return all - (all / 4 < DESCRIPTORS_KEPT ? all / 4 : DESCRIPTORS_KEPT);
}

/* ---- the lists of silent connections ---- */

/* Returns the list to which the connection belongs while it is silent. */
static struct store_silent *list_of(struct store_connection *c) {
    bool is_timed = !c->near && c->space->knows_nodes;
    return &c->space->server->silent[is_timed ? STORE_SILENT_TIMED
                                     : c->near ? STORE_SILENT_NEAR
                                               : STORE_SILENT_UNKNOWN];
}

static void on_silent_timer(uv_timer_t *timer);

static void arm(struct store_server *server) {
    const struct store_connection *first = TAILQ_FIRST(&server->silent[STORE_SILENT_TIMED]);
    uint64_t now = uv_now(&server->loop);
    if (first == NULL) {
        (void) uv_timer_stop(&server->silent_timer);
    } else if (uv_is_active((uv_handle_t *) &server->silent_timer) == 0) {
        uint64_t end = first->opened_ms + SILENT_MAX_MS;
        (void) uv_timer_start(&server->silent_timer, on_silent_timer, end > now ? end - now : 0, 0);
    }
}

static void on_silent_timer(uv_timer_t *timer) {
    struct store_server *server = timer->data;
    struct store_connection *c;
    while ((c = TAILQ_FIRST(&server->silent[STORE_SILENT_TIMED])) != NULL &&
           uv_now(&server->loop) - c->opened_ms >= SILENT_MAX_MS) {
        store_connection_close(c, NULL);
    }
    arm(server);
}

void store_limit_opened(struct store_connection *c) {
    c->opened_ms = uv_now(&c->space->server->loop);
    c->silent_in = list_of(c);
    TAILQ_INSERT_TAIL(c->silent_in, c, silent_next);
    arm(c->space->server);
}

void store_limit_spoke(struct store_connection *c) {
    if (c->silent_in == NULL) return;
    TAILQ_REMOVE(c->silent_in, c, silent_next);
    c->silent_in = NULL;
    arm(c->space->server);
}

void store_limit_check_again(struct store_connection *c) {
    c->near = store_space_is_near(c->space, c->fd, &c->peer);
    if (c->silent_in == NULL || c->silent_in == list_of(c)) return;
    TAILQ_REMOVE(c->silent_in, c, silent_next);
    c->silent_in = list_of(c);
    TAILQ_INSERT_TAIL(c->silent_in, c, silent_next);
    arm(c->space->server);
}

/* ---- room for one more connection ---- */

/* Closes the oldest silent connection of this kind. Returns false if there is none. */
static bool end_one(struct store_server *server, enum store_silent_kind kind) {
    struct store_connection *c = TAILQ_FIRST(&server->silent[kind]);
    if (c == NULL) return false;
    store_connection_close(c, "it had sent nothing, and another client needs the connection");
    return true;
}

bool store_limit_has_room(struct store_server *server, bool near) {
    size_t max = server->connection_max, kept = max / 8;
    size_t held = server->connection_count + atomic_load(&server->passed_on);
    if (held < max - (near ? 0 : kept)) return true;
    if (end_one(server, STORE_SILENT_TIMED) || end_one(server, STORE_SILENT_UNKNOWN)) return true;
    return near && end_one(server, STORE_SILENT_NEAR);
}

void store_limit_init(struct store_server *server) {
    server->connection_max = store_limit_of_connections();
    for (int i = 0; i < STORE_SILENT_KINDS; i++) TAILQ_INIT(&server->silent[i]);
    (void) uv_timer_init(&server->loop, &server->silent_timer);
    server->silent_timer.data = server;
}
