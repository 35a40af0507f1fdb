/* An auditor of the dynamic linker under which no libibverbs is found, whatever is installed. */
#include <stdint.h>
#include <string.h>

unsigned int la_version(unsigned int version) { return version; }

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag) {
    (void)cookie;
    (void)flag;
    return strstr(name, "libibverbs") ? 0 : (char *)name;
}
