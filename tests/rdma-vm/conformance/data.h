/* Cases: what the operations do with data. Part of conformance.c. */

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
