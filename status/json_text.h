/* Makes JSON strings, as values of jansson, of texts that may come from anywhere. */
#ifndef STATUS_JSON_TEXT_H
#define STATUS_JSON_TEXT_H

#include <jansson.h>

/* Returns a new JSON string, or NULL if memory is short. A JSON string must be UTF-8: if `text` is
 * not, each of its bytes that is not part of a printable character is written as \xNN. */
json_t *status_json_text(const char *text);

#endif
