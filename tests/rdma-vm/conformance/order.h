/* Cases: what comes before what, and queues that are full. Part of conformance.c. */

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
