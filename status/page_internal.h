/* The page at the path / of the status address: the bytes of page.html, from status_page to
 * status_page_end. */
#ifndef STATUS_PAGE_INTERNAL_H
#define STATUS_PAGE_INTERNAL_H

extern const char status_page[] __attribute__((visibility("hidden")));
extern const char status_page_end[] __attribute__((visibility("hidden")));

#endif
