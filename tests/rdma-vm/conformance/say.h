/* What all parts share, and how a case says what is wrong. Part of conformance.c. */

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
