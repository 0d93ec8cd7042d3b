// Access to a group's keys in the store, which Gloo needs to connect the group.
#ifndef BACKENDS_GLOO_CONNECT_H
#define BACKENDS_GLOO_CONNECT_H

#include "worker_runtime/backends/backend.h"

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace crunrt_gloo {

class GroupStore : public gloo::rendezvous::Store {
  public:
    explicit GroupStore(const backend_group &group)
        : store_(group.store), timeout_ms_(group.timeout_ms), foreign_(group.is_foreign) {}

    void set(const std::string &key, const std::vector<char> &data) override;
    std::vector<char> get(const std::string &key) override;
    void wait(const std::vector<std::string> &keys) override;
    void wait(const std::vector<std::string> &keys,
              const std::chrono::milliseconds &timeout) override;

  private:
    void check_peers();
    bool is_there(const char *key, int64_t timeout_ms);
    void wait_ms(const std::vector<std::string> &keys, int64_t timeout_ms);

    backend_store store_;
    int64_t timeout_ms_;
    bool foreign_;
};

} // namespace crunrt_gloo

#endif
