/*
 * Loads a net plugin as NCCL does and checks what NCCL relies on, with declarations of its own.
 *
 *   load PLUGIN layout    prints sizes and offsets, as "what number" lines
 *   load PLUGIN load      every symbol, name, devices, properties on poisoned memory
 *   load PLUGIN cycle     NULL logger, finalize(NULL), init and finalize again and again, dlclose and dlopen
 *   load PLUGIN misuse    NULL and wrong arguments
 *   load PLUGIN refused   a plugin that cannot start: an error, no devices, nothing left behind
 *   load PLUGIN fork      a child of fork is turned away, the parent goes on
 *
 * Exit status 0 only if all holds; every failure is a line on standard error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int result_t;
typedef void (*logger_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef int (*profiler_t)(void **event, int type, void *parent, int64_t id, void *data);

typedef struct { int trafficClass; } config_t;
typedef struct { int type; int version; void *handle; size_t size; int needsProxyProgress; } device_handle_t;
typedef struct { int32_t maxPeers, minPeers, maxFlows, minFlows; } comm_attr_t;
typedef struct { comm_attr_t send, recv; uint32_t op, algo, proto; } attr_t;
typedef struct { int ndevs; int devs[4]; } vprops4_t;
typedef struct { int ndevs; int devs[8]; } vprops8_t;

#define HEAD char *name; char *pciPath; uint64_t guid; int ptrSupport;
#define MIDDLE int speed; int port; float latency; int maxComms; int maxRecvs;
#define DEVICE int netDeviceType; int netDeviceVersion;

typedef struct { HEAD MIDDLE } props6_t;
typedef struct { HEAD MIDDLE DEVICE } props7_t;
typedef struct { HEAD int regIsGlobal; MIDDLE DEVICE } props8_t;
typedef struct { HEAD int regIsGlobal; int forceFlush; MIDDLE DEVICE vprops4_t vProps;
                 size_t maxP2pBytes; size_t maxCollBytes; } props9_t;
typedef struct { HEAD int regIsGlobal; int forceFlush; MIDDLE DEVICE vprops4_t vProps;
                 size_t maxP2pBytes; size_t maxCollBytes; int maxMultiRequestSize; } props11_t;
typedef struct { HEAD int regIsGlobal; int forceFlush; MIDDLE DEVICE vprops8_t vProps;
                 size_t maxP2pBytes; size_t maxCollBytes; int maxMultiRequestSize; int16_t railId; int16_t planeId; } props12_t;

/* The table of version 12; older ones are prefixes of it with other signatures. */
typedef struct {
    const char *name;
    result_t (*init)(void **ctx, uint64_t commId, config_t *config, logger_t log, profiler_t prof);
    result_t (*devices)(int *ndev);
    result_t (*getProperties)(int dev, props12_t *props);
    result_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
    result_t (*connect)(void *ctx, int dev, void *handle, void **sendComm, device_handle_t **sendDevComm);
    result_t (*accept)(void *listenComm, void **recvComm, device_handle_t **recvDevComm);
    result_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    result_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    result_t (*deregMr)(void *comm, void *mhandle);
    result_t (*isend)(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
    result_t (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
                      void **request);
    result_t (*iflush)(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
    result_t (*test)(void *request, int *done, int *sizes);
    result_t (*closeSend)(void *comm);
    result_t (*closeRecv)(void *comm);
    result_t (*closeListen)(void *comm);
    result_t (*getDeviceMr)(void *comm, void *mhandle, void **deviceHandle);
    result_t (*irecvConsumed)(void *comm, int n, void *request);
    result_t (*makeVDevice)(int *d, vprops8_t *props);
    result_t (*finalize)(void *ctx);
    result_t (*setNetAttr)(void *ctx, attr_t *attr);
} net12_t;

/* What versions 6 to 10 have in place of the members that changed. */
typedef result_t (*init6_t)(logger_t log);
typedef result_t (*init10_t)(logger_t log, profiler_t prof);

static int failures;

#define CHECK(condition, ...)                              \
    do {                                                   \
        if (!(condition)) {                                \
            failures++;                                    \
            fprintf(stderr, "line %d: %s: ", __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                  \
            fputc('\n', stderr);                           \
        }                                                  \
    } while (0)

static void *open_plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "dlopen: %s\n", dlerror());
        exit(2);
    }
    return library;
}

static void *table(void *library, int version) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    void *found = dlsym(library, symbol);
    if (!found) {
        fprintf(stderr, "no %s: %s\n", symbol, dlerror());
        exit(2);
    }
    return found;
}

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define OFFSET(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

static void layout_head_and_middle(void) {
#define EACH(type) \
    SIZE(type); OFFSET(type, name); OFFSET(type, pciPath); OFFSET(type, guid); OFFSET(type, ptrSupport); \
    OFFSET(type, speed); OFFSET(type, port); OFFSET(type, latency); OFFSET(type, maxComms); OFFSET(type, maxRecvs);
    EACH(props6_t) EACH(props7_t) EACH(props8_t) EACH(props9_t) EACH(props11_t) EACH(props12_t)
#undef EACH
}

static void layout(void) {
    layout_head_and_middle();
#define EACH(type) OFFSET(type, netDeviceType); OFFSET(type, netDeviceVersion);
    EACH(props7_t) EACH(props8_t) EACH(props9_t) EACH(props11_t) EACH(props12_t)
#undef EACH
    OFFSET(props8_t, regIsGlobal);
#define EACH(type) \
    OFFSET(type, regIsGlobal); OFFSET(type, forceFlush); OFFSET(type, vProps); OFFSET(type, maxP2pBytes); \
    OFFSET(type, maxCollBytes);
    EACH(props9_t) EACH(props11_t) EACH(props12_t)
#undef EACH
    OFFSET(props11_t, maxMultiRequestSize); OFFSET(props12_t, maxMultiRequestSize);
    OFFSET(props12_t, railId); OFFSET(props12_t, planeId);
    SIZE(config_t); SIZE(device_handle_t); SIZE(attr_t); SIZE(vprops4_t); SIZE(vprops8_t); SIZE(net12_t);
    OFFSET(device_handle_t, size); OFFSET(device_handle_t, needsProxyProgress);
    OFFSET(attr_t, recv); OFFSET(attr_t, op); OFFSET(attr_t, proto);
    OFFSET(net12_t, regMrDmaBuf); OFFSET(net12_t, irecv); OFFSET(net12_t, closeListen); OFFSET(net12_t, makeVDevice);
    OFFSET(net12_t, finalize); OFFSET(net12_t, setNetAttr);
}

static int version_of(void **slot, int version) {
    if (version < 10) return ((init6_t)slot[1])(NULL);
    if (version == 10) return ((init10_t)slot[1])(NULL, NULL);
    void *ctx = NULL;
    config_t config = {-1};
    result_t result = ((net12_t *)(void *)slot)->init(&ctx, 1, &config, NULL, NULL);
    if (result == 0) {
        CHECK(ctx != NULL, "v%d", version);
        CHECK(((net12_t *)(void *)slot)->finalize(ctx) == 0, "v%d", version);
    }
    return result;
}

/* Room for any properties, and guards behind them. */
typedef union { unsigned char bytes[512]; props6_t p6; props8_t p8; props9_t p9; props11_t p11; props12_t p12; } room_t;

static void poison(room_t *room) { memset(room->bytes, 0xA5, sizeof room->bytes); }

static void guarded(const room_t *room, size_t size, int version) {
    for (size_t i = size; i < sizeof room->bytes; i++) CHECK(room->bytes[i] == 0xA5, "v%d wrote byte %zu", version, i);
}

static void check_common(const room_t *room, int version) {
    CHECK(strcmp(room->p6.name, "Mesh") == 0, "v%d: %s", version, room->p6.name);
    CHECK(room->p6.pciPath != (char *)0xA5A5A5A5A5A5A5A5, "v%d", version);
    CHECK(room->p6.guid != 0xA5A5A5A5A5A5A5A5u, "v%d", version);
    CHECK(room->p6.ptrSupport == 1, "v%d: %d", version, room->p6.ptrSupport);
}

#define CHECK_MIDDLE(p, version) \
    CHECK((p).speed > 0, "v%d: %d", version, (p).speed); \
    CHECK((p).port == 1, "v%d: %d", version, (p).port); \
    CHECK((p).latency >= 0 && (p).latency < 1000 && (p).latency == (float)(int)(p).latency, "v%d: %f", version, (p).latency); \
    CHECK((p).maxComms == 65536, "v%d: %d", version, (p).maxComms); \
    CHECK((p).maxRecvs == 1, "v%d: %d", version, (p).maxRecvs);

#define CHECK_LATE(p, version) \
    CHECK_MIDDLE(p, version) \
    CHECK((p).regIsGlobal == 1 && (p).forceFlush == 0, "v%d", version); \
    CHECK((p).netDeviceType == 0 && (p).netDeviceVersion == 0, "v%d", version); \
    CHECK((p).vProps.ndevs == 1 && (p).vProps.devs[0] == 0, "v%d", version); \
    CHECK((p).maxP2pBytes == 1u << 30 && (p).maxCollBytes == 1u << 30, "v%d", version);

static void properties(net12_t *net, int version) {
    static const size_t sizes[] = {[6] = 48, [7] = 56, [8] = 64, [9] = 104, [10] = 104, [11] = 112, [12] = 128};
    room_t room, again;
    poison(&room);
    poison(&again);
    CHECK(net->getProperties(0, &room.p12) == 0, "v%d", version);
    guarded(&room, sizes[version], version);
    CHECK(net->getProperties(0, &again.p12) == 0, "v%d", version);
    CHECK(room.p6.name == again.p6.name && room.p6.pciPath == again.p6.pciPath, "v%d: pointers move", version);
    check_common(&room, version);
    switch (version) {
    case 6: case 7: CHECK_MIDDLE(room.p6, version) break;
    case 8:
        CHECK_MIDDLE(room.p8, version)
        CHECK(room.p8.regIsGlobal == 1 && room.p8.netDeviceType == 0 && room.p8.netDeviceVersion == 0, "v8");
        break;
    case 9: case 10: CHECK_LATE(room.p9, version) break;
    case 11: CHECK_LATE(room.p11, version) CHECK(room.p11.maxMultiRequestSize == 1, "v11"); break;
    default:
        CHECK_LATE(room.p12, version)
        CHECK(room.p12.maxMultiRequestSize == 1 && room.p12.railId == -1 && room.p12.planeId == -1, "v12");
    }
}

static void load(const char *path) {
    void *library = open_plugin(path);
    for (int version = 12; version >= 6; version--) {
        void **slots = table(library, version);
        net12_t *net = (net12_t *)(void *)slots;
        static const int members[] = {[6] = 17, [7] = 19, [8] = 19, [9] = 20, [10] = 20, [11] = 22, [12] = 22};
        for (int i = 0; i < members[version]; i++) {
            /* regMrDmaBuf, getDeviceMr, irecvConsumed, makeVDevice, setNetAttr may be NULL, and are here. */
            int absent = i == 8 || i == 17 || i == 18 || i == 19 || i == 21;
            CHECK((slots[i] == NULL) == absent, "v%d member %d", version, i);
        }
        CHECK(strcmp(net->name, "Mesh") == 0, "v%d: %s", version, net->name);
        CHECK(version_of(slots, version) == 0, "v%d", version);
        int ndev = -7;
        CHECK(net->devices(&ndev) == 0 && ndev == 1, "v%d: %d", version, ndev);
        properties(net, version);
        printf("v%d ok\n", version);
    }
}

static void cycle(const char *path) {
    for (int round = 0; round < 3; round++) {
        void *library = open_plugin(path);
        net12_t *net = table(library, 12);
        config_t config = {-1};
        CHECK(net->finalize(NULL) == 0, "finalize without init, round %d", round);
        for (int again = 0; again < 3; again++) {
            void *one = NULL, *two = NULL;
            CHECK(net->init(&one, 1, &config, NULL, NULL) == 0 && one, "round %d.%d", round, again);
            CHECK(net->init(&two, 2, NULL, NULL, NULL) == 0 && two && two != one, "round %d.%d", round, again);
            CHECK(net->finalize(one) == 0, "round %d.%d", round, again);
            CHECK(net->finalize(two) == 0, "round %d.%d", round, again);
            CHECK(net->finalize(two) != 0, "a context given back twice, round %d.%d", round, again);
            CHECK(net->finalize(NULL) == 0, "round %d.%d", round, again);
        }
        CHECK(dlclose(library) == 0, "%s", dlerror());
        /* Whatever threads the plugin has run on in code that must still be there. */
        usleep(50 * 1000);
    }
    puts("cycled");
}

static void misuse(const char *path) {
    net12_t *net = table(open_plugin(path), 12);
    void *ctx = NULL, *comm = (void *)1, *mhandle = (void *)1, *request = (void *)1;
    char handle[129] = {0};
    int done = 77;
    CHECK(net->init(&ctx, 1, NULL, NULL, NULL) == 0, "init");
    CHECK(net->closeSend(NULL) == 0 && net->closeRecv(NULL) == 0 && net->closeListen(NULL) == 0, "close NULL");
    CHECK(net->devices(NULL) != 0, "devices(NULL)");
    CHECK(net->getProperties(0, NULL) != 0, "getProperties(NULL)");
    props12_t props;
    CHECK(net->getProperties(1, &props) != 0 && net->getProperties(-1, &props) != 0, "no such device");
    CHECK(net->listen(ctx, 1, handle + 1, &comm) != 0 && comm == NULL, "no such device");
    comm = (void *)1;
    CHECK(net->listen(ctx, 0, NULL, &comm) != 0 && comm == NULL, "handle NULL");
    comm = (void *)1;
    CHECK(net->connect(ctx, 0, handle + 1, &comm, NULL) != 0 && comm == NULL, "a handle that nobody made");
    comm = (void *)1;
    CHECK(net->accept(NULL, &comm, NULL) != 0 && comm == NULL, "accept(NULL)");
    CHECK(net->regMr(NULL, handle, 1, 1, &mhandle) != 0 && mhandle == NULL, "regMr(NULL)");
    CHECK(net->isend(NULL, handle, 1, 0, NULL, NULL, &request) != 0 && request == NULL, "isend(NULL)");
    request = (void *)1;
    CHECK(net->irecv(NULL, 2, NULL, NULL, NULL, NULL, NULL, &request) == 5 && request == NULL, "grouped irecv");
    CHECK(net->test(NULL, &done, NULL) != 0 && done == 0, "test(NULL): done is %d", done);
    request = (void *)1;
    CHECK(net->iflush(NULL, 0, NULL, NULL, NULL, &request) == 0 && request == NULL, "iflush");
    CHECK(net->finalize(ctx) == 0, "finalize");
    puts("survived");
}

static void refused(const char *path) {
    for (int round = 0; round < 2; round++) {
        void *library = open_plugin(path);
        net12_t *net = table(library, 12);
        void *ctx = (void *)1;
        int ndev = -7;
        props12_t props;
        CHECK(net->init(&ctx, 1, NULL, NULL, NULL) != 0 && ctx == NULL, "round %d", round);
        CHECK(((init6_t)((void **)table(library, 8))[1])(NULL) != 0, "v8, round %d", round);
        CHECK(net->devices(&ndev) != 0 || ndev == 0, "round %d: %d", round, ndev);
        CHECK(net->getProperties(0, &props) != 0, "round %d", round);
        CHECK(net->finalize(NULL) == 0, "round %d", round);
        CHECK(dlclose(library) == 0, "%s", dlerror());
    }
    puts("refused");
}

static void forked(const char *path) {
    net12_t *net = table(open_plugin(path), 12);
    void *ctx = NULL;
    int ndev = 0;
    CHECK(net->init(&ctx, 1, NULL, NULL, NULL) == 0, "init");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *other = NULL;
        int refused = net->devices(&ndev) == 2 && net->init(&other, 2, NULL, NULL, NULL) == 2 && net->finalize(ctx) == 2;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %x", status);
    CHECK(net->devices(&ndev) == 0 && ndev == 1, "the parent goes on: %d", ndev);
    CHECK(net->finalize(ctx) == 0, "finalize");
    puts("forked");
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: load PLUGIN layout|load|cycle|misuse|refused|fork\n");
        return 2;
    }
    alarm(60);
    if (!strcmp(argv[2], "layout")) layout();
    else if (!strcmp(argv[2], "load")) load(argv[1]);
    else if (!strcmp(argv[2], "cycle")) cycle(argv[1]);
    else if (!strcmp(argv[2], "misuse")) misuse(argv[1]);
    else if (!strcmp(argv[2], "refused")) refused(argv[1]);
    else if (!strcmp(argv[2], "fork")) forked(argv[1]);
    else return 2;
    return failures ? 1 : 0;
}
