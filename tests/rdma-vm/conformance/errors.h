/* Cases: what is refused, how it is told, and what becomes of the queue pair. Part of conformance.c. */

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
