// Turns Gloo's exceptions into errors.
#include "worker_runtime/backends/gloo/gloo_guard.h"

#include <gloo/common/error.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace crunrt_gloo {

using std::chrono::milliseconds;

// Gloo throws the same exception for timeouts and for lost peers, so its text decides which errno
// is returned.
static int io_error_code(const char *text) {
    if (std::strstr(text, "imed out") != nullptr || std::strstr(text, "imeout") != nullptr) {
        return -ETIMEDOUT;
    }
    return -ECONNRESET;
}

const char *without_place(const char *text) {
    const char *end = text[0] == '[' ? std::strstr(text, "] ") : nullptr;
    return end != nullptr ? end + 2 : text;
}

int translate(cr_error *err) {
    try {
        throw;
    } catch (const StoreError &e) {
        return cr_fail(err, e.code, "%s", e.what());
    } catch (const gloo::IoException &e) {
        return cr_fail(err, io_error_code(e.what()), "%s", without_place(e.what()));
    } catch (const std::bad_alloc &) {
        return cr_fail(err, -ENOMEM, "out of memory");
    } catch (const std::exception &e) {
        return cr_fail(err, -EIO, "%s", without_place(e.what()));
    } catch (...) {
        return cr_fail(err, -EIO, "unknown C++ exception");
    }
}

milliseconds to_milliseconds(int64_t ms) {
    constexpr int64_t year = INT64_C(365) * 24 * 3600 * 1000;
    return milliseconds(ms < 1 ? 1 : ms > year ? year : ms);
}

} // namespace crunrt_gloo
