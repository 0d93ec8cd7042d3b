/* The thread, its loop, and the calls that other threads make into it.
 *
 * A call is a function that the loop's thread runs while the caller waits: so every line that
 * touches spaces and connections runs on one thread and needs no lock. */
#include "store/server/server_internal.h"

#include "base/address.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- calls ---- */

struct store_call {
    struct store_call *next;
    void (*run)(struct store_server *server, void *arg);
    void *arg;
    bool done;
};

static void on_wake(uv_async_t *handle) {
    struct store_server *server = CR_CONTAINER_OF(handle, struct store_server, wake);
    for (;;) {
        (void) pthread_mutex_lock(&server->lock);
        struct store_call *call = server->calls;
        if (call != NULL) server->calls = call->next;
        (void) pthread_mutex_unlock(&server->lock);
        if (call == NULL) return;
        call->run(server, call->arg);
        (void) pthread_mutex_lock(&server->lock);
        call->done = true;
        (void) pthread_cond_broadcast(&server->done);
        (void) pthread_mutex_unlock(&server->lock);
    }
}

static void call(struct store_server *server, void (*run)(struct store_server *, void *),
                 void *arg) {
    if (pthread_equal(pthread_self(), server->thread)) {
        run(server, arg);
        return;
    }
    struct store_call call = {.run = run, .arg = arg};
    (void) pthread_mutex_lock(&server->lock);
    struct store_call **last = &server->calls;
    while (*last != NULL) last = &(*last)->next;
    *last = &call;
    (void) uv_async_send(&server->wake);
    while (!call.done) (void) pthread_cond_wait(&server->done, &server->lock);
    (void) pthread_mutex_unlock(&server->lock);
}

/* ---- logging ---- */

void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason) {
    uint64_t now = uv_now(&server->loop);
    if (server->log_count == 0 || now - server->log_since_ms >= STORE_LOG_WINDOW_MS) {
        if (server->log_suppressed > 0) {
            cr_warn("store: %u more lines like the last ones", server->log_suppressed);
        }
        server->log_since_ms = now;
        server->log_count = server->log_suppressed = 0;
    }
    if (server->log_count >= STORE_LOGS_MAX) {
        server->log_suppressed++;
        return;
    }
    server->log_count++;
    char text[CR_ADDRESS_MAX] = "";
    if (peer != NULL) cr_address_format(&peer->sa, text);
    if (peer != NULL) {
        cr_warn("store: closed the connection of '%s': %s", text, reason);
    } else {
        cr_warn("store: %s", reason);
    }
}

/* ---- starting and stopping ---- */

/* Spaces may differ in nothing: half of the memory is a bound, not a plan. */
static size_t half_of_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 0;
    return (size_t) pages * (size_t) page / 2;
}

static void fill_options(struct store_server *server, const struct store_server_options *given) {
    struct store_server_options *o = &server->options;
    if (given != NULL) *o = *given;
    if (o->key_max == 0) o->key_max = STORE_KEY_MAX;
    if (o->value_max == 0) o->value_max = STORE_VALUE_MAX;
    if (o->list_max == 0) o->list_max = STORE_LIST_MAX;
    if (o->client_buffer_max == 0) o->client_buffer_max = STORE_CLIENT_BUFFER_MAX;
    if (o->client_buffer_max > INT32_MAX) o->client_buffer_max = INT32_MAX;
    if (o->value_max > o->client_buffer_max) o->value_max = o->client_buffer_max;
    if (o->memory_max == 0) o->memory_max = half_of_memory();
    server->limits = (struct store_limits){.key_max = o->key_max + 1, /* torch's leading '/' */
                                           .value_max = o->value_max,
                                           .list_max = o->list_max,
                                           .request_max = o->client_buffer_max};
}

static void *thread_main(void *arg) {
    struct store_server *server = arg;
    (void) pthread_setname_np(pthread_self(), "store");
    (void) uv_run(&server->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(struct store_server *server) {
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&server->thread, NULL, thread_main, server);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static void free_server(struct store_server *server) {
    store_clients_free(server);
    cr_buffer_done(&server->out);
    store_lend_done(server);
    free(server->rx);
    (void) pthread_cond_destroy(&server->done);
    (void) pthread_mutex_destroy(&server->lock);
    free(server);
}

/* The caller is the thread that runs the loop: then nothing has to be started. */
static int begin_thread(struct store_server *server) {
    if (!server->options.no_thread) return start_thread(server);
    server->thread = pthread_self();
    return 0;
}

static int start_loop(struct store_server *server, struct cr_error *err) {
    int rc = uv_loop_init(&server->loop);
    if (rc < 0) return cr_fail(err, rc, "cannot start the store: %s", uv_strerror(rc));
    (void) uv_idle_init(&server->loop, &server->clearing);
    rc = uv_async_init(&server->loop, &server->wake, on_wake);
    if (rc == 0) {
        rc = store_clients_open(server);
        if (rc == 0) {
            rc = begin_thread(server);
            if (rc == 0) return 0;
            store_clients_close(server);
        }
        uv_close((uv_handle_t *) &server->wake, NULL);
    }
    uv_close((uv_handle_t *) &server->clearing, NULL);
    (void) uv_run(&server->loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&server->loop);
    const char *remedy =
        rc == -EAGAIN ? "; raise the limit of processes (ulimit -u, pids.max) or of memory" : "";
    return cr_fail(err, rc, "cannot start the store: %s%s", uv_strerror(rc), remedy);
}

int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err) {
    struct store_server *server = calloc(1, sizeof(*server));
    if (server == NULL) return cr_fail(err, -ENOMEM, "cannot start the store: out of memory");
    server->lending[0] = server->lending[1] = server->epoll_fd = -1;
    fill_options(server, options);
    (void) pthread_mutex_init(&server->lock, NULL);
    (void) pthread_cond_init(&server->done, NULL);
    server->rx = malloc(STORE_READ_SIZE);
    int rc = server->rx == NULL ? cr_fail(err, -ENOMEM, "cannot start the store: out of memory")
                                : start_loop(server, err);
    if (rc < 0) {
        free_server(server);
        return rc;
    }
    *out = server;
    return 0;
}

static void close_space(struct store_server *server, void *arg);
static void free_cleared(struct store_server *server);

static void run_stop(struct store_server *server, void *arg) {
    (void) arg;
    while (server->spaces != NULL) close_space(server, server->spaces);
    free_cleared(server);
    store_clients_close(server);
    uv_close((uv_handle_t *) &server->clearing, NULL);
    uv_close((uv_handle_t *) &server->wake, NULL);
}

void store_server_stop(struct store_server *server) {
    if (server == NULL) return;
    call(server, run_stop, NULL);
    if (server->options.no_thread) {
        (void) uv_run(&server->loop, UV_RUN_DEFAULT); /* until all is closed */
    } else {
        (void) pthread_join(server->thread, NULL);
    }
    (void) uv_loop_close(&server->loop);
    free_server(server);
}

static void on_signal(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events; /* it stays readable: whoever asked us to run reads it */
    uv_stop(poll->loop);
}

int store_server_run(struct store_server *server, int signal_fd) {
    uv_poll_t signals;
    int rc = uv_poll_init(&server->loop, &signals, signal_fd);
    if (rc < 0) return rc;
    (void) uv_poll_start(&signals, UV_READABLE, on_signal);
    (void) uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *) &signals, NULL);
    (void) uv_run(&server->loop, UV_RUN_NOWAIT); /* lets go of the handle, which is ours */
    return 0;
}

/* ---- spaces ---- */

static void draw_seed(uint64_t seed[2]) {
    seed[1] = 0;
    if (getrandom(seed, 2 * sizeof(seed[0]), 0) < 0) seed[0] = uv_hrtime();
}

static void start_keys(struct store_space *space) {
    uint64_t seed[2];
    draw_seed(seed);
    store_keyspace_init(&space->keys, seed);
    space->keys.memory_max = space->server->options.memory_max;
    space->keys.reply_max = space->server->options.client_buffer_max;
}

static void run_open(struct store_server *server, void *arg) {
    struct store_space *space = arg;
    start_keys(space);
    space->next = server->spaces;
    if (server->spaces != NULL) server->spaces->prev = space;
    server->spaces = space;
    uv_update_time(&server->loop);
    space->opened_ms = space->rate_since_ms = uv_now(&server->loop);
    store_listener_attach(space);
}

int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err) {
    struct store_space *space = calloc(1, sizeof(*space));
    if (space == NULL) return cr_fail(err, -ENOMEM, "cannot open the store: out of memory");
    space->server = server;
    int rc = store_listen(host, port, &space->fd, bound_port, space->address, err);
    if (rc < 0) {
        free(space);
        return rc;
    }
    call(server, run_open, space);
    *out = space;
    return 0;
}

const char *store_space_address(const struct store_space *space) { return space->address; }

static void leave_space(struct store_space *space) {
    if (--space->users == 0) free(space);
}

/* What the first space's clearing left is all freed. */
static void end_clearing(struct store_server *server) {
    struct store_space *space = server->clearing_first;
    server->clearing_first = space->clearing_next;
    if (server->clearing_first == NULL) server->clearing_last = NULL;
    space->clearing_next = NULL;
    space->clearing = false;
    leave_space(space);
}

/* A piece a turn of the loop, so that all clients are served between two pieces. */
static void on_clearing(uv_idle_t *idle) {
    struct store_server *server = CR_CONTAINER_OF(idle, struct store_server, clearing);
    if (!store_keyspace_free_some(&server->clearing_first->keys)) end_clearing(server);
    if (server->clearing_first == NULL) (void) uv_idle_stop(idle);
}

static void begin_clearing(struct store_server *server, struct store_space *space) {
    if (space->clearing || space->keys.remains == NULL) return;
    space->clearing = true;
    space->users++;
    if (server->clearing_last != NULL) {
        server->clearing_last->clearing_next = space;
    } else {
        server->clearing_first = space;
    }
    server->clearing_last = space;
    (void) uv_idle_start(&server->clearing, on_clearing);
}

static void free_cleared(struct store_server *server) {
    while (server->clearing_first != NULL) {
        store_keyspace_done(&server->clearing_first->keys);
        end_clearing(server);
    }
}

static void clear_space(struct store_server *server, void *arg) {
    struct store_space *space = arg;
    uint64_t seed[2];
    draw_seed(seed);
    while (space->connections != NULL) store_connection_dismiss(space->connections);
    store_keyspace_clear(&space->keys, seed);
    begin_clearing(server, space);
}

void store_space_clear(struct store_space *space) { call(space->server, clear_space, space); }

static void on_space_closed(uv_handle_t *handle) { leave_space(handle->data); }

static void close_space(struct store_server *server, void *arg) {
    struct store_space *space = arg;
    space->closing = true;
    store_listener_turn_away(space);
    clear_space(server, space);
    if (space->next != NULL) space->next->prev = space->prev;
    if (space->prev != NULL) {
        space->prev->next = space->next;
    } else {
        server->spaces = space->next;
    }
    uv_close((uv_handle_t *) &space->poll, on_space_closed);
    uv_close((uv_handle_t *) &space->resume, on_space_closed);
    uv_close((uv_handle_t *) &space->waking, on_space_closed);
    cr_close_fd(&space->fd);
}

void store_space_close(struct store_space *space) {
    if (space != NULL) call(space->server, close_space, space);
}

/* ---- other rooms' connections ---- */

struct registering {
    struct store_magic magic;
    int rc;
};

static void run_register(struct store_server *server, void *arg) {
    struct registering *r = arg;
    for (size_t i = 0; i < server->magic_count; i++) {
        if (memcmp(server->magics[i].magic, r->magic.magic, STORE_MAGIC_LEN) == 0) {
            r->rc = -EEXIST;
            return;
        }
    }
    if (server->magic_count == STORE_MAGICS_MAX) {
        r->rc = -ENOSPC;
        return;
    }
    server->magics[server->magic_count++] = r->magic;
}

int store_server_register_magic(struct store_server *server, const void *magic, store_handoff_fn fn,
                                void *arg) {
    struct registering r = {.magic = {.fn = fn, .arg = arg}};
    memcpy(r.magic.magic, magic, STORE_MAGIC_LEN);
    if (r.magic.magic[0] <= STORE_LEGACY_FIRST_MAX) return -EINVAL;
    if (memcmp(magic, STORE_ADMIN_MAGIC, STORE_MAGIC_LEN) == 0) return -EEXIST;
    call(server, run_register, &r);
    return r.rc;
}
