/* Cases: the way from RESET to RTS. Part of conformance.c. */

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
