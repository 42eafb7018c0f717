/*
 * A broker that keeps nothing: it answers valid Kafka frames as fast as one thread can.
 *
 *     fake_broker PORT [ADVERTISED_HOST ADVERTISED_PORT]
 *
 * Listens on 127.0.0.1 (port 0: any free one), writes "listening on 127.0.0.1:PORT" and serves until it is ended.
 *
 * Produce 9-12 gets a small answer without errors. Fetch 12 gets an answer of as many bytes as its max_bytes says, its
 * frame's size included. ApiVersions 0-4, Metadata 9-12 (one broker: itself; one topic, whatever was asked for),
 * DescribeCluster 0-1 and DescribeClientQuotas 0-1 (no quotas) are answered too. On anything else the connection ends.
 * Layouts: Kafka's message definitions (clients/src/main/resources/common/message).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, API_VERSIONS = 18, DESCRIBE_CLIENT_QUOTAS = 48, DESCRIBE_CLUSTER = 60 };
enum {
    READ_BYTES = 1 << 18,
    LOOK_AT = 1024, /* of a request; what comes after is not looked at */
    QUEUE = 1 << 14, /* answers that wait on one connection */
    MOST_FETCHED = 64 << 20,
    HEAD = 8, /* of an answer: size and correlation id, which differ; the rest is shared */
    AT_ONCE = 64,
};

static const char TOPIC[] = "bench";
static const char *advertised_host = "127.0.0.1";
static int advertised_port;

/* ---- writing ---- */

typedef struct {
    uint8_t *bytes;
    size_t length;
} Body;

static void put(Body *body, const void *bytes, size_t length) {
    body->bytes = realloc(body->bytes, body->length + length);
    if (!body->bytes) abort();
    memcpy(body->bytes + body->length, bytes, length);
    body->length += length;
}
static void i8(Body *body, int value) { put(body, &(uint8_t){(uint8_t)value}, 1); }
static void i16(Body *body, int value) { put(body, &(uint16_t){htons((uint16_t)value)}, 2); }
static void i32(Body *body, int value) { put(body, &(uint32_t){htonl((uint32_t)value)}, 4); }
static void i64(Body *body, int64_t value) {
    i32(body, (int)(value >> 32));
    i32(body, (int)value);
}
static void uvarint(Body *body, uint32_t value) {
    for (; value >= 0x80; value >>= 7) i8(body, (int)(value & 0x7f) | 0x80);
    i8(body, (int)value);
}
static void string(Body *body, const char *text) { /* compact; NULL is null */
    uvarint(body, text ? (uint32_t)strlen(text) + 1 : 0);
    if (text) put(body, text, strlen(text));
}
static void tags(Body *body) { i8(body, 0); }
static void array(Body *body, uint32_t elements) { uvarint(body, elements + 1); }

/* ---- answers, without their first HEAD bytes ---- */

static Body produced(void) {
    Body body = {0};
    tags(&body); /* of the header */
    array(&body, 1);
    string(&body, TOPIC);
    array(&body, 1);
    i32(&body, 0);  /* partition */
    i16(&body, 0);  /* error */
    i64(&body, 0);  /* base offset */
    i64(&body, -1); /* log append time */
    i64(&body, 0);  /* log start offset */
    array(&body, 0);
    string(&body, NULL);
    tags(&body);
    tags(&body);
    i32(&body, 0); /* throttle time */
    tags(&body);
    return body;
}

static Body fetched_with(uint32_t records) {
    Body body = {0};
    tags(&body);
    i32(&body, 0); /* throttle time */
    i16(&body, 0); /* error */
    i32(&body, 0); /* session */
    array(&body, 1);
    string(&body, TOPIC);
    array(&body, 1);
    i32(&body, 0);          /* partition */
    i16(&body, 0);          /* error */
    i64(&body, 1);          /* high watermark */
    i64(&body, 1);          /* last stable offset */
    i64(&body, 0);          /* log start offset */
    uvarint(&body, 0);      /* no aborted transactions */
    i32(&body, -1);         /* preferred read replica */
    uvarint(&body, records + 1);
    void *zeros = calloc(records + 1, 1);
    if (!zeros) abort();
    put(&body, zeros, records);
    free(zeros);
    tags(&body);
    tags(&body);
    tags(&body);
    return body;
}

/* Kept for the next who asks for as much. A byte less than that where the records' length would take one more. */
static const Body *fetched(uint32_t frame_bytes) {
    static struct {
        uint32_t frame_bytes;
        Body body;
    } made[16];
    static unsigned next;
    for (unsigned i = 0; i < 16; i++)
        if (made[i].body.bytes && made[i].frame_bytes == frame_bytes) return &made[i].body;
    if (next == 16) return NULL;
    Body smallest = fetched_with(0);
    uint32_t records = frame_bytes > HEAD + smallest.length ? frame_bytes - HEAD - (uint32_t)smallest.length : 0;
    free(smallest.bytes);
    for (Body body;; records--) {
        body = fetched_with(records);
        if (records == 0 || HEAD + body.length <= frame_bytes) {
            made[next].frame_bytes = frame_bytes;
            made[next].body = body;
            return &made[next++].body;
        }
        free(body.bytes);
    }
}

static const int SPOKEN[][3] = {
    {PRODUCE, 9, 12}, {FETCH, 12, 12}, {METADATA, 9, 12},
    {API_VERSIONS, 0, 4}, {DESCRIBE_CLIENT_QUOTAS, 0, 1}, {DESCRIBE_CLUSTER, 0, 1},
};
enum { APIS = sizeof SPOKEN / sizeof SPOKEN[0] };

static Body versions(int version) { /* the header never has tags */
    Body body = {0};
    int flexible = version >= 3 && version <= 4;
    i16(&body, version > 4 ? 35 : 0); /* UNSUPPORTED_VERSION, in version 0 (KIP-511) */
    if (flexible) array(&body, APIS);
    else i32(&body, APIS);
    for (int i = 0; i < APIS; i++) {
        for (int j = 0; j < 3; j++) i16(&body, SPOKEN[i][j]);
        if (flexible) tags(&body);
    }
    if (version >= 1 && version <= 4) i32(&body, 0); /* throttle time */
    if (flexible) tags(&body);
    return body;
}

static void brokers(Body *body) {
    array(body, 1);
    i32(body, 1);
    string(body, advertised_host);
    i32(body, advertised_port);
    string(body, NULL); /* rack */
    tags(body);
}

static Body metadata(int version) {
    static const uint8_t TOPIC_ID[16] = {1};
    Body body = {0};
    tags(&body);
    i32(&body, 0); /* throttle time */
    brokers(&body);
    string(&body, "benchmark");
    i32(&body, 1); /* controller */
    array(&body, 1);
    i16(&body, 0);
    string(&body, TOPIC);
    if (version >= 10) put(&body, TOPIC_ID, sizeof TOPIC_ID);
    i8(&body, 0); /* internal */
    array(&body, 1);
    i16(&body, 0);
    i32(&body, 0); /* partition */
    i32(&body, 1); /* leader */
    i32(&body, 0); /* its epoch */
    for (int i = 0; i < 2; i++) { /* replicas, in sync */
        array(&body, 1);
        i32(&body, 1);
    }
    array(&body, 0);
    tags(&body);
    i32(&body, INT32_MIN); /* authorized operations: not asked for */
    tags(&body);
    if (version <= 10) i32(&body, INT32_MIN);
    tags(&body);
    return body;
}

static Body described_cluster(int version) {
    Body body = {0};
    tags(&body);
    i32(&body, 0);
    i16(&body, 0);
    string(&body, NULL);
    if (version >= 1) i8(&body, 1); /* these are brokers */
    string(&body, "benchmark");
    i32(&body, 1);
    brokers(&body);
    i32(&body, INT32_MIN);
    tags(&body);
    return body;
}

static Body described_quotas(int version) {
    Body body = {0};
    if (version >= 1) tags(&body);
    i32(&body, 0);
    i16(&body, 0);
    if (version >= 1) {
        string(&body, NULL);
        array(&body, 0);
        tags(&body);
    } else {
        i16(&body, -1);
        i32(&body, 0);
    }
    return body;
}

/* One of each, made when it is first asked for; NULL: such a request is not answered. */
static const Body *answer(int key, int version, const uint8_t *request, size_t length) {
    static Body made[APIS][16];
    if (key == FETCH && version == 12) {
        size_t at = 10 + (size_t)(int16_t)(request[8] << 8 | request[9]); /* after the client id */
        if (request[8] & 0x80) at = 10;                                  /* a null one */
        at += 1 + 12;                                                     /* tags; replica, max_wait, min_bytes */
        if (at + 4 > length) return NULL;
        uint32_t wanted = (uint32_t)request[at] << 24 | request[at + 1] << 16 | request[at + 2] << 8 | request[at + 3];
        return wanted <= MOST_FETCHED ? fetched(wanted) : NULL;
    }
    for (int i = 0; i < APIS; i++) {
        if (SPOKEN[i][0] != key) continue;
        int known = version >= SPOKEN[i][1] && version <= SPOKEN[i][2];
        if (!known && key != API_VERSIONS) return NULL;
        Body *body = &made[i][known ? version : 15];
        if (!body->bytes) {
            switch (key) {
            case PRODUCE: *body = produced(); break;
            case METADATA: *body = metadata(version); break;
            case API_VERSIONS: *body = versions(known ? version : 99); break;
            case DESCRIBE_CLIENT_QUOTAS: *body = described_quotas(version); break;
            case DESCRIBE_CLUSTER: *body = described_cluster(version); break;
            default: return NULL;
            }
        }
        return body;
    }
    return NULL;
}

/* ---- connections ---- */

typedef struct {
    uint8_t head[HEAD];
    const Body *body;
} Answer;

typedef struct {
    int fd;
    uint32_t watched;
    uint8_t kept[LOOK_AT + 4]; /* the beginning of a request that has not come whole */
    size_t has;
    size_t skip; /* bytes of a request that are not looked at, and have not come */
    Answer *answers;
    unsigned first, count; /* of the answers that are not sent */
    size_t sent;           /* bytes of the first of them */
} Connection;

static int epoll;

static void watch(Connection *one, uint32_t events) {
    if (one->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = one};
    epoll_ctl(epoll, one->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, one->fd, &event);
    one->watched = events;
}

static void end(Connection *one) {
    close(one->fd);
    free(one->answers);
    free(one);
}

static int flush(Connection *one) { /* 0: the connection is broken */
    while (one->count) {
        struct iovec parts[2 * AT_ONCE];
        int n = 0;
        size_t skip = one->sent;
        for (unsigned i = 0; i < one->count && i < AT_ONCE; i++) {
            Answer *each = &one->answers[(one->first + i) % QUEUE];
            if (skip < HEAD) parts[n++] = (struct iovec){each->head + skip, HEAD - skip};
            size_t of_body = skip > HEAD ? skip - HEAD : 0;
            parts[n++] = (struct iovec){each->body->bytes + of_body, each->body->length - of_body};
            skip = 0;
        }
        ssize_t written = writev(one->fd, parts, n);
        if (written < 0) {
            if (errno != EAGAIN) return 0;
            watch(one, EPOLLIN | EPOLLOUT);
            return 1;
        }
        one->sent += (size_t)written;
        while (one->count && one->sent >= HEAD + one->answers[one->first].body->length) {
            one->sent -= HEAD + one->answers[one->first].body->length;
            one->first = (one->first + 1) % QUEUE;
            one->count--;
        }
    }
    watch(one, EPOLLIN);
    return 1;
}

static int received(Connection *one, const uint8_t *request, size_t length) { /* without its size */
    if (one->count == QUEUE) return 0;
    const Body *body = answer(request[0] << 8 | request[1], request[2] << 8 | request[3], request, length);
    if (!body) return 0;
    Answer *next = &one->answers[(one->first + one->count++) % QUEUE];
    uint32_t size = htonl((uint32_t)(body->length + HEAD - 4));
    memcpy(next->head, &size, 4);
    memcpy(next->head + 4, request + 4, 4);
    next->body = body;
    return 1;
}

/* Take the requests out of what came; 0: the connection is broken. */
static int parse(Connection *one, const uint8_t *bytes, size_t length) {
    while (length) {
        size_t part;
        if (one->skip) {
            part = one->skip < length ? one->skip : length;
            one->skip -= part;
        } else {
            size_t wanted = 4;
            uint32_t size = 0;
            if (one->has >= 4) {
                memcpy(&size, one->kept, 4);
                size = ntohl(size);
                if (size < 10 || size > (128u << 20)) return 0;
                wanted += size < LOOK_AT ? size : LOOK_AT;
            }
            part = wanted - one->has < length ? wanted - one->has : length;
            memcpy(one->kept + one->has, bytes, part);
            one->has += part;
            if (one->has == wanted && wanted > 4) {
                if (!received(one, one->kept + 4, wanted - 4)) return 0;
                one->skip = size + 4 - wanted;
                one->has = 0;
            }
        }
        bytes += part;
        length -= part;
    }
    return 1;
}

static int serve(Connection *one, uint32_t events) { /* 0: it ended */
    static uint8_t buffer[READ_BYTES];
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t length = read(one->fd, buffer, sizeof buffer);
        if (length == 0 || (length < 0 && errno != EAGAIN)) return 0;
        if (length > 0 && !parse(one, buffer, (size_t)length)) return 0;
    }
    return flush(one);
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: fake_broker PORT [ADVERTISED_HOST ADVERTISED_PORT]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) {
        perror("fake_broker");
        return 1;
    }
    getsockname(listener, (struct sockaddr *)&address, &size);
    advertised_port = ntohs(address.sin_port);
    if (argc == 4) {
        advertised_host = argv[2];
        advertised_port = atoi(argv[3]);
    }
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, ready, 256, -1);
        for (int i = 0; i < count; i++) {
            Connection *one = ready[i].data.ptr;
            if (one) {
                if (!serve(one, ready[i].events)) end(one);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            one = calloc(1, sizeof *one);
            if (!one || !(one->answers = calloc(QUEUE, sizeof(Answer)))) abort();
            one->fd = fd;
            watch(one, EPOLLIN);
        }
    }
}
