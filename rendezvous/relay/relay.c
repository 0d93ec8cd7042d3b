/* Opens and closes a relay: see relay.h. */
#include "rendezvous/relay/relay_internal.h"

#include "base/network/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* how many connections the kernel keeps at most until the relay accepts them */
#define BACKLOG 4096

static void relay_free(struct rendezvous_relay *r) {
    void (*on_close)(void *) = r->on_close;
    void *arg = r->on_close_arg;
    secure_ring_close(r->ring);
    cr_log_limit_end(&r->lines);
    free(r);
    on_close(arg);
}

void relay_freed_one(struct rendezvous_relay *r) {
    bool is_empty = LIST_EMPTY(&r->trunks) && LIST_EMPTY(&r->nodes) && !r->is_listening;
    if (r->closing && is_empty) relay_free(r);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct rendezvous_relay *r = listener->data;
    if (status < 0 || relay_node_accept(r) == 0) return;
    cr_log_limited(&r->lines, CR_LOG_WARN, "relay: refused a connection: out of memory");
    refusal_use(r->refusal, listener, on_connection);
}

/* Stores in *addr the address at which the relay listens. Returns 0, or a negative errno and a text
 * in err. */
static int choose_address(const struct cr_endpoint *listen, struct sockaddr_storage *addr,
                          struct cr_error *err) {
    char where[RDZV_ADDR_MAX];
    int rc = addr_choose_listen(listen->host, where, err);
    if (rc < 0) return rc;
    if (where[0] == '\0') memcpy(where, "::", sizeof("::"));
    rc = strchr(where, ':') != NULL
             ? uv_ip6_addr(where, listen->port, (struct sockaddr_in6 *) addr)
             : uv_ip4_addr(where, listen->port, (struct sockaddr_in *) addr);
    return rc < 0 ? cr_fail(err, rc, "'%s' is no address", listen->host) : 0;
}

/* Binds the listener. If it has to listen on all interfaces, and this machine has no IPv6, binds it
 * to all interfaces with IPv4. */
static int start_listening(struct rendezvous_relay *r, const struct cr_endpoint *listen,
                           uint16_t *port, struct cr_error *err) {
    struct sockaddr_storage addr;
    int len = sizeof(addr);
    int rc = choose_address(listen, &addr, err);
    if (rc < 0) return rc;
    rc = uv_tcp_bind(&r->listener, (struct sockaddr *) &addr, 0);
    if (rc == UV_EAFNOSUPPORT && uv_ip4_addr("0.0.0.0", listen->port, (void *) &addr) == 0)
        rc = uv_tcp_bind(&r->listener, (struct sockaddr *) &addr, 0);
    if (rc == 0) rc = uv_listen((uv_stream_t *) &r->listener, BACKLOG, on_connection);
    if (rc == 0) rc = uv_tcp_getsockname(&r->listener, (struct sockaddr *) &addr, &len);
    if (rc < 0) {
        return cr_fail(err, rc, "cannot listen at '%s' port %u: %s", listen->host, listen->port,
                       uv_strerror(rc));
    }
    *port = cr_address_port((struct sockaddr *) &addr);
    return 0;
}

static void on_listener_closed(uv_handle_t *handle) {
    struct rendezvous_relay *r = handle->data;
    r->is_listening = false;
    relay_freed_one(r);
}

static void do_nothing(void *arg) { (void) arg; }

int rendezvous_relay_open(uv_loop_t *loop, const struct rendezvous_relay_options *options,
                          struct rendezvous_relay **out, uint16_t *port, struct cr_error *err) {
    struct rendezvous_relay *r = calloc(1, sizeof(*r));
    if (r == NULL) return cr_fail(err, -ENOMEM, "start the relay: out of memory");
    r->loop = loop;
    r->upstream = options->upstream;
    r->lines.about = "connections to the relay";
    r->refusal = refusal_new();
    int rc = r->refusal != NULL ? 0 : cr_fail(err, -ENOMEM, "start the relay: out of memory");
    if (rc == 0) rc = secure_ring_find(options->auth, options->token_file, &r->ring, err);
    if (rc < 0) {
        refusal_free(r->refusal);
        free(r);
        return rc;
    }
    (void) uv_tcp_init(loop, &r->listener);
    r->listener.data = r;
    r->is_listening = true;
    rc = start_listening(r, &options->listen, port, err);
    if (rc < 0) {
        rendezvous_relay_close(r, do_nothing, NULL);
        (void) uv_run(loop, UV_RUN_NOWAIT); /* frees the relay */
        return rc;
    }
    *out = r;
    return 0;
}

void rendezvous_relay_close(struct rendezvous_relay *r, void (*on_close)(void *arg), void *arg) {
    struct relay_trunk *t, *next;
    struct relay_node *n, *next_node;
    r->closing = true;
    r->on_close = on_close;
    r->on_close_arg = arg;
    refusal_free(r->refusal);
    uv_close((uv_handle_t *) &r->listener, on_listener_closed);
    for (t = LIST_FIRST(&r->trunks); t != NULL; t = next) {
        next = LIST_NEXT(t, entry);
        relay_trunk_end(t, "the relay was told to end");
    }
    for (n = LIST_FIRST(&r->nodes); n != NULL; n = next_node) {
        next_node = LIST_NEXT(n, entry);
        relay_node_end(n, true); /* those that have no trunk yet, too */
    }
}
