/* Asks NVRx's node health service on this node whether the node is well. The service is a gRPC
 * server on a Unix socket; this code runs in the process of one check, so it may wait. */
#include "agent/health/judge_internal.h"

#include "agent/health/nvhcd_internal.h"
#include "rendezvous/http/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PURPOSE "--health-service"

/* Copies the value of the header `name` from a header line "NAME: VALUE" to `out`, if the line is
 * of this header. */
static void take_header(const char *line, size_t len, const char *name, char *out, size_t room) {
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return;
    for (n++; n < len && line[n] == ' ';) n++;
    while (len > n && strchr("\r\n", line[len - 1]) != NULL) len--;
    (void) snprintf(out, room, "%.*s", (int) (len - n), line + n);
}

/* What the headers and trailers of gRPC say. */
struct status {
    char code[8]; /* "0" for success; "" if none has come */
    char message[100];
};

static void on_header(void *arg, const char *line, size_t len) {
    struct status *s = arg;
    take_header(line, len, "grpc-status", s->code, sizeof(s->code));
    take_header(line, len, "grpc-message", s->message, sizeof(s->message));
}

/* Parses and judges the service's answer. Returns 0; or -EPROTO and a text in err if gRPC reports a
 * failure, or if the bytes are no answer. */
static int take_answer(struct health_facts *f, const struct status *s, const struct cr_buffer *body,
                       struct cr_error *err) {
    struct nvhcd_answer answer;
    if (strcmp(s->code, "0") != 0) {
        return cr_fail(err, -EPROTO, "gRPC status %s: %s", s->code[0] != '\0' ? s->code : "missing",
                       s->message);
    }
    if (nvhcd_read_answer(body->data, body->len, &answer) < 0) {
        return cr_fail(err, -EPROTO, "the answer is no HealthCheckResponse of nvhcd.proto");
    }
    f->service_failed = !nvhcd_is_well(&answer, f->service_error, sizeof(f->service_error));
    return 0;
}

/* Stores the path of the socket in `out`. `text` is the value of --health-service: the path, which
 * may begin with "unix:" or "unix://", then the arguments for the service. Returns the arguments;
 * "" if there are none. */
static const char *split(const char *text, char *out, size_t room) {
    if (strncmp(text, "unix://", 7) == 0) text += 7;
    else if (strncmp(text, "unix:", 5) == 0) text += 5;
    size_t len = strcspn(text, " ");
    (void) snprintf(out, room, "%.*s", (int) len, text);
    return text + len + strspn(text + len, " ");
}

void health_ask_service(struct health_facts *f) {
    char path[200];
    struct status status = {0};
    struct cr_buffer request = {0}, body = {0};
    struct cr_error err = {0};
    if (f->service[0] == '\0') return;
    const char *args = split(f->service, path, sizeof(path));
    int rc = nvhcd_write_request(&request, args[0] != '\0' ? args : NVHCD_ARGS);
    const struct http_socket_request r = {.socket = path, .path = NVHCD_PATH,
                                          .type = "application/grpc", .body = request.data,
                                          .len = request.len, .answer_max = NVHCD_ANSWER_MAX,
                                          .on_header = on_header, .arg = &status};
    if (rc == 0) rc = http_post_to_socket(PURPOSE, &r, &body, &err);
    if (rc == 0) rc = take_answer(f, &status, &body, &err);
    f->service_failed = f->service_failed || rc == -ENOTSUP;
    if (rc == -ENOTSUP) {
        (void) snprintf(f->service_error, sizeof(f->service_error), "%.199s", err.text);
    } else if (rc < 0) {
        (void) snprintf(f->service_warning, sizeof(f->service_warning),
                        "the node health service at '%s' gave no answer: %.200s; the node counts "
                        "as well", path, err.text);
    }
    cr_buffer_done(&request);
    cr_buffer_done(&body);
}
