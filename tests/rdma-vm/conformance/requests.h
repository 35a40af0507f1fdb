/* Requests, completions and events of a pair. Part of conformance.c. */

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
