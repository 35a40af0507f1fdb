/* Preloaded: the interfaces of a node are those that its make-believe fabric gives it (MESH_FABRIC_NODE), and those of
   MESH_TEST_INTERFACES, all with the prefix length of MESH_TEST_PREFIX. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct one {
    struct ifaddrs entry;
    struct sockaddr_in address, mask;
    char name[16];
};

static int count;

static void add(struct ifaddrs **list, const char *variable, int prefix) {
    const char *set = getenv(variable);
    char *text = strdup(set ? set : ""), *rest = text, *word;
    while ((word = strsep(&rest, ","))) {
        struct one *one = calloc(1, sizeof *one);
        if (!*word || inet_pton(AF_INET, word, &one->address.sin_addr) != 1) {
            free(one);
            continue;
        }
        snprintf(one->name, sizeof one->name, "test%d", count++);
        one->address.sin_family = one->mask.sin_family = AF_INET;
        one->mask.sin_addr.s_addr = htonl(~0u << (32 - prefix));
        one->entry.ifa_next = *list;
        one->entry.ifa_name = one->name;
        one->entry.ifa_flags = IFF_UP;
        one->entry.ifa_addr = (struct sockaddr *)&one->address;
        one->entry.ifa_netmask = (struct sockaddr *)&one->mask;
        *list = &one->entry;
    }
    free(text);
}

int getifaddrs(struct ifaddrs **list) {
    const char *prefix = getenv("MESH_TEST_PREFIX");
    *list = 0;
    count = 0;
    add(list, "MESH_TEST_INTERFACES", prefix ? atoi(prefix) : 30);
    add(list, "MESH_FABRIC_NODE", prefix ? atoi(prefix) : 30);
    return 0;
}

void freeifaddrs(struct ifaddrs *list) {
    while (list) {
        struct ifaddrs *next = list->ifa_next;
        free(list);
        list = next;
    }
}
