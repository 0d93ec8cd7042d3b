/* The functions ..._size() and ..._init() for each struct of options, for languages in which the
 * macros ..._INIT cannot be used. */
#include <crunrt.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): the parameter `name` is a type, which cannot be in
 * parentheses */
#define OPTIONS(name, initial)                                                                     \
    size_t name##_size(void) { return sizeof(name); }                                              \
    void name##_init(name *out) {                                                                  \
        if (out != NULL) *out = (name) initial;                                                    \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

OPTIONS(crunrt_init_options, CRUNRT_INIT_OPTIONS_INIT)
OPTIONS(crunrt_rejoin_options, CRUNRT_REJOIN_OPTIONS_INIT)
OPTIONS(crunrt_change, CRUNRT_CHANGE_INIT)
OPTIONS(crunrt_group_options, CRUNRT_GROUP_OPTIONS_INIT)
OPTIONS(crunrt_nccl_config, CRUNRT_NCCL_CONFIG_INIT)
OPTIONS(crunrt_op, CRUNRT_OP_INIT)
