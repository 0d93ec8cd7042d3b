/* The texts of requests to servers of Kubernetes: the token of a pod, and the reason in an answer
 * that refuses a request. Implements a part of http.h, without libcurl. */
#include "base/files/read_file.h"
#include "base/text/text.h"
#include "rendezvous/http/http.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX ((size_t) 300) /* bytes of a server's message in a warning, with the NUL */

static const char bearer[] = "Bearer ";

static bool is_visible(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return len > 0;
}

int http_make_authorization(char *text, size_t len, size_t cap) {
    while (len > 0 && strchr("\r\n", text[len - 1]) != NULL) len--;
    if (!is_visible(text, len) || len + sizeof(bearer) > cap) return -EINVAL;
    memmove(text + strlen(bearer), text, len);
    memcpy(text, bearer, strlen(bearer));
    text[strlen(bearer) + len] = '\0';
    return 0;
}

int http_read_token(const char *path, char *out, size_t cap, struct cr_error *err) {
    ssize_t len = cr_read_file(path, out, cap);
    if (len < 0) {
        return cr_fail(err, (int) len, "cannot read the token file '%.200s': %s", path,
                       strerror((int) -len));
    }
    if (http_make_authorization(out, (size_t) len, cap) == 0) return 0;
    return cr_fail(err, -EINVAL, "the file '%.200s' has no token", path);
}

void http_refusal(int status, const char *body, size_t len, char *out, size_t cap) {
    char safe[MESSAGE_MAX] = "";
    json_t *answer = json_loadb(body, len, 0, NULL);
    const char *message = json_string_value(json_object_get(answer, "message"));
    if (message != NULL) (void) cr_text_copy(safe, sizeof(safe), message, strlen(message));
    (void) snprintf(out, cap, "HTTP %d%s%s", status, safe[0] != '\0' ? ": " : "", safe);
    json_decref(answer);
}
