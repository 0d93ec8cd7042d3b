/* The server's thread, its loop, and the calls of other threads.
 *
 * A call of another thread is a function that the server's thread runs; the other thread waits for
 * it, or has posted it and goes on. So all code that uses spaces and connections runs on one
 * thread, and their structs need no lock. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"
#include "base/process/memory_limit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- calls ---- */

struct store_call {
    STAILQ_ENTRY(store_call) next;
    void (*run)(struct store_server *server, void *arg);
    void *arg;
    bool is_posted; /* true: no thread waits for the call, and finish() frees it */
    bool done;
};

static struct store_call *take_call(struct store_server *server) {
    (void) pthread_mutex_lock(&server->lock);
    struct store_call *call = STAILQ_FIRST(&server->calls);
    if (call != NULL) STAILQ_REMOVE_HEAD(&server->calls, next);
    (void) pthread_mutex_unlock(&server->lock);
    return call;
}

static void finish(struct store_server *server, struct store_call *call) {
    if (call->is_posted) {
        free(call);
        return;
    }
    (void) pthread_mutex_lock(&server->lock);
    call->done = true;
    (void) pthread_cond_broadcast(&server->done);
    (void) pthread_mutex_unlock(&server->lock);
}

static void on_wake(uv_async_t *handle) {
    struct store_server *server = CR_CONTAINER_OF(handle, struct store_server, wake);
    struct store_call *call;
    while ((call = take_call(server)) != NULL) {
        call->run(server, call->arg);
        finish(server, call);
    }
}

/* Runs the function on the server's thread, and returns when it has returned. */
static void call(struct store_server *server, void (*run)(struct store_server *, void *),
                 void *arg) {
    if (pthread_equal(pthread_self(), server->thread)) {
        run(server, arg);
        return;
    }
    struct store_call call = {.run = run, .arg = arg};
    (void) pthread_mutex_lock(&server->lock);
    STAILQ_INSERT_TAIL(&server->calls, &call, next);
    (void) uv_async_send(&server->wake);
    while (!call.done) (void) pthread_cond_wait(&server->done, &server->lock);
    (void) pthread_mutex_unlock(&server->lock);
}

/* Makes the server's thread run the function, after all earlier calls and before all later ones,
 * but does not wait for that. Returns 0, or -ENOMEM if the function will not run. */
static int post(struct store_server *server, void (*run)(struct store_server *, void *),
                void *arg) {
    if (pthread_equal(pthread_self(), server->thread)) {
        run(server, arg);
        return 0;
    }
    struct store_call *call = malloc(sizeof(*call));
    if (call == NULL) return -ENOMEM;
    *call = (struct store_call){.run = run, .arg = arg, .is_posted = true};
    (void) pthread_mutex_lock(&server->lock);
    STAILQ_INSERT_TAIL(&server->calls, call, next);
    (void) pthread_mutex_unlock(&server->lock);
    (void) uv_async_send(&server->wake);
    return 0;
}

/* ---- starting ---- */

/* Returns the default of memory_max in bytes, or 0 (no limit) if it is unknown how much memory this
 * process may use. The limit applies to each space on its own; several spaces together may use
 * more. */
static size_t half_of_memory(void) { return (size_t) (cr_memory_limit() / 2); }

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
    /* Several programs of this machine may have been given the same range. They begin at random
     * ports of it, so that one of them rarely finds a port that another one has just closed. */
    unsigned first = 0;
    (void) getrandom(&first, sizeof(first), GRND_NONBLOCK);
    atomic_init(&server->next_port, first);
    /* + 1, because keys on the wire begin with torch's '/' */
    server->limits = (struct store_limits){.key_max = o->key_max + 1,
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

/* Starts the server's thread. The thread blocks all signals, so that the kernel delivers the
 * process's signals to the program's own threads. */
static int start_thread(struct store_server *server) {
    if (server->options.no_thread) {
        /* This thread will run the loop. call() compares server->thread with the caller's thread,
         * and carries out the calls of this thread at once. */
        server->thread = pthread_self();
        return 0;
    }
    sigset_t all, before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&server->thread, NULL, thread_main, server);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static int open_handles(struct store_server *server) {
    int rc = uv_async_init(&server->loop, &server->wake, on_wake);
    if (rc < 0) return rc;
    rc = store_clients_open(server);
    if (rc == 0) {
        rc = start_thread(server);
        if (rc == 0) return 0;
        store_clients_close(server);
    }
    uv_close((uv_handle_t *) &server->wake, NULL);
    return rc;
}

static int start_loop(struct store_server *server, struct cr_error *err) {
    int rc = uv_loop_init(&server->loop);
    if (rc < 0) return cr_fail(err, rc, "cannot start the store: %s", uv_strerror(rc));
    store_spaces_init(server);
    store_limit_init(server);
    rc = open_handles(server);
    if (rc == 0) return 0;
    store_spaces_close(server);
    uv_close((uv_handle_t *) &server->silent_timer, NULL);
    (void) uv_run(&server->loop, UV_RUN_DEFAULT); /* runs until the handles are closed */
    (void) uv_loop_close(&server->loop);
    const char *remedy =
        rc == -EAGAIN ? "; raise the limit of processes (ulimit -u, pids.max) or of memory" : "";
    return cr_fail(err, rc, "cannot start the store: %s%s", uv_strerror(rc), remedy);
}

static void free_server(struct store_server *server) {
    store_clients_free(server);
    cr_buffer_done(&server->out);
    store_lend_done(server);
    free(server->rx);
    free(server->refused_key);
    free(server->refused_why);
    (void) pthread_cond_destroy(&server->done);
    (void) pthread_mutex_destroy(&server->lock);
    free(server);
}

/* Copies the refused key and the reason. If memory is short, no key is refused. */
static void copy_refused_key(struct store_server *server, const struct store_server_options *o) {
    if (o == NULL || o->refused_key == NULL) return;
    server->refused_why = strdup(o->refused_why);
    if (server->refused_why != NULL) server->refused_key = strdup(o->refused_key);
}

static struct store_server *new_server(const struct store_server_options *options) {
    struct store_server *server = calloc(1, sizeof(*server));
    uint8_t *rx = malloc(STORE_READ_SIZE);
    if (server == NULL || rx == NULL) {
        free(server);
        free(rx);
        return NULL;
    }
    server->rx = rx;
    server->lending[0] = server->lending[1] = server->epoll_fd = -1;
    server->on_descriptor_free = store_listener_resume;
    server->client_lines.about = "the store's clients";
    STAILQ_INIT(&server->calls);
    fill_options(server, options);
    copy_refused_key(server, options);
    (void) pthread_mutex_init(&server->lock, NULL);
    (void) pthread_cond_init(&server->done, NULL);
    return server;
}

int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err) {
    struct store_server *server = new_server(options);
    if (server == NULL) return cr_fail(err, -ENOMEM, "cannot start the store: out of memory");
    int rc = start_loop(server, err);
    if (rc < 0) {
        free_server(server);
        return rc;
    }
    *out = server;
    return 0;
}

/* ---- running and stopping ---- */

static void on_signal(uv_poll_t *poll, int status, int events) {
    /* the caller of store_server_run() reads from signal_fd; this callback only stops the loop */
    (void) status, (void) events;
    uv_stop(poll->loop);
}

int store_server_run(struct store_server *server, int signal_fd) {
    uv_poll_t signals;
    int rc = uv_poll_init(&server->loop, &signals, signal_fd);
    if (rc < 0) return rc;
    (void) uv_poll_start(&signals, UV_READABLE, on_signal);
    (void) uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *) &signals, NULL);
    /* `signals` is a local variable, so its handle must be closed before this function returns: one
     * more turn of the loop closes it */
    (void) uv_run(&server->loop, UV_RUN_NOWAIT);
    return 0;
}

static void run_stop(struct store_server *server, void *arg) {
    (void) arg;
    store_spaces_close(server);
    uv_close((uv_handle_t *) &server->silent_timer, NULL);
    store_clients_close(server);
    uv_close((uv_handle_t *) &server->wake, NULL);
}

void store_server_stop(struct store_server *server) {
    if (server == NULL) return;
    call(server, run_stop, NULL);
    if (server->options.no_thread) {
        (void) uv_run(&server->loop, UV_RUN_DEFAULT); /* runs until all handles are closed */
    } else {
        (void) pthread_join(server->thread, NULL);
    }
    (void) uv_loop_close(&server->loop);
    cr_log_limit_end(&server->client_lines);
    free_server(server);
}

/* ---- spaces ---- */

struct opening {
    struct store_space *space;
    int rc;
};

static void run_open(struct store_server *server, void *arg) {
    struct opening *o = arg;
    (void) server;
    o->rc = store_space_attach(o->space);
}

int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err) {
    struct store_space *space = calloc(1, sizeof(*space));
    if (space == NULL) return cr_fail(err, -ENOMEM, "cannot open the store: out of memory");
    space->server = server;
    space->fd = -1;
    struct opening o = {.space = space};
    int rc = store_listen(server, host, port, &space->fd, bound_port, space->address, err);
    if (rc == 0) {
        call(server, run_open, &o);
        rc = o.rc;
        if (rc < 0) (void) cr_fail(err, rc, "cannot open the store: %s", uv_strerror(rc));
    }
    if (rc < 0) {
        cr_close_fd(&space->fd);
        free(space);
        return rc;
    }
    *out = space;
    return 0;
}

/* The addresses of clients that store_space_restrict() or store_space_know() has got. */
struct clients {
    struct store_space *space;
    struct cr_network_list list;
};

static void run_restrict(struct store_server *server, void *arg) {
    struct clients *c = arg;
    (void) server;
    store_space_restrict_now(c->space, &c->list);
    free(c);
}

static void run_know(struct store_server *server, void *arg) {
    struct clients *c = arg;
    (void) server;
    store_space_know_now(c->space, &c->list);
    free(c);
}

/* Copies the list and posts the call of `run`, which takes over the copy. A start of workers need
 * not wait for the server's thread: connections of workers are served after this call. */
static int post_clients(struct store_space *space, const struct cr_network_list *list,
                        void (*run)(struct store_server *, void *)) {
    struct clients *c = calloc(1, sizeof(*c));
    if (c == NULL) return -ENOMEM;
    c->space = space;
    int rc = cr_network_list_copy(list, &c->list);
    if (rc == 0) rc = post(space->server, run, c);
    if (rc == 0) return 0;
    cr_network_list_done(&c->list);
    free(c);
    return rc;
}

int store_space_restrict(struct store_space *space, const struct cr_network_list *admitted) {
    return post_clients(space, admitted, run_restrict);
}

int store_space_know(struct store_space *space, const struct cr_network_list *nodes) {
    return post_clients(space, nodes, run_know);
}

void store_server_given_back(struct store_server *server) {
    (void) atomic_fetch_sub(&server->passed_on, 1);
}

struct beginning {
    struct store_space *space;
    uint64_t incarnation, round;
    struct store_codec codec;
};

static void run_begin_round(struct store_server *server, void *arg) {
    const struct beginning *b = arg;
    (void) server;
    store_gates_drop(b->space);
    b->space->has_round = true;
    b->space->incarnation = b->incarnation;
    b->space->round = b->round;
    b->space->codec = b->codec;
}

void store_space_begin_round(struct store_space *space, uint64_t incarnation, uint64_t round,
                             const struct store_codec *codec) {
    struct beginning b = {space, incarnation, round, *codec};
    call(space->server, run_begin_round, &b);
}

static void run_clear(struct store_server *server, void *arg) {
    (void) server;
    store_space_clear_now(arg);
}

void store_space_clear(struct store_space *space) { call(space->server, run_clear, space); }

static void run_close(struct store_server *server, void *arg) {
    (void) server;
    store_space_close_now(arg);
}

void store_space_close(struct store_space *space) {
    if (space != NULL) call(space->server, run_close, space);
}

/* ---- connections of other protocols, recognized by their magic ---- */

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
