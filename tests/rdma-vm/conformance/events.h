/* Cases: who is woken by what. Part of conformance.c. */

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
