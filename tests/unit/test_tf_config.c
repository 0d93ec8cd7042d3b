/* Tests of frameworks_write_tf_config(): TF_CONFIG is the JSON that TensorFlow reads. */
#include "launcher/frameworks/frameworks.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

START_TEST(test_the_value_names_the_cluster_and_the_task) {
    static const char *const addresses[] = {"10.0.0.1:4001", "[fe80::1]:4002"};
    struct cr_buffer b = {0};
    ck_assert_int_eq(frameworks_write_tf_config(addresses, 2, 1, &b), 0);
    ck_assert_str_eq(b.data, "{\"cluster\": {\"worker\": [\"10.0.0.1:4001\", \"[fe80::1]:4002\"]}, "
                             "\"task\": {\"type\": \"worker\", \"index\": 1}}");
    json_t *value = json_loads(b.data, 0, NULL);
    ck_assert_ptr_nonnull(value);
    json_decref(value);
    cr_buffer_done(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tf_config");
    TCase *t = tcase_create("tf_config");
    tcase_add_test(t, test_the_value_names_the_cluster_and_the_task);
    suite_add_tcase(s, t);
    return run_suite(s);
}
