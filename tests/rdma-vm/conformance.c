/*
 * conformance.c - what users of verbs may rely on with reliable connections, case by case, against libibverbs' public headers.
 *
 *     conformance NEAR FAR [UNCABLED|-] [CASE...]
 *
 * One process with a queue pair at each of two ports, which are found by their IPv4 addresses (RoCE v2 GIDs); a cable must join
 * them, and none may lead from NEAR to UNCABLED. A line a case, `ok NAME` or `FAILED NAME: what: got ... wanted ...`; exit status
 * 1 if any failed, 2 if it could not begin.
 *
 * It is run unchanged on soft verbs and on Linux's soft RoCE driver (rxe), by conformance.sh beside this: what differs shows as
 * a failure of one of them. The InfiniBand specification decides (volume 1, chapters 9 to 11). Where rxe is known not to do
 * what it asks for, both outcomes pass, with a comment at the case, and the line says `(deviates: ...)`; conformance.sh does not
 * let that pass on soft verbs.
 *
 * It is no test of speed, of several processes, of cables that are cut, of queues that are shared or of memory that is not the
 * host's; and no test of hardware, though it runs there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MEMORY (1 << 20)
#define PATIENCE 10.0 /* longest wait for what must come, seconds */
#define QUIET 0.05    /* wait for what must not come */
#define NOTHING 9999  /* "status" of a completion that did not come */
#define MANY 32
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct port {
    struct ibv_context *context;
    uint8_t number;
    int gid_index;
    union ibv_gid gid;
};

struct options {
    int region_rights, pair_rights, timeout, retries, rnr_retries, sends;
};

struct side {
    struct port *port;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq *sent, *received;
    struct ibv_qp *qp;
    struct ibv_qp_cap cap;
    uint8_t *memory;
};

struct pair {
    struct side a, b;
    struct pair *next;
};

static const struct options usual = {ALL_RIGHTS, ALL_RIGHTS, 14, 6, 7, 64};
static struct port near_port, far_port;
static union ibv_gid uncabled;
static int have_uncabled;
static struct pair *pairs;

/* What the running case has to say. */
static char failure[400], deviation[600], skipped[200];

/* ---------------------------------------------------------------------------------------------------------- saying what is wrong */

static void say(char *to, size_t size, const char *format, ...)
{
    va_list list;
    if (to[0])
        return; /* the first counts */
    va_start(list, format);
    vsnprintf(to, size, format, list);
    va_end(list);
}

/* What the specification asks for and did not come, and yet passes; all of them are said. */
static void stray(const char *format, ...)
{
    size_t used = strlen(deviation);
    va_list list;
    if (used && used + 2 < sizeof deviation)
        used += strlen(strcpy(deviation + used, "; "));
    va_start(list, format);
    vsnprintf(deviation + used, sizeof deviation - used, format, list);
    va_end(list);
}

static int differs(const char *what, long long got, long long wanted)
{
    if (got != wanted)
        say(failure, sizeof failure, "%s: got %lld wanted %lld", what, got, wanted);
    return got != wanted;
}

static const char *status_name(int status)
{
    return status == NOTHING ? "no completion" : ibv_wc_status_str(status);
}

static int status_differs(const char *what, int got, int wanted)
{
    if (got != wanted)
        say(failure, sizeof failure, "%s: got %d (%s) wanted %d (%s)", what, got, status_name(got), wanted, status_name(wanted));
    return got != wanted;
}

/* As status_differs, but `other` passes too, as a known deviation. */
static int status_strays(const char *what, int got, int wanted, int other)
{
    if (got == other && got != wanted) {
        stray("%s: %s, the specification has %s", what, status_name(got), status_name(wanted));
        return 0;
    }
    return status_differs(what, got, wanted);
}

/* Each ends the case's function when it is not as wanted. */
#define WANT(what, got, wanted) do { if (differs(what, got, wanted)) return; } while (0)
#define WANT_STATUS(what, got, wanted) do { if (status_differs(what, got, wanted)) return; } while (0)
#define WANT_OR(what, got, wanted, other) do { if (status_strays(what, got, wanted, other)) return; } while (0)

static void must(int fine, const char *what)
{
    if (fine)
        return;
    printf("cannot begin: %s: %s\n", what, strerror(errno));
    exit(2);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* --------------------------------------------------------------------------------------------------------------- ports and pairs */

static union ibv_gid gid_of(const char *address)
{
    union ibv_gid gid;
    memset(&gid, 0, sizeof gid);
    gid.raw[10] = gid.raw[11] = 0xff;
    if (inet_pton(AF_INET, address, gid.raw + 12) != 1) {
        printf("cannot begin: %s is no IPv4 address\n", address);
        exit(2);
    }
    return gid;
}

static int find_gid(struct ibv_context *context, const union ibv_gid *gid, struct port *port)
{
    struct ibv_device_attr device;
    struct ibv_port_attr attr;
    struct ibv_gid_entry entry;
    if (ibv_query_device(context, &device))
        return 0;
    for (int number = 1; number <= device.phys_port_cnt; number++) {
        if (ibv_query_port(context, number, &attr))
            continue;
        for (int index = 0; index < attr.gid_tbl_len; index++) {
            if (ibv_query_gid_ex(context, number, index, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
                continue;
            if (memcmp(&entry.gid, gid, sizeof *gid) == 0) {
                *port = (struct port){context, number, index, *gid};
                return 1;
            }
        }
    }
    return 0;
}

static void find_port(const char *address, struct port *port)
{
    union ibv_gid gid = gid_of(address);
    struct ibv_device **list = ibv_get_device_list(NULL);
    must(list != NULL, "list of devices");
    for (struct ibv_device **device = list; *device && !port->context; device++) {
        struct ibv_context *context = ibv_open_device(*device);
        if (context && !find_gid(context, &gid, port))
            ibv_close_device(context);
    }
    ibv_free_device_list(list);
    if (!port->context) {
        printf("cannot begin: no port has the address %s\n", address);
        exit(2);
    }
    fcntl(port->context->async_fd, F_SETFL, fcntl(port->context->async_fd, F_GETFL) | O_NONBLOCK);
}

static void open_side(struct side *side, struct port *port, struct options options)
{
    side->port = port;
    side->pd = ibv_alloc_pd(port->context);
    must(side->pd != NULL, "protection domain");
    must(posix_memalign((void **)&side->memory, 4096, MEMORY) == 0, "memory");
    memset(side->memory, 0, MEMORY);
    side->mr = ibv_reg_mr(side->pd, side->memory, MEMORY, options.region_rights);
    must(side->mr != NULL, "registration");
    side->channel = ibv_create_comp_channel(port->context);
    must(side->channel != NULL, "completion channel");
    fcntl(side->channel->fd, F_SETFL, fcntl(side->channel->fd, F_GETFL) | O_NONBLOCK);
    side->sent = ibv_create_cq(port->context, 256, NULL, side->channel, 0);
    side->received = ibv_create_cq(port->context, 256, NULL, side->channel, 0);
    must(side->sent && side->received, "completion queues");
    struct ibv_qp_init_attr init = {
        .send_cq = side->sent, .recv_cq = side->received, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = options.sends, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64},
    };
    side->qp = ibv_create_qp(side->pd, &init);
    must(side->qp != NULL, "queue pair");
    side->cap = init.cap;
}

static int to_init(struct side *side, int rights)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = side->port->number, .qp_access_flags = rights};
    return ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct side *side, uint32_t number, const union ibv_gid *gid)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = 77, .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12, /* 0.64 ms */
        .ah_attr = {.is_global = 1, .port_num = side->port->number,
                    .grh = {.dgid = *gid, .sgid_index = side->port->gid_index, .hop_limit = 64}},
    };
    return ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct side *side, struct options options)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .timeout = options.timeout, .retry_cnt = options.retries,
                               .rnr_retry = options.rnr_retries, .sq_psn = 77, .max_rd_atomic = 4};
    return ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                              IBV_QP_MAX_QP_RD_ATOMIC);
}

static int to_state(struct side *side, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    return ibv_modify_qp(side->qp, &attr, IBV_QP_STATE);
}

static int state_of(struct side *side)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state;
}

/* A pair in reset state; closed when the case is over, whatever came of it. */
static struct pair *unconnected(struct options options)
{
    struct pair *pair = calloc(1, sizeof *pair);
    must(pair != NULL, "memory");
    pair->next = pairs;
    pairs = pair;
    open_side(&pair->a, &near_port, options);
    open_side(&pair->b, &far_port, options);
    return pair;
}

static struct pair *connected(struct options options)
{
    struct pair *pair = unconnected(options);
    struct side *a = &pair->a, *b = &pair->b;
    must(!to_init(a, options.pair_rights) && !to_init(b, options.pair_rights), "change to INIT");
    must(!to_rtr(a, b->qp->qp_num, &b->port->gid) && !to_rtr(b, a->qp->qp_num, &a->port->gid), "change to RTR");
    must(!to_rts(a, options) && !to_rts(b, options), "change to RTS");
    return pair;
}

static void close_side(struct side *side)
{
    if (side->qp)
        must(!ibv_destroy_qp(side->qp), "destruction of a queue pair");
    must(!ibv_destroy_cq(side->sent) && !ibv_destroy_cq(side->received), "destruction of completion queues");
    must(!ibv_destroy_comp_channel(side->channel), "destruction of a channel");
    if (side->mr)
        must(!ibv_dereg_mr(side->mr), "deregistration");
    must(!ibv_dealloc_pd(side->pd), "end of a protection domain");
    free(side->memory);
}

static void close_pairs(void)
{
    while (pairs) {
        struct pair *pair = pairs;
        pairs = pair->next;
        close_side(&pair->a);
        close_side(&pair->b);
        free(pair);
    }
}

/* --------------------------------------------------------------------------------------------------- requests and completions */

static struct ibv_sge piece(struct side *side, size_t offset, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)side->memory + offset, length, side->mr->lkey};
}

/* A request with its pieces, so that one value holds both. */
struct request {
    struct ibv_send_wr wr;
    struct ibv_sge list[2];
};

static struct request request(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge from, struct side *to, size_t offset)
{
    struct request made = {.list = {from}};
    made.wr.wr_id = id;
    made.wr.opcode = opcode;
    made.wr.num_sge = 1;
    made.wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        made.wr.wr.atomic.remote_addr = (uintptr_t)to->memory + offset;
        made.wr.wr.atomic.rkey = to->mr->rkey;
    } else {
        made.wr.wr.rdma.remote_addr = (uintptr_t)to->memory + offset;
        made.wr.wr.rdma.rkey = to->mr->rkey;
    }
    return made;
}

static int post(struct side *side, struct request request)
{
    struct ibv_send_wr *bad;
    request.wr.sg_list = request.list;
    return ibv_post_send(side->qp, &request.wr, &bad);
}

static struct request unsignalled(struct request request)
{
    request.wr.send_flags &= ~IBV_SEND_SIGNALED;
    return request;
}

static struct request with_number(struct request request, uint32_t number)
{
    request.wr.imm_data = htonl(number);
    return request;
}

static struct request atomic(enum ibv_wr_opcode opcode, struct pair *pair, size_t offset, uint64_t compare_add, uint64_t swap)
{
    struct request made = request(opcode, 1, piece(&pair->a, 64, 8), &pair->b, offset);
    made.wr.wr.atomic.compare_add = compare_add;
    made.wr.wr.atomic.swap = swap;
    return made;
}

static int receive(struct side *side, uint64_t id, struct ibv_sge *list, int count)
{
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = list, .num_sge = count}, *bad;
    return ibv_post_recv(side->qp, &wr, &bad);
}

static int receive_at(struct side *side, uint64_t id, size_t offset, uint32_t length)
{
    struct ibv_sge into = piece(side, offset, length);
    return receive(side, id, &into, 1);
}

static struct ibv_wc take_within(struct ibv_cq *cq, double seconds)
{
    struct ibv_wc wc;
    double end = now() + seconds;
    do {
        memset(&wc, 0, sizeof wc);
        int got = ibv_poll_cq(cq, 1, &wc);
        if (got == 1)
            return wc;
        must(got == 0, "poll");
        usleep(20);
    } while (now() < end);
    return (struct ibv_wc){.status = NOTHING};
}

static struct ibv_wc take(struct ibv_cq *cq)
{
    return take_within(cq, PATIENCE);
}

/* `ibv_wc_status` of the next completion, `NOTHING` if none comes. */
static int outcome(struct ibv_cq *cq)
{
    return take(cq).status;
}

static int quiet(struct ibv_cq *cq)
{
    return take_within(cq, QUIET).status == NOTHING;
}

/* Without IBV_WC_GRH, which means something for UD only; rxe sets it always. */
static unsigned flags_of(struct ibv_wc wc)
{
    return wc.wc_flags & ~(unsigned)IBV_WC_GRH;
}

static void fill(struct side *side, uint8_t seed)
{
    for (size_t at = 0; at < MEMORY; at++)
        side->memory[at] = (uint8_t)(at * 31 + at / 251 + seed);
}

static int same(struct side *a, size_t from, struct side *b, size_t to, size_t length)
{
    return memcmp(a->memory + from, b->memory + to, length) == 0;
}

static uint64_t word(struct side *side, size_t offset)
{
    uint64_t value;
    memcpy(&value, side->memory + offset, sizeof value);
    return value;
}

static void set_word(struct side *side, size_t offset, uint64_t value)
{
    memcpy(side->memory + offset, &value, sizeof value);
}

/* The next event of the side's queue pair, -1 if none comes. IBV_EVENT_COMM_EST is passed over: the specification lets a device
 * tell of the first packet in RTR or not, and pairs here may get one before both ends are in RTS. */
static int event_of(struct side *side)
{
    double end = now() + 0.3;
    while (now() < end) {
        struct pollfd ready = {.fd = side->port->context->async_fd, .events = POLLIN};
        struct ibv_async_event event;
        if (poll(&ready, 1, 20) != 1 || ibv_get_async_event(side->port->context, &event))
            continue;
        int of_pair = event.event_type <= IBV_EVENT_PATH_MIG_ERR && event.event_type != IBV_EVENT_CQ_ERR;
        int ours = of_pair && event.event_type != IBV_EVENT_COMM_EST && event.element.qp == side->qp;
        ibv_ack_async_event(&event);
        if (ours)
            return event.event_type;
    }
    return -1;
}

/* Whether the event came that the specification asks for. rxe 6.1 tells of no broken queue pair at all: that passes, and is said. */
static int event_strays(struct side *side, enum ibv_event_type wanted)
{
    int got = event_of(side);
    if (got != -1)
        return differs("asynchronous event", got, wanted);
    stray("no asynchronous event, the specification has %s", ibv_event_type_str(wanted));
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------ data */

static void write_data(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 5);
    size_t offset = 0;
    static const uint32_t lengths[] = {1, 7, 64, 129, 1024, 4096, 65537, 300001};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        struct request made = request(IBV_WR_RDMA_WRITE, at, piece(&p->a, offset, lengths[at]), &p->b, offset);
        WANT("post", post(&p->a, made), 0);
        struct ibv_wc wc = take(p->a.sent);
        WANT_STATUS("write", wc.status, IBV_WC_SUCCESS);
        WANT("wr_id", wc.wr_id, at);
        WANT("opcode", wc.opcode, IBV_WC_RDMA_WRITE);
        WANT("qp_num", wc.qp_num, p->a.qp->qp_num);
        offset += lengths[at];
        WANT("right data", same(&p->a, 0, &p->b, 0, offset), 1);
        WANT("byte after them", p->b.memory[offset], 0);
    }
    WANT("silence at the peer", quiet(p->b.received), 1);
}

static void write_with_imm(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 9);
    static const uint32_t lengths[] = {1000, 8, 70000};
    for (uint64_t id = 0; id < 3; id++)
        WANT("receive", receive(&p->b, 100 + id, NULL, 0), 0);
    for (uint64_t id = 0; id < 3; id++) {
        struct request made = request(IBV_WR_RDMA_WRITE_WITH_IMM, id, piece(&p->a, 0, lengths[id]), &p->b, 0);
        WANT("post", post(&p->a, with_number(made, 0x01020300 + id)), 0);
    }
    for (uint64_t id = 0; id < 3; id++) {
        struct ibv_wc wc = take(p->b.received);
        WANT_STATUS("receive", wc.status, IBV_WC_SUCCESS);
        WANT("wr_id", wc.wr_id, 100 + id);
        WANT("opcode", wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        WANT("wc_flags", flags_of(wc), IBV_WC_WITH_IMM);
        WANT("number", ntohl(wc.imm_data), 0x01020300 + id);
        WANT("byte_len", wc.byte_len, lengths[id]);
        WANT("qp_num", wc.qp_num, p->b.qp->qp_num);
        wc = take(p->a.sent);
        WANT_STATUS("write", wc.status, IBV_WC_SUCCESS);
        WANT("wr_id of the write", wc.wr_id, id);
        WANT("opcode of the write", wc.opcode, IBV_WC_RDMA_WRITE);
    }
    WANT("right data", same(&p->a, 0, &p->b, 0, 70000), 1);
}

/* A write without data looks at no key and no address. */
static void zero_length_write_with_imm(void)
{
    struct pair *p = connected(usual);
    WANT("receive", receive(&p->b, 1, NULL, 0), 0);
    WANT("receive", receive(&p->b, 2, NULL, 0), 0);
    struct request made = request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, piece(&p->a, 0, 8), &p->b, 0);
    made.wr.num_sge = 0;
    WANT("post", post(&p->a, with_number(made, 7)), 0);
    made.wr.wr.rdma.rkey = 0;
    made.wr.wr.rdma.remote_addr = 0;
    WANT("post", post(&p->a, with_number(made, 8)), 0);
    for (uint32_t number = 7; number <= 8; number++) {
        struct ibv_wc wc = take(p->b.received);
        WANT_STATUS("receive", wc.status, IBV_WC_SUCCESS);
        WANT("opcode", wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        WANT("number", ntohl(wc.imm_data), number);
        WANT("byte_len", wc.byte_len, 0);
        WANT_STATUS("write", outcome(p->a.sent), IBV_WC_SUCCESS);
    }
}

static void send_receive(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 3);
    WANT("receive", receive_at(&p->b, 11, 0, 5000), 0);
    WANT("post", post(&p->a, request(IBV_WR_SEND, 2, piece(&p->a, 100, 3000), &p->b, 0)), 0);
    struct ibv_wc wc = take(p->b.received);
    WANT_STATUS("receive", wc.status, IBV_WC_SUCCESS);
    WANT("wr_id", wc.wr_id, 11);
    WANT("opcode", wc.opcode, IBV_WC_RECV);
    WANT("wc_flags", flags_of(wc), 0);
    WANT("byte_len", wc.byte_len, 3000);
    WANT("right data", same(&p->a, 100, &p->b, 0, 3000), 1);
    WANT("byte after them", p->b.memory[3000], 0);
    wc = take(p->a.sent);
    WANT_STATUS("send", wc.status, IBV_WC_SUCCESS);
    WANT("opcode of the send", wc.opcode, IBV_WC_SEND);
}

static void send_with_imm(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 4);
    WANT("receive", receive_at(&p->b, 1, 0, 100), 0);
    WANT("receive", receive(&p->b, 2, NULL, 0), 0);
    WANT("post", post(&p->a, with_number(request(IBV_WR_SEND_WITH_IMM, 1, piece(&p->a, 0, 100), &p->b, 0), 0xfeedbeef)), 0);
    struct request empty = request(IBV_WR_SEND_WITH_IMM, 2, piece(&p->a, 0, 0), &p->b, 0);
    empty.wr.num_sge = 0;
    WANT("post", post(&p->a, with_number(empty, 1)), 0);
    for (int at = 0; at < 2; at++) {
        struct ibv_wc wc = take(p->b.received);
        WANT_STATUS("receive", wc.status, IBV_WC_SUCCESS);
        WANT("opcode", wc.opcode, IBV_WC_RECV);
        WANT("wc_flags", flags_of(wc), IBV_WC_WITH_IMM);
        WANT("number", ntohl(wc.imm_data), at == 0 ? 0xfeedbeef : 1);
        WANT("byte_len", wc.byte_len, at == 0 ? 100 : 0);
    }
    WANT("right data", same(&p->a, 0, &p->b, 0, 100), 1);
}

/* Inline data are taken when the request is posted: from any memory, and what is changed afterwards is not sent. */
static void inline_data(void)
{
    struct pair *p = connected(usual);
    uint8_t local[64];
    memset(local, 'x', sizeof local);
    struct ibv_sge from = {(uintptr_t)local, 64, 0};
    struct request made = request(IBV_WR_RDMA_WRITE, 1, from, &p->b, 0);
    made.wr.send_flags |= IBV_SEND_INLINE;
    WANT("post", post(&p->a, made), 0);
    memset(local, 'y', sizeof local);
    WANT_STATUS("write", outcome(p->a.sent), IBV_WC_SUCCESS);
    WANT("first byte", p->b.memory[0], 'x');
    WANT("last byte", p->b.memory[63], 'x');
    WANT("byte after them", p->b.memory[64], 0);
    WANT("receive", receive_at(&p->b, 1, 1000, 64), 0);
    made = request(IBV_WR_SEND, 2, from, &p->b, 0);
    made.list[0].length = 10;
    made.list[1] = (struct ibv_sge){(uintptr_t)p->a.memory, 5, 0};
    made.wr.num_sge = 2;
    made.wr.send_flags |= IBV_SEND_INLINE;
    memset(p->a.memory, 'z', 5);
    WANT("post in two pieces", post(&p->a, made), 0);
    memset(p->a.memory, 'q', 5);
    WANT("byte_len", take(p->b.received).byte_len, 15);
    WANT("data in two pieces", memcmp(p->b.memory + 1000, "yyyyyyyyyyzzzzz", 15), 0);
}

static void scatter_lists(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 6);
    struct ibv_sge into[2] = {piece(&p->b, 0, 1500), piece(&p->b, 10000, 3000)};
    WANT("receive", receive(&p->b, 1, into, 2), 0);
    struct request made = request(IBV_WR_SEND, 1, piece(&p->a, 500, 2001), &p->b, 0);
    made.list[1] = piece(&p->a, 20000, 999);
    made.wr.num_sge = 2;
    WANT("post", post(&p->a, made), 0);
    WANT("byte_len", take(p->b.received).byte_len, 3000);
    WANT("first piece", same(&p->a, 500, &p->b, 0, 1500), 1);
    WANT("rest of the sender's first piece", same(&p->a, 2000, &p->b, 10000, 501), 1);
    WANT("the sender's second piece", same(&p->a, 20000, &p->b, 10501, 999), 1);
    WANT("byte between", p->b.memory[1500], 0);
    WANT("byte after them", p->b.memory[11500], 0);
    WANT_STATUS("send", outcome(p->a.sent), IBV_WC_SUCCESS);
    made.wr.opcode = IBV_WR_RDMA_WRITE;
    made.wr.wr.rdma.remote_addr = (uintptr_t)p->b.memory + 50000;
    made.wr.wr.rdma.rkey = p->b.mr->rkey;
    WANT("post", post(&p->a, made), 0);
    WANT_STATUS("write", outcome(p->a.sent), IBV_WC_SUCCESS);
    WANT("data of the write", same(&p->a, 500, &p->b, 50000, 2001) && same(&p->a, 20000, &p->b, 52001, 999), 1);
}

static void read_data(void)
{
    struct pair *p = connected(usual);
    fill(&p->b, 77);
    struct request made = request(IBV_WR_RDMA_READ, 1, piece(&p->a, 0, 3000), &p->b, 5);
    made.list[1] = piece(&p->a, 100000, 70000);
    made.wr.num_sge = 2;
    WANT("post", post(&p->a, made), 0);
    struct ibv_wc wc = take(p->a.sent);
    WANT_STATUS("read", wc.status, IBV_WC_SUCCESS);
    WANT("opcode", wc.opcode, IBV_WC_RDMA_READ);
    WANT("byte_len", wc.byte_len, 73000);
    WANT("first piece", same(&p->a, 0, &p->b, 5, 3000), 1);
    WANT("second piece", same(&p->a, 100000, &p->b, 3005, 70000), 1);
    WANT("byte between", p->a.memory[3000], 0);
}

static void fetch_and_add(void)
{
    struct pair *p = connected(usual);
    set_word(&p->b, 128, UINT64_MAX - 1);
    uint64_t old = UINT64_MAX - 1;
    for (int turn = 0; turn < 3; turn++, old += 3) {
        WANT("post", post(&p->a, atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p, 128, 3, 0)), 0);
        struct ibv_wc wc = take(p->a.sent);
        WANT_STATUS("fetch and add", wc.status, IBV_WC_SUCCESS);
        WANT("opcode", wc.opcode, IBV_WC_FETCH_ADD);
        WANT("old value", word(&p->a, 64), old);
        WANT("new value", word(&p->b, 128), old + 3);
    }
    WANT("word before", word(&p->b, 120), 0);
    WANT("word after", word(&p->b, 136), 0);
}

static void compare_and_swap(void)
{
    struct pair *p = connected(usual);
    set_word(&p->b, 128, 42);
    WANT("post", post(&p->a, atomic(IBV_WR_ATOMIC_CMP_AND_SWP, p, 128, 42, 7)), 0);
    struct ibv_wc wc = take(p->a.sent);
    WANT_STATUS("compare and swap", wc.status, IBV_WC_SUCCESS);
    WANT("opcode", wc.opcode, IBV_WC_COMP_SWAP);
    WANT("old value", word(&p->a, 64), 42);
    WANT("new value", word(&p->b, 128), 7);
    WANT("post", post(&p->a, atomic(IBV_WR_ATOMIC_CMP_AND_SWP, p, 128, 42, 9)), 0);
    WANT_STATUS("one that does not match", outcome(p->a.sent), IBV_WC_SUCCESS);
    WANT("old value", word(&p->a, 64), 7);
    WANT("value left alone", word(&p->b, 128), 7);
}

/* ----------------------------------------------------------------------------------------------------------------------- order */

static void completions_in_order(void)
{
    struct pair *p = connected(usual);
    static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (int at = 0; at < MANY / 2; at++)
        WANT("receive", receive_at(&p->b, at, 0, 16), 0);
    for (int at = 0; at < MANY; at++)
        WANT("post", post(&p->a, request(kinds[at % 4], at, piece(&p->a, 0, 16), &p->b, 64)), 0);
    for (int at = 0; at < MANY; at++) {
        struct ibv_wc wc = take(p->a.sent);
        WANT_STATUS("request", wc.status, IBV_WC_SUCCESS);
        WANT("order of requests", wc.wr_id, at);
    }
    for (int at = 0; at < MANY / 2; at++) {
        struct ibv_wc wc = take(p->b.received);
        WANT("order of receives", wc.wr_id, at);
        WANT("kind of receive", wc.opcode, at % 2 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
    }
}

/* What was written before a send is in place when the receive completes; each message is in its own receive. */
static void data_before_message(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 1);
    for (int at = 0; at < MANY; at++)
        WANT("receive", receive_at(&p->b, at, 512 * 1024 + at * 64, 64), 0);
    for (int at = 0; at < MANY; at++) {
        size_t offset = at * 8192;
        WANT("post", post(&p->a, unsignalled(request(IBV_WR_RDMA_WRITE, 0, piece(&p->a, offset, 8192), &p->b, offset))), 0);
        set_word(&p->a, 600 * 1024 + at * 64, at);
        struct request message = request(IBV_WR_SEND, at, piece(&p->a, 600 * 1024 + at * 64, 64), &p->b, 0);
        WANT("post", post(&p->a, at == MANY - 1 ? message : unsignalled(message)), 0);
        if (at % 4 == 3) { /* no more than four messages on their way */
            for (int seen = at - 3; seen <= at; seen++) {
                WANT("order", take(p->b.received).wr_id, seen);
                WANT("data before the message", same(&p->a, seen * 8192, &p->b, seen * 8192, 8192), 1);
                WANT("message in its receive", word(&p->b, 512 * 1024 + seen * 64), seen);
            }
        }
    }
    WANT_STATUS("last send", outcome(p->a.sent), IBV_WC_SUCCESS);
}

static int word_turns(struct side *side, size_t offset, uint64_t value)
{
    volatile uint64_t *seen = (volatile uint64_t *)(side->memory + offset);
    for (double end = now() + PATIENCE; now() < end; usleep(10))
        if (__atomic_load_n(seen, __ATOMIC_ACQUIRE) == value)
            return 1;
    return 0;
}

/* Writes are carried out in order: who sees the later one sees the earlier one. */
static void data_before_flag(void)
{
    struct pair *p = connected(usual);
    for (uint64_t turn = 1; turn <= MANY; turn++) {
        memset(p->a.memory, (int)turn, 5000);
        set_word(&p->a, 8192, turn);
        WANT("post", post(&p->a, unsignalled(request(IBV_WR_RDMA_WRITE, 0, piece(&p->a, 0, 5000), &p->b, 0))), 0);
        WANT("post", post(&p->a, request(IBV_WR_RDMA_WRITE, turn, piece(&p->a, 8192, 8), &p->b, 8192)), 0);
        WANT("flag", word_turns(&p->b, 8192, turn), 1);
        WANT("data before the flag", same(&p->a, 0, &p->b, 0, 5000), 1);
        WANT_STATUS("write", outcome(p->a.sent), IBV_WC_SUCCESS);
    }
}

/* A write, a read of the same place, a fenced write to it: the read gets what the first wrote. */
static void read_between_writes(void)
{
    struct pair *p = connected(usual);
    memset(p->a.memory, 'a', 4096);
    memset(p->a.memory + 4096, 'c', 4096);
    WANT("post", post(&p->a, unsignalled(request(IBV_WR_RDMA_WRITE, 0, piece(&p->a, 0, 4096), &p->b, 0))), 0);
    WANT("post", post(&p->a, unsignalled(request(IBV_WR_RDMA_READ, 0, piece(&p->a, 8192, 4096), &p->b, 0))), 0);
    struct request last = request(IBV_WR_RDMA_WRITE, 3, piece(&p->a, 4096, 4096), &p->b, 0);
    last.wr.send_flags |= IBV_SEND_FENCE;
    WANT("post", post(&p->a, last), 0);
    struct ibv_wc wc = take(p->a.sent);
    WANT_STATUS("last write", wc.status, IBV_WC_SUCCESS);
    WANT("wr_id", wc.wr_id, 3);
    WANT("what was read", same(&p->a, 0, &p->a, 8192, 4096), 1);
    WANT("what is there in the end", same(&p->a, 4096, &p->b, 0, 4096), 1);
}

static void unsignalled_requests(void)
{
    struct pair *p = connected(usual);
    fill(&p->a, 8);
    for (int round = 0; round < 5; round++) { /* more in all than the queue has room for */
        for (int at = 0; at < MANY - 1; at++)
            WANT("post", post(&p->a, unsignalled(request(IBV_WR_RDMA_WRITE, at, piece(&p->a, at * 64, 64), &p->b, at * 64))), 0);
        WANT("post", post(&p->a, request(IBV_WR_RDMA_WRITE, 1000 + round, piece(&p->a, 64 * 31, 64), &p->b, 64 * 31)), 0);
        struct ibv_wc wc = take(p->a.sent);
        WANT_STATUS("the signalled one", wc.status, IBV_WC_SUCCESS);
        WANT("wr_id", wc.wr_id, 1000 + round);
        WANT("data of all before", same(&p->a, 0, &p->b, 0, 64 * MANY), 1);
    }
    WANT("silence", quiet(p->a.sent), 1);
}

/* A list is posted up to the request that cannot be; that one is told, and what stood before it is carried out. */
static void list_with_a_bad_one(void)
{
    struct pair *p = connected(usual);
    struct ibv_sge from = piece(&p->a, 0, 8);
    struct ibv_sge none[1];
    struct ibv_send_wr list[3], *bad = NULL;
    memset(list, 0, sizeof list);
    for (int at = 0; at < 3; at++) {
        list[at] = request(IBV_WR_RDMA_WRITE, at, from, &p->b, at * 8).wr;
        list[at].sg_list = &from;
        list[at].next = at < 2 ? &list[at + 1] : NULL;
    }
    list[1].sg_list = none;
    list[1].num_sge = p->a.cap.max_send_sge + 1;
    p->a.memory[0] = 1;
    WANT("refused", ibv_post_send(p->a.qp, list, &bad) != 0, 1);
    WANT("the bad one", bad - list, 1);
    WANT_STATUS("the one before", outcome(p->a.sent), IBV_WC_SUCCESS);
    WANT("silence", quiet(p->a.sent), 1);
    WANT("its data", p->b.memory[0], 1);
    WANT("data of the one after", p->b.memory[16], 0);
}

static void full_queues(void)
{
    struct pair *p = connected(usual);
    uint32_t posted = 0, granted = p->b.cap.max_recv_wr;
    while (posted <= 4 * granted && receive(&p->b, posted, NULL, 0) == 0)
        posted++;
    /* Devices may round up. */
    WANT("room for as many receives as granted", posted >= granted, 1);
    WANT("an end of that room", posted <= 4 * granted, 1);
    uint8_t local[8] = {0};
    struct request made = request(IBV_WR_RDMA_WRITE, 1, (struct ibv_sge){(uintptr_t)local, 8, 0}, &p->b, 0);
    made.list[0].length = p->a.cap.max_inline_data + 1;
    made.wr.send_flags |= IBV_SEND_INLINE;
    WANT("more inline data than granted is refused", post(&p->a, made) != 0, 1);
}

/* ---------------------------------------------------------------------------------------------------------------------- errors */

/* All that a fault has in common: `bad` fails with `wanted`, signalled or not; what was posted after it is flushed in order; the
 * queue pair is in ERR; what is posted then is flushed too. */
static void fails(struct side *side, struct request bad, int wanted, int other)
{
    struct request later = unsignalled(bad);
    later.wr.wr_id = 2;
    bad.wr.wr_id = 1;
    WANT("receive", receive(side, 50, NULL, 0), 0);
    WANT("post", post(side, unsignalled(bad)), 0);
    int late = post(side, later); /* the first may have failed already: that is no reason to refuse it */
    WANT("post of another", late, 0);
    struct ibv_wc wc = take(side->sent);
    WANT_OR("requester", wc.status, wanted, other);
    WANT("wr_id", wc.wr_id, 1);
    WANT("qp_num", wc.qp_num, side->qp->qp_num);
    wc = take(side->sent);
    WANT_STATUS("request after it", wc.status, IBV_WC_WR_FLUSH_ERR);
    WANT("wr_id of that", wc.wr_id, 2);
    WANT("state", state_of(side), IBV_QPS_ERR);
    wc = take(side->received);
    WANT_STATUS("receive", wc.status, IBV_WC_WR_FLUSH_ERR);
    WANT("wr_id of the receive", wc.wr_id, 50);
    WANT("post in ERR", post(side, later), 0);
    WANT_STATUS("request posted in ERR", outcome(side->sent), IBV_WC_WR_FLUSH_ERR);
    WANT("silence", quiet(side->sent), 1);
}

/* After `fails`: the responder's queue pair is in ERR too, its receives are flushed, its program is told. */
static void responder_broken(struct side *side, enum ibv_event_type event)
{
    if (failure[0])
        return;
    struct ibv_wc wc = take(side->received);
    WANT_STATUS("receive of the responder", wc.status, IBV_WC_WR_FLUSH_ERR);
    WANT("its wr_id", wc.wr_id, 40);
    WANT("state of the responder", state_of(side), IBV_QPS_ERR);
    event_strays(side, event);
}

static void refused_access(struct options options, enum ibv_wr_opcode opcode, int64_t shift, uint32_t key, int wanted, int other)
{
    struct pair *p = connected(options);
    fill(&p->a, 2);
    WANT("receive", receive(&p->b, 40, NULL, 0), 0);
    struct request bad = request(opcode, 1, piece(&p->a, 0, 8), &p->b, 0);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        bad.wr.wr.atomic.remote_addr += shift;
        bad.wr.wr.atomic.rkey ^= key;
    } else {
        bad.wr.wr.rdma.remote_addr += shift;
        bad.wr.wr.rdma.rkey ^= key;
    }
    fails(&p->a, bad, wanted, other);
    responder_broken(&p->b, wanted == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    for (size_t at = 0; at < MEMORY; at++)
        WANT("memory of the responder", p->b.memory[at], 0);
}

static void wrong_key(void)
{
    refused_access(usual, IBV_WR_RDMA_WRITE, 0, 0x55, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void wrong_key_of_a_read(void)
{
    refused_access(usual, IBV_WR_RDMA_READ, 0, 0x55, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void wrong_key_of_an_atomic(void)
{
    refused_access(usual, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0x55, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void beyond_the_end(void)
{
    refused_access(usual, IBV_WR_RDMA_WRITE, MEMORY - 7, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void before_the_beginning(void)
{
    refused_access(usual, IBV_WR_RDMA_WRITE, -1, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void region_without_write_right(void)
{
    struct options options = usual;
    options.region_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    refused_access(options, IBV_WR_RDMA_WRITE, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void region_without_read_right(void)
{
    struct options options = usual;
    options.region_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    refused_access(options, IBV_WR_RDMA_READ, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void region_without_atomic_right(void)
{
    struct options options = usual;
    options.region_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    refused_access(options, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

/* A right that the queue pair lacks makes the operation one that it was not set up for: "invalid request", not "access" (section
 * 9.9, the responder's errors). rxe agrees. */
static void pair_without_write_right(void)
{
    struct options options = usual;
    options.pair_rights = IBV_ACCESS_REMOTE_READ;
    refused_access(options, IBV_WR_RDMA_WRITE, 0, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
}

static void pair_without_read_right(void)
{
    struct options options = usual;
    options.pair_rights = IBV_ACCESS_REMOTE_WRITE;
    refused_access(options, IBV_WR_RDMA_READ, 0, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
}

static void pair_without_atomic_right(void)
{
    struct options options = usual;
    options.pair_rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    refused_access(options, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
}

/* An address that is no multiple of 8 is an invalid request, found by the responder; rxe's library does not even post it. */
static void unaligned_atomic(void)
{
    struct pair *p = connected(usual);
    if (post(&p->a, atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, p, 4, 1, 0)) == EINVAL) {
        stray("not posted, the specification has %s", status_name(IBV_WC_REM_INV_REQ_ERR));
        return;
    }
    refused_access(usual, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void key_of_a_deregistered_region(void)
{
    struct pair *p = connected(usual);
    WANT("receive", receive(&p->b, 40, NULL, 0), 0);
    struct request bad = request(IBV_WR_RDMA_WRITE, 1, piece(&p->a, 0, 8), &p->b, 0);
    WANT("deregistration", ibv_dereg_mr(p->b.mr), 0);
    p->b.mr = NULL;
    fails(&p->a, bad, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    responder_broken(&p->b, IBV_EVENT_QP_ACCESS_ERR);
}

static void key_of_another_domain(void)
{
    struct pair *p = connected(usual), *other = unconnected(usual);
    WANT("receive", receive(&p->b, 40, NULL, 0), 0);
    fails(&p->a, request(IBV_WR_RDMA_WRITE, 1, piece(&p->a, 0, 8), &other->b, 0), IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    responder_broken(&p->b, IBV_EVENT_QP_ACCESS_ERR);
}

/* "Local protection error", and the responder notices nothing. For a key that it does not know, not for one that does not reach
 * so far, rxe has "local QP operation error". */
static void own_fault(struct ibv_sge (*spoil)(struct ibv_sge), enum ibv_wr_opcode opcode, int other)
{
    struct pair *p = connected(usual);
    struct request bad = request(opcode, 1, piece(&p->a, 0, 8), &p->b, 0);
    bad.list[0] = spoil(bad.list[0]);
    fails(&p->a, bad, IBV_WC_LOC_PROT_ERR, other);
    if (!failure[0])
        WANT("state of the responder", state_of(&p->b), IBV_QPS_RTS);
}

static struct ibv_sge other_key(struct ibv_sge piece)
{
    piece.lkey ^= 0x55;
    return piece;
}

static struct ibv_sge too_far(struct ibv_sge piece)
{
    piece.addr += MEMORY - 7;
    return piece;
}

static void own_wrong_key(void)
{
    own_fault(other_key, IBV_WR_RDMA_WRITE, IBV_WC_LOC_QP_OP_ERR);
}

static void own_beyond_the_end(void)
{
    own_fault(too_far, IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR);
}

/* The second request of `fails` is flushed before a receive is looked at. */
static void own_wrong_key_of_a_send(void)
{
    own_fault(other_key, IBV_WR_SEND, IBV_WC_LOC_QP_OP_ERR);
}

/* "Invalid request" for the send, "local length error" for the receive; rxe 6.1 has "remote operation error" and "local QP
 * operation error", as for any receive that it cannot use. */
static void receive_too_small(void)
{
    struct pair *p = connected(usual);
    WANT("receive", receive_at(&p->b, 39, 0, 10), 0);
    WANT("receive", receive(&p->b, 40, NULL, 0), 0);
    fails(&p->a, request(IBV_WR_SEND, 1, piece(&p->a, 0, 11), &p->b, 0), IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR);
    if (failure[0])
        return;
    struct ibv_wc wc = take(p->b.received);
    WANT_OR("responder", wc.status, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR);
    WANT("wr_id of the responder", wc.wr_id, 39);
    responder_broken(&p->b, IBV_EVENT_QP_REQ_ERR);
}

/* "Local protection error" for the receive, "remote operation error" for the send; rxe completes the receive as "local QP
 * operation error". The event is the responder's own fault: "fatal". */
static void receive_with_a_wrong_key(void)
{
    struct pair *p = connected(usual);
    struct ibv_sge into = other_key(piece(&p->b, 0, 100));
    WANT("receive", receive(&p->b, 39, &into, 1), 0);
    WANT("receive", receive(&p->b, 40, NULL, 0), 0);
    fails(&p->a, request(IBV_WR_SEND, 1, piece(&p->a, 0, 11), &p->b, 0), IBV_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
    if (failure[0])
        return;
    WANT_OR("responder", outcome(p->b.received), IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR);
    responder_broken(&p->b, IBV_EVENT_QP_FATAL);
}

static void no_receive_and_few_retries(void)
{
    for (int retries = 0; retries <= 6; retries++) {
        struct options options = usual;
        options.rnr_retries = retries;
        struct pair *p = connected(options);
        double start = now();
        fails(&p->a, request(IBV_WR_SEND, 1, piece(&p->a, 0, 8), &p->b, 0), IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR);
        if (failure[0])
            return;
        WANT("at least as long as the pauses", now() - start >= retries * 0.00064, 1);
        WANT("state of the peer", state_of(&p->b), IBV_QPS_RTS);
    }
}

/* 7 is for ever; also a write with a number needs a receive. */
static void no_receive_and_patience(void)
{
    static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM};
    for (int at = 0; at < 2; at++) {
        struct pair *p = connected(usual);
        p->a.memory[0] = 'm';
        WANT("post", post(&p->a, request(kinds[at], 1, piece(&p->a, 0, 8), &p->b, 64)), 0);
        WANT("silence without a receive", take_within(p->a.sent, 0.1).status, NOTHING);
        WANT("data without a receive", p->b.memory[64], 0);
        WANT("receive", receive_at(&p->b, 1, 64, 8), 0);
        WANT_STATUS("receive", outcome(p->b.received), IBV_WC_SUCCESS);
        WANT_STATUS("request", outcome(p->a.sent), IBV_WC_SUCCESS);
        WANT("data", p->b.memory[64], 'm');
        WANT("state", state_of(&p->a), IBV_QPS_RTS);
    }
}

/* 4.096 us * 2^timeout, once and for each retry; devices may take up to four times as long, and machines are busy.
 * retry_cnt is at most 6 here: rxe takes 7 for "for ever". */
static void nobody_answers(struct pair *pair, struct options options)
{
    double expected = 4.096e-6 * (1 << options.timeout) * (options.retries + 1);
    double start = now();
    WANT("post", post(&pair->a, request(IBV_WR_RDMA_WRITE, 1, piece(&pair->a, 0, 8), &pair->b, 0)), 0);
    WANT("post", post(&pair->a, unsignalled(request(IBV_WR_RDMA_WRITE, 2, piece(&pair->a, 0, 8), &pair->b, 0))), 0);
    int status = outcome(pair->a.sent);
    double took = now() - start;
    WANT_STATUS("request", status, IBV_WC_RETRY_EXC_ERR);
    if (took < expected * 0.5 || took > expected * 8 + 1)
        say(failure, sizeof failure, "time: got %.3f s wanted %.3f to %.3f s", took, expected * 0.5, expected * 8 + 1);
    WANT_STATUS("request after it", outcome(pair->a.sent), IBV_WC_WR_FLUSH_ERR);
    WANT("state", state_of(&pair->a), IBV_QPS_ERR);
    WANT("data", pair->b.memory[0], 0);
}

static const int waits[][2] = {{12, 0}, {12, 6}, {14, 3}, {16, 1}};

static void peer_reset(void)
{
    for (size_t at = 0; at < sizeof waits / sizeof *waits && !failure[0]; at++) {
        struct options options = usual;
        options.timeout = waits[at][0];
        options.retries = waits[at][1];
        struct pair *p = connected(options);
        WANT("reset", to_state(&p->b, IBV_QPS_RESET), 0);
        p->a.memory[0] = 1;
        nobody_answers(p, options);
    }
}

static void peer_destroyed(void)
{
    struct options options = usual;
    options.retries = 3;
    struct pair *p = connected(options);
    WANT("destruction", ibv_destroy_qp(p->b.qp), 0);
    p->b.qp = NULL;
    p->a.memory[0] = 1;
    nobody_answers(p, options);
}

static void peer_in_error(void)
{
    struct options options = usual;
    options.retries = 3;
    struct pair *p = connected(options);
    WANT("change to ERR", to_state(&p->b, IBV_QPS_ERR), 0);
    p->a.memory[0] = 1;
    nobody_answers(p, options);
}

/* Requests that wait for a receive and receives, flushed by hand. */
static void error_by_hand(void)
{
    struct pair *p = connected(usual);
    for (int id = 1; id <= 3; id++) {
        WANT("receive", receive_at(&p->a, 10 + id, 0, 64), 0);
        WANT("post", post(&p->a, unsignalled(request(IBV_WR_SEND, id, piece(&p->a, 0, 8), &p->b, 0))), 0);
    }
    WANT("silence", quiet(p->a.sent), 1);
    WANT("change to ERR", to_state(&p->a, IBV_QPS_ERR), 0);
    for (int id = 1; id <= 3; id++) {
        struct ibv_wc wc = take(p->a.sent);
        WANT_STATUS("request", wc.status, IBV_WC_WR_FLUSH_ERR);
        WANT("wr_id", wc.wr_id, id);
        wc = take(p->a.received);
        WANT_STATUS("receive", wc.status, IBV_WC_WR_FLUSH_ERR);
        WANT("wr_id of the receive", wc.wr_id, 10 + id);
    }
    WANT("state", state_of(&p->a), IBV_QPS_ERR);
    WANT("post in ERR", post(&p->a, request(IBV_WR_RDMA_WRITE, 9, piece(&p->a, 0, 8), &p->b, 0)), 0);
    WANT_STATUS("request posted in ERR", outcome(p->a.sent), IBV_WC_WR_FLUSH_ERR);
    WANT("state of the peer", state_of(&p->b), IBV_QPS_RTS);
}

/* A receive that is posted in ERR is flushed. In rxe posting one does not tell the driver, which flushes it late or never. */
static void receive_posted_in_error(void)
{
    struct pair *p = connected(usual);
    WANT("change to ERR", to_state(&p->a, IBV_QPS_ERR), 0);
    WANT("receive by hand", receive(&p->a, 1, NULL, 0), 0);
    WANT_OR("receive after ERR by hand", take_within(p->a.received, 0.2).status, IBV_WC_WR_FLUSH_ERR, NOTHING);
    p = connected(usual);
    struct request bad = request(IBV_WR_RDMA_WRITE, 1, piece(&p->a, 0, 8), &p->b, 0);
    bad.wr.wr.rdma.rkey ^= 0x55;
    WANT("post", post(&p->a, bad), 0);
    WANT_STATUS("bad request", outcome(p->a.sent), IBV_WC_REM_ACCESS_ERR);
    WANT("receive", receive(&p->a, 1, NULL, 0), 0);
    WANT_OR("receive after a fault", take_within(p->a.received, 0.2).status, IBV_WC_WR_FLUSH_ERR, NOTHING);
    WANT("receive", receive(&p->b, 1, NULL, 0), 0);
    WANT_OR("receive of the responder", take_within(p->b.received, 0.2).status, IBV_WC_WR_FLUSH_ERR, NOTHING);
}

/* A queue pair that failed can be used again by way of RESET. */
static void used_again(void)
{
    struct pair *p = connected(usual);
    struct side *a = &p->a, *b = &p->b;
    struct request bad = request(IBV_WR_RDMA_WRITE, 1, piece(a, 0, 8), b, 0);
    bad.wr.wr.rdma.rkey ^= 0x55;
    WANT("post", post(a, bad), 0);
    WANT_STATUS("bad request", outcome(a->sent), IBV_WC_REM_ACCESS_ERR);
    WANT("reset", to_state(a, IBV_QPS_RESET) || to_state(b, IBV_QPS_RESET), 0);
    WANT("INIT", to_init(a, ALL_RIGHTS) || to_init(b, ALL_RIGHTS), 0);
    WANT("RTR", to_rtr(a, b->qp->qp_num, &b->port->gid) || to_rtr(b, a->qp->qp_num, &a->port->gid), 0);
    WANT("RTS", to_rts(a, usual) || to_rts(b, usual), 0);
    fill(a, 4);
    WANT("post", post(a, request(IBV_WR_RDMA_WRITE, 2, piece(a, 0, 5000), b, 0)), 0);
    struct ibv_wc wc = take(a->sent);
    WANT_STATUS("request", wc.status, IBV_WC_SUCCESS);
    WANT("wr_id", wc.wr_id, 2);
    WANT("data", same(a, 0, b, 0, 5000), 1);
}

/* ---------------------------------------------------------------------------------------------------------------------- events */

/* The queue that an event of the channel is about, null if none comes. */
static struct ibv_cq *told_within(struct side *side, double seconds)
{
    struct pollfd ready = {.fd = side->channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    void *context;
    if (poll(&ready, 1, (int)(seconds * 1000)) == 1 && ibv_get_cq_event(side->channel, &cq, &context) == 0)
        ibv_ack_cq_events(cq, 1);
    else
        cq = NULL;
    return cq;
}

static int told(struct side *side, struct ibv_cq *cq)
{
    return told_within(side, PATIENCE) == cq;
}

static int untold(struct side *side)
{
    return told_within(side, QUIET) == NULL;
}

static int write_once(struct pair *p)
{
    return post(&p->a, request(IBV_WR_RDMA_WRITE, 1, piece(&p->a, 0, 8), &p->b, 0)) == 0 && outcome(p->a.sent) == IBV_WC_SUCCESS;
}

static int send_once(struct pair *p, int flags)
{
    struct request made = request(IBV_WR_SEND, 1, piece(&p->a, 0, 8), &p->b, 0);
    made.wr.send_flags |= flags;
    return receive_at(&p->b, 1, 0, 8) == 0 && post(&p->a, made) == 0 && outcome(p->a.sent) == IBV_WC_SUCCESS &&
           outcome(p->b.received) == IBV_WC_SUCCESS;
}

static void no_event_unasked(void)
{
    struct pair *p = connected(usual);
    WANT("write", write_once(p), 1);
    WANT("send", send_once(p, IBV_SEND_SOLICITED), 1);
    WANT("no event at the sender", untold(&p->a), 1);
    WANT("no event at the receiver", untold(&p->b), 1);
}

static void one_event_each_time(void)
{
    struct pair *p = connected(usual);
    for (int turn = 0; turn < 3; turn++) {
        WANT("asking", ibv_req_notify_cq(p->a.sent, 0), 0);
        WANT("no event yet", untold(&p->a), 1);
        WANT("write", write_once(p), 1);
        WANT("write", write_once(p), 1);
        WANT("event", told(&p->a, p->a.sent), 1);
        WANT("no second event", untold(&p->a), 1);
        WANT("write", write_once(p), 1);
        WANT("no event unasked", untold(&p->a), 1);
    }
    WANT("asking", ibv_req_notify_cq(p->b.received, 0), 0);
    WANT("send", send_once(p, 0), 1);
    WANT("event of a receive", told(&p->b, p->b.received), 1);
    WANT("no second event", untold(&p->b), 1);
}

static void solicited_only(void)
{
    struct pair *p = connected(usual);
    WANT("asking", ibv_req_notify_cq(p->b.received, 1), 0);
    WANT("send", send_once(p, 0), 1);
    WANT("no event without the flag", untold(&p->b), 1);
    WANT("send", send_once(p, IBV_SEND_SOLICITED), 1);
    WANT("event with the flag", told(&p->b, p->b.received), 1);
    WANT("asking", ibv_req_notify_cq(p->b.received, 1), 0);
    WANT("receive", receive(&p->b, 1, NULL, 0), 0);
    struct request made = with_number(request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, piece(&p->a, 0, 8), &p->b, 0), 1);
    made.wr.send_flags |= IBV_SEND_SOLICITED;
    WANT("post", post(&p->a, made), 0);
    WANT("event of a write with a number", told(&p->b, p->b.received), 1);
}

/* Who asks for any completion after having asked for solicited ones gets any. */
static void any_after_solicited(void)
{
    struct pair *p = connected(usual);
    WANT("asking", ibv_req_notify_cq(p->b.received, 1), 0);
    WANT("asking", ibv_req_notify_cq(p->b.received, 0), 0);
    WANT("send", send_once(p, 0), 1);
    WANT("event", told(&p->b, p->b.received), 1);
}

/* Completions that failed wake those who wait for solicited ones. */
static void errors_are_solicited(void)
{
    struct pair *p = connected(usual);
    WANT("asking", ibv_req_notify_cq(p->b.received, 1), 0);
    WANT("receive", receive(&p->b, 1, NULL, 0), 0);
    WANT("change to ERR", to_state(&p->b, IBV_QPS_ERR), 0);
    WANT("event", told(&p->b, p->b.received), 1);
    WANT_STATUS("receive", outcome(p->b.received), IBV_WC_WR_FLUSH_ERR);
}

/* The same of a failed request. rxe takes no completion of a send queue for solicited. */
static void failed_requests_are_solicited(void)
{
    struct pair *p = connected(usual);
    WANT("asking", ibv_req_notify_cq(p->a.sent, 1), 0);
    struct request bad = request(IBV_WR_RDMA_WRITE, 1, piece(&p->a, 0, 8), &p->b, 0);
    bad.list[0] = too_far(bad.list[0]);
    WANT("post", post(&p->a, bad), 0);
    WANT_STATUS("request", outcome(p->a.sent), IBV_WC_LOC_PROT_ERR);
    if (told_within(&p->a, 0.3) != p->a.sent)
        stray("no event for a failed request, the specification has one");
}

/* ---------------------------------------------------------------------------------------------------------------------- states */

static void no_way_without_a_cable(void)
{
    if (!have_uncabled) {
        say(skipped, sizeof skipped, "no third address was given");
        return;
    }
    struct pair *p = unconnected(usual);
    WANT("INIT", to_init(&p->a, ALL_RIGHTS), 0);
    WANT("change to RTR", to_rtr(&p->a, p->b.qp->qp_num, &uncabled), ETIMEDOUT);
    WANT("state", state_of(&p->a), IBV_QPS_INIT);
    WANT("change to RTR along the cable", to_rtr(&p->a, p->b.qp->qp_num, &p->b.port->gid), 0);
}

/* Receives posted in INIT are good in RTR; a peer in RTR, not yet in RTS, takes what comes. */
static void ready_to_receive_is_enough(void)
{
    struct pair *p = unconnected(usual);
    struct side *a = &p->a, *b = &p->b;
    WANT("INIT", to_init(a, ALL_RIGHTS) || to_init(b, ALL_RIGHTS), 0);
    WANT("receive in INIT", receive_at(b, 1, 0, 8), 0);
    WANT("RTR", to_rtr(a, b->qp->qp_num, &b->port->gid) || to_rtr(b, a->qp->qp_num, &a->port->gid), 0);
    WANT("RTS of one side", to_rts(a, usual), 0);
    a->memory[0] = 'r';
    WANT("post", post(a, request(IBV_WR_SEND, 1, piece(a, 0, 8), b, 0)), 0);
    WANT_STATUS("receive", outcome(b->received), IBV_WC_SUCCESS);
    WANT_STATUS("send", outcome(a->sent), IBV_WC_SUCCESS);
    WANT("data", b->memory[0], 'r');
    WANT("state", state_of(b), IBV_QPS_RTR);
}

static void steps_left_out(void)
{
    struct pair *p = unconnected(usual);
    WANT("state of a new pair", state_of(&p->a), IBV_QPS_RESET);
    WANT("RESET to RTS is refused", to_rts(&p->a, usual) != 0, 1);
    WANT("RESET to RTR is refused", to_rtr(&p->a, p->b.qp->qp_num, &p->b.port->gid) != 0, 1);
    WANT("INIT", to_init(&p->a, ALL_RIGHTS), 0);
    WANT("INIT to RTS is refused", to_rts(&p->a, usual) != 0, 1);
    WANT("state", state_of(&p->a), IBV_QPS_INIT);
}

/* -------------------------------------------------------------------------------------------------------------------- the runs */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(write_data), CASE(write_with_imm), CASE(zero_length_write_with_imm), CASE(send_receive), CASE(send_with_imm),
    CASE(inline_data), CASE(scatter_lists), CASE(read_data), CASE(fetch_and_add), CASE(compare_and_swap),
    CASE(completions_in_order), CASE(data_before_message), CASE(data_before_flag), CASE(read_between_writes),
    CASE(unsignalled_requests), CASE(list_with_a_bad_one), CASE(full_queues),
    CASE(wrong_key), CASE(wrong_key_of_a_read), CASE(wrong_key_of_an_atomic), CASE(beyond_the_end), CASE(before_the_beginning),
    CASE(region_without_write_right), CASE(region_without_read_right), CASE(region_without_atomic_right),
    CASE(pair_without_write_right), CASE(pair_without_read_right), CASE(pair_without_atomic_right), CASE(unaligned_atomic),
    CASE(key_of_a_deregistered_region), CASE(key_of_another_domain),
    CASE(own_wrong_key), CASE(own_beyond_the_end), CASE(own_wrong_key_of_a_send),
    CASE(receive_too_small), CASE(receive_with_a_wrong_key), CASE(no_receive_and_few_retries), CASE(no_receive_and_patience),
    CASE(peer_reset), CASE(peer_destroyed), CASE(peer_in_error), CASE(error_by_hand), CASE(receive_posted_in_error),
    CASE(used_again),
    CASE(no_event_unasked), CASE(one_event_each_time), CASE(solicited_only), CASE(any_after_solicited),
    CASE(errors_are_solicited), CASE(failed_requests_are_solicited),
    CASE(no_way_without_a_cable), CASE(ready_to_receive_is_enough), CASE(steps_left_out),
};

/* Whether it passed. */
static int play(int at)
{
    failure[0] = deviation[0] = skipped[0] = 0;
    cases[at].run();
    close_pairs();
    if (failure[0])
        printf("FAILED %s: %s\n", cases[at].name, failure);
    else if (skipped[0])
        printf("skipped %s: %s\n", cases[at].name, skipped);
    else if (deviation[0])
        printf("ok %s (deviates: %s)\n", cases[at].name, deviation);
    else
        printf("ok %s\n", cases[at].name);
    return !failure[0];
}

static int chosen(const char *name, int count, char **names)
{
    for (int at = 0; at < count; at++)
        if (strcmp(name, names[at]) == 0)
            return 1;
    return count == 0;
}

int main(int count, char **arguments)
{
    int played = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3) {
        printf("usage: conformance NEAR FAR [UNCABLED|-] [CASE...]\n");
        return 2;
    }
    find_port(arguments[1], &near_port);
    find_port(arguments[2], &far_port);
    have_uncabled = count > 3 && strcmp(arguments[3], "-") != 0;
    if (have_uncabled)
        uncabled = gid_of(arguments[3]);
    alarm(240); /* a call that never returns */
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (!chosen(cases[at].name, count > 4 ? count - 4 : 0, arguments + 4))
            continue;
        played++;
        failed += !play(at);
    }
    printf("%d cases, %d failed\n", played, failed);
    return failed != 0 || played == 0;
}
