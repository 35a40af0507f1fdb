/* Ports, found by their GIDs, and pairs of queue pairs between them. Part of conformance.c. */

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
