/* Finding M10: the backend needs the CUDA driver and NCCL, but must not call the CUDA runtime,
 * because the program may have linked the runtime statically or in another version. The host NCCL's
 * driver calls its runtime, so counters cannot show this; the test looks at the symbols that the
 * backend's module refers to. */
#include "tests/host_nccl/findings/finding.h"

#include <dlfcn.h>

int main(void) {
    open_world(5000);
    first_sum(world);
    char path[4096], line[8192];
    Dl_info info;
    KEPT(dladdr((void *) (uintptr_t) crunrt_group_new, &info) != 0, "where is libcrunrt");
    (void) snprintf(path, sizeof(path),
                    "strings -a '%.*s/crunrt/nccl.so' | grep -c '^cuda[A-Z][A-Za-z]*$'",
                    (int) (strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
    FILE *f = popen(path, "r");
    KEPT(f != NULL && fgets(line, sizeof(line), f) != NULL, "look at the module");
    (void) pclose(f);
    KEPT(atoi(line) == 0, "nccl.so has %d names of the CUDA runtime", atoi(line));
    KEPT(cudaGetLastError() == cudaSuccess, "an error was left");
    kept();
}
