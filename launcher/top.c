/* `crun top`: implements launcher/top.h. */
#include "launcher/top.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool top_is_meant(const char *called, char *const *words) {
    if (strcmp(called, "crun") != 0 || words[0] == NULL || words[1] == NULL) return false;
    return strcmp(words[1], "top") == 0 && access("top", F_OK) < 0 && errno == ENOENT;
}

int top_execute(char **words, struct cr_error *err) {
    char self[PATH_MAX], agent[PATH_MAX + 16];
    words[0] = (char *) "crun-agent";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        (void) snprintf(agent, sizeof(agent), "%.*s/crun-agent", (int) (slash - self), self);
        (void) execv(agent, words);
    }
    (void) execvp("crun-agent", words);
    return cr_fail_errno(err, "cannot run crun-agent, which shows the job; to run a program that "
                              "is called top, give its path");
}
