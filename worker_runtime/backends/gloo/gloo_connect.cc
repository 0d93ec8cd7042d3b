// Implements Gloo's interface of a store with the group's keys in the store.
#include "worker_runtime/backends/gloo/gloo_connect.h"

#include "worker_runtime/backends/gloo/gloo_guard.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace crunrt_gloo {

using std::chrono::milliseconds;

static constexpr int64_t look_ms = 200;

// ---- the store ----

void GroupStore::set(const std::string &key, const std::vector<char> &data) {
    cr_error err = {};
    if (foreign_ && key.compare(0, 5, "rank_") == 0) check_peers();
    if (store_.set(store_.arg, key.c_str(), data.data(), data.size(), &err) < 0)
        throw StoreError(err);
}

std::vector<char> GroupStore::get(const std::string &key) {
    cr_error err = {};
    void *value = nullptr;
    size_t len = 0;
    if (store_.get(store_.arg, key.c_str(), timeout_ms_, &value, &len, &err) < 0)
        throw StoreError(err);
    const char *bytes = static_cast<const char *>(value);
    std::unique_ptr<void, decltype(&std::free)> owner(value, &std::free);
    return std::vector<char>(bytes, bytes + len);
}

void GroupStore::wait(const std::vector<std::string> &keys) { wait_ms(keys, timeout_ms_); }

void GroupStore::wait(const std::vector<std::string> &keys, const milliseconds &timeout) {
    wait_ms(keys, timeout.count());
}

// Fails if rank 0, which does not use crunrt, has a later Gloo than this module. An older Gloo sets
// the key "rank_<r>" before "<r>"; a later Gloo sets only "<r>". The two cannot communicate: a
// later Gloo begins each connection with 8 bytes, which an older Gloo takes for the head of a
// message, so both would hang.
void GroupStore::check_peers() {
    for (int64_t waited = 0; waited < timeout_ms_; waited += 2 * look_ms) {
        if (is_there("rank_0", look_ms)) return;
        if (!is_there("0", look_ms) || is_there("rank_0", 0)) continue;
        cr_error err = {};
        (void) cr_fail(&err, -EPROTO,
                       "rank 0 has a later Gloo than this module, and the two cannot talk; "
                       "build crun with the Gloo of that torch, or make the group of C ranks");
        throw StoreError(err);
    }
}

bool GroupStore::is_there(const char *key, int64_t timeout_ms) {
    cr_error err = {};
    int rc = store_.wait(store_.arg, &key, 1, timeout_ms, &err);
    if (rc < 0 && rc != -ETIMEDOUT) throw StoreError(err);
    return rc == 0;
}

void GroupStore::wait_ms(const std::vector<std::string> &keys, int64_t timeout_ms) {
    cr_error err = {};
    std::vector<const char *> names;
    for (const std::string &key : keys) names.push_back(key.c_str());
    if (store_.wait(store_.arg, names.data(), names.size(), timeout_ms, &err) < 0)
        throw StoreError(err);
}

} // namespace crunrt_gloo
