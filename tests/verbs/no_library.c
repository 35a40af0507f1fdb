/* An auditor of the dynamic linker under which no libibverbs is found, whatever is installed. */
#include <stdint.h>
#include <string.h>

unsigned int la_version(unsigned int version) { return version; }

/* Another name, of no file: glibc 2.36, given none at all, tells now and then of a wrong ELF class instead of no file. */
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag) {
    (void)cookie;
    (void)flag;
    if (!strstr(name, "libibverbs")) return (char *)name;
    return strstr(name, "libibverbs.so.1") ? "/nonexistent/libibverbs.so.1" : "/nonexistent/libibverbs.so";
}
