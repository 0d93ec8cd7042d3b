/* Requests the statistics of a server of crun. The request belongs to the administration dialect,
 * which only crun's servers know. */
#include "store/client/tcp_client_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <string.h>

#define STAT_MAX ((size_t) 64 << 20)

static int exchange(struct store_socket *s, struct store_answer *a, int64_t deadline_ms) {
    char request[] = STORE_ADMIN_MAGIC "S";
    _Static_assert(STORE_ADMIN_STAT == 'S', "the request above");
    struct iovec iov = {request, sizeof(request) - 1};
    int rc = store_socket_send(s, &iov, 1, deadline_ms);
    store_answer_begin(a, STORE_REPLY_VALUE, 0);
    while (rc == 0) {
        size_t room;
        void *at = store_answer_room(a, &room);
        if (at == NULL || a->bytes.len > STAT_MAX) return -ENOMEM;
        int64_t n = store_socket_receive(s, at, room, deadline_ms);
        rc = n < 0 ? (int) n : store_answer_put(a, (size_t) n);
    }
    return rc < 0 ? rc : 0;
}

int store_client_stat(const char *host, uint16_t port, int64_t timeout_ms, char **text,
                      size_t *len, struct cr_error *err) {
    struct store_socket s = {.fd = -1};
    struct store_answer a = {0};
    int64_t deadline = cr_deadline_ms(timeout_ms);
    struct cr_error why = {0};
    bool is_v6 = strchr(host, ':') != NULL;
    const char *open = is_v6 ? "[" : "", *end = is_v6 ? "]" : "";
    int rc = store_socket_connect(&s, host, port, deadline, &why);
    if (rc < 0)
        return cr_fail(err, rc, "connect to %s%s%s:%u: %s; is it running there?", open, host, end,
                       port, why.text);
    rc = exchange(&s, &a, deadline);
    void *value = NULL;
    if (rc == 0) rc = store_answer_take_value(&a, &value, len);
    store_answer_done(&a);
    store_socket_close(&s);
    *text = value;
    if (rc == 0) return 0;
    return cr_fail(err, rc,
                   "the store at %s%s%s:%u gave no statistics: %s; only crun's own stores have "
                   "them",
                   open, host, end, port,
                   rc == -ECONNRESET ? "it closed the connection" : strerror(-rc));
}
