/* Runs a fuzz target on the files of a corpus without libFuzzer:  replay_NAME FILE…
 *
 * The target gets each file unchanged, then cut off at every length up to a limit, then with single
 * bytes changed. This is a small part of what the fuzzer would try, but equal in every run. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 20)
#define CUTS_MAX       200u
#define CHANGES        200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs the target on a copy of the data in a block of exactly `size` bytes, so that the sanitizers
 * report every read beyond the end. */
static void run(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) abort();
    if (size > 0) memcpy(copy, data, size);
    (void) LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_variations(uint8_t *data, size_t size) {
    run(data, size);
    size_t step = size / CUTS_MAX + 1;
    for (size_t n = 0; n < size; n += step) run(data, n);
    uint32_t dice = 12345;
    for (unsigned i = 0; i < CHANGES && size > 0; i++) {
        dice = dice * 1664525u + 1013904223u;
        size_t at = (dice >> 8) % size;
        uint8_t before = data[at];
        data[at] ^= (uint8_t) (1u << (dice >> 29));
        run(data, size);
        data[at] = before;
    }
}

int main(int argc, char **argv) {
    uint8_t *data = malloc(FILE_MAX_BYTES);
    if (data == NULL) return 1;
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL) {
            perror(argv[i]);
            return 1;
        }
        size_t size = fread(data, 1, FILE_MAX_BYTES, f);
        (void) fclose(f);
        run_variations(data, size);
    }
    free(data);
    (void) printf("%d inputs\n", argc - 1);
    return 0;
}
