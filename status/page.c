/* Puts the bytes of status/page.html into the program: see page_internal.h. The assembler reads the
 * file, so the page needs no build step of its own. */
#include "status/page_internal.h"

__asm__(".pushsection .rodata\n"
        ".global status_page, status_page_end\n"
        ".hidden status_page, status_page_end\n"
        "status_page:\n"
        ".incbin \"status/page.html\"\n"
        "status_page_end:\n"
        ".byte 0\n"
        ".popsection\n");
