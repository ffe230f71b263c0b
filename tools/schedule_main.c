/* schedule: the schedule of a collective, of all its ranks, as text or as a picture. */
#include <collectives/schedule.h>
#include <getopt.h>
#include <inttypes.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <talloc.h>

#include "program/program.h"

static const char usage[] =
    "schedule --collective NAME --algorithm NAME [--ranks N] [--count N] [--root N] [--radix N]\n"
    "         [--per-group N] [--text | --svg | --cost]\n"
    "schedule --list\n"
    "\n"
    "  --count      elements of 1 byte of each member, or of each block (8)\n"
    "  --per-group  ranks of one host, for a hierarchy (4)\n"
    "  --text       every rank's steps (unless another is asked for)\n"
    "  --svg        a picture: ranks from left to right, rounds downwards, messages as arrows\n"
    "  --cost       one line: most steps and bytes sent of a rank, and the longest chain of "
    "messages\n";

enum { MOST_RANKS = 256, MOST_COUNT = 1 << 16 };

struct program {
    enum coll_algorithm algorithm;
    struct coll_shape shape;
    struct schedule **rank;
    uint32_t **depth; /* of each step: messages before and with it */
};

/* ---- building -------------------------------------------------------------------------------- */

/* The v-forms are shown with equal blocks, neighbours as a ring. */
static bool add_vectors(struct program *p) {
    uint32_t n = p->shape.size;
    uint64_t *at = weft__alloc(p->rank, 2 * (size_t)n * sizeof *at, "blocks");
    uint64_t *known = weft__alloc(p->rank, 2 * (size_t)n * n * sizeof *known, "counts");
    if (!at || !known) return false;
    for (size_t i = 0; i < 2 * (size_t)n * n; i++) known[i] = p->shape.count;
    p->shape.known = known;
    for (uint32_t r = 0; r < n; r++) {
        at[r] = p->shape.count;
        at[n + r] = r * p->shape.count;
    }
    p->shape.src = p->shape.dst = (struct coll_vector){at, at + n};
    return true;
}

static bool build_rank(struct program *p, uint32_t r) {
    uint32_t ring[2] = {(r + 1) % p->shape.size, (r + p->shape.size - 1) % p->shape.size};
    p->shape.rank = r;
    p->shape.n_sources = p->shape.n_destinations = 2;
    p->shape.source = p->shape.destination = ring;
    weft_status_t st = weft__schedule_build(p->rank, p->algorithm, &p->shape, &p->rank[r]);
    p->shape.source = p->shape.destination = NULL;
    if (st < 0) return false;
    p->depth[r] = weft__alloc(p->rank, (p->rank[r]->n_steps + 1) * sizeof **p->depth, "depth");
    return p->depth[r] != NULL;
}

static const struct step *find_mate(const struct program *p, uint32_t r, const struct step *step,
                                    uint32_t *index_p) {
    const struct schedule *peer = p->rank[step->peer];
    for (uint32_t i = 0; i < peer->n_steps; i++) {
        const struct step *other = &peer->step[i];
        if (other->verb == STEP_SEND && other->peer == r && other->tag == step->tag) {
            *index_p = i;
            return other;
        }
    }
    return NULL;
}

/* What a step must come after; more each time until nothing changes. */
static bool deepen(struct program *p, uint32_t r, uint32_t i) {
    const struct step *step = &p->rank[r]->step[i];
    uint32_t deepest = 0, mate;
    for (int k = 0; k < 3; k++)
        if (step->after[k] && p->depth[r][step->after[k] - 1] > deepest)
            deepest = p->depth[r][step->after[k] - 1];
    if (step->verb == STEP_SEND || step->verb == STEP_PUT) deepest++;
    if (step->verb == STEP_RECV && find_mate(p, r, step, &mate) &&
        p->depth[step->peer][mate] > deepest)
        deepest = p->depth[step->peer][mate];
    if (deepest <= p->depth[r][i]) return false;
    p->depth[r][i] = deepest;
    return true;
}

static bool build(struct program *p) {
    p->rank = weft__alloc(NULL, p->shape.size * sizeof *p->rank, "ranks");
    p->depth = weft__alloc(p->rank, p->shape.size * sizeof *p->depth, "depths");
    if (!p->rank || !p->depth || !add_vectors(p)) return false;
    for (uint32_t r = 0; r < p->shape.size; r++)
        if (!build_rank(p, r)) return false;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < p->shape.size; r++)
            for (uint32_t i = 0; i < p->rank[r]->n_steps; i++) more |= deepen(p, r, i);
    }
    return true;
}

/* ---- as text --------------------------------------------------------------------------------- */

static const char *ref(char *to, size_t size, unsigned buffer, uint64_t offset, uint64_t len) {
    static const char *const name[] = {"src", "dst", "scratch"};
    snprintf(to, size, "%s[%" PRIu64 "..%" PRIu64 ")", name[buffer], offset, offset + len);
    return to;
}

static void print_step(const struct step *step) {
    char to[64], left[64], right[64];
    ref(to, sizeof to, step->to_buffer, step->to, step->len);
    ref(left, sizeof left, step->left_buffer, step->left, step->len);
    ref(right, sizeof right, step->right_buffer, step->right, step->len);
    switch ((enum step_verb)step->verb) {
    case STEP_SEND: printf("send %s to %u, tag %u", left, step->peer, step->tag); break;
    case STEP_RECV: printf("receive %s from %u, tag %u", to, step->peer, step->tag); break;
    case STEP_PUT:
        printf("put %s to %u at dst[%llu]", left, step->peer, (unsigned long long)step->to);
        break;
    case STEP_SHARE:
        printf("%s by slots among %" PRIu64 ": %s to %s",
               weft__coll_name((enum coll_kind)step->tag), step->right, left, to);
        break;
    case STEP_REDUCE: printf("%s = %s op %s", to, left, right); break;
    case STEP_COPY: step->len ? printf("%s = %s", to, left) : printf("join"); break;
    }
    for (int k = 0, n = 0; k < 3; k++)
        if (step->after[k]) printf("%s%u", n++ ? ", " : "; after ", step->after[k]);
    putchar('\n');
}

static void print_text(const struct program *p) {
    for (uint32_t r = 0; r < p->shape.size; r++) {
        printf("rank %u\n", r);
        for (uint32_t i = 0; i < p->rank[r]->n_steps; i++) {
            printf("  %3u  ", i + 1);
            print_step(&p->rank[r]->step[i]);
        }
    }
}

static void print_cost(const struct program *p) {
    uint64_t steps = 0, bytes = 0, depth = 0;
    for (uint32_t r = 0; r < p->shape.size; r++) {
        const struct schedule *s = p->rank[r];
        uint64_t sent = 0;
        for (uint32_t i = 0; i < s->n_steps; i++) {
            if (s->step[i].verb == STEP_SEND || s->step[i].verb == STEP_PUT) sent += s->step[i].len;
            if (p->depth[r][i] > depth) depth = p->depth[r][i];
        }
        if (sent > bytes) bytes = sent;
        if (s->n_steps > steps) steps = s->n_steps;
    }
    printf("%s %s, %u ranks: %llu steps, %llu bytes, depth %llu\n", weft__coll_name(p->shape.kind),
           weft__algorithms[p->algorithm].name, p->shape.size, (unsigned long long)steps,
           (unsigned long long)bytes, (unsigned long long)depth);
}

/* ---- as a picture ---------------------------------------------------------------------------- */

enum { ACROSS = 80, DOWN = 48, EDGE = 48 };

static void print_arrow(const struct program *p, uint32_t r, uint32_t i) {
    const struct step *step = &p->rank[r]->step[i];
    uint32_t mate;
    if (step->verb != STEP_RECV || !find_mate(p, r, step, &mate)) return;
    uint32_t sent = p->depth[step->peer][mate], x1 = EDGE + step->peer * ACROSS,
             x2 = EDGE + r * ACROSS;
    uint32_t y1 = EDGE + (sent - 1) * DOWN, y2 = EDGE + p->depth[r][i] * DOWN - 8;
    printf("<line x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"#06c\" "
           "marker-end=\"url(#tip)\"><title>%u to %u: %llu bytes, tag %u</title></line>\n",
           x1, y1, x2, y2, step->peer, r, (unsigned long long)step->len, step->tag);
}

static void print_svg(const struct program *p) {
    uint32_t deepest = 1;
    for (uint32_t r = 0; r < p->shape.size; r++)
        for (uint32_t i = 0; i < p->rank[r]->n_steps; i++)
            if (p->depth[r][i] > deepest) deepest = p->depth[r][i];
    uint32_t width = 2 * EDGE + (p->shape.size - 1) * ACROSS, height = 2 * EDGE + deepest * DOWN;
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
           "font-family=\"sans-serif\" font-size=\"13\">\n"
           "<title>%s %s, %u ranks</title>\n"
           "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
           "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#06c\"/></marker>"
           "</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
           width, height, weft__coll_name(p->shape.kind), weft__algorithms[p->algorithm].name,
           p->shape.size);
    for (uint32_t r = 0; r < p->shape.size; r++)
        printf("<text x=\"%u\" y=\"24\" text-anchor=\"middle\">%u</text>"
               "<line x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"#999\"/>\n",
               EDGE + r * ACROSS, r, EDGE + r * ACROSS, EDGE - 16, EDGE + r * ACROSS,
               EDGE + deepest * DOWN);
    for (uint32_t r = 0; r < p->shape.size; r++)
        for (uint32_t i = 0; i < p->rank[r]->n_steps; i++) print_arrow(p, r, i);
    printf("</svg>\n");
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static int list_all(void) {
    for (unsigned a = 0; a < N_ALGORITHMS; a++)
        printf("%s %s%s\n", weft__coll_name(weft__algorithms[a].kind), weft__algorithms[a].name,
               weft__algorithms[a].fixed_order ? " (in the order of ranks)" : "");
    return 0;
}

static bool find_algorithm(struct program *p, const char *collective, const char *algorithm) {
    for (unsigned a = 0; collective && algorithm && a < N_ALGORITHMS; a++)
        if (!strcmp(weft__coll_name(weft__algorithms[a].kind), collective) &&
            !strcmp(weft__algorithms[a].name, algorithm)) {
            p->algorithm = (enum coll_algorithm)a;
            p->shape.kind = weft__algorithms[a].kind;
            return true;
        }
    fprintf(stderr, "schedule: no such algorithm; schedule --list names them\n");
    return false;
}

/* Ends the program if it is none. */
static uint32_t number(const char *option, const char *text, uint32_t least, uint32_t most) {
    uint64_t value = 0;
    if (!program_number(text, least, most, &value)) {
        fprintf(stderr, "schedule: --%s %s: %u to %u\n", option, text, least, most);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv) {
    program_begin();
    static const struct option options[] = {{"collective", 1, 0, 'c'},
                                            {"algorithm", 1, 0, 'a'},
                                            {"ranks", 1, 0, 'n'},
                                            {"count", 1, 0, 'e'},
                                            {"root", 1, 0, 'r'},
                                            {"radix", 1, 0, 'k'},
                                            {"per-group", 1, 0, 'g'},
                                            {"text", 0, 0, 't'},
                                            {"svg", 0, 0, 's'},
                                            {"cost", 0, 0, 'o'},
                                            {"list", 0, 0, 'l'},
                                            {"help", 0, 0, 'h'},
                                            {0}};
    struct program p = {.shape = {.size = 4, .count = 8, .width = 1, .segment = 4, .per_group = 4}};
    const char *collective = NULL, *algorithm = NULL;
    void (*print)(const struct program *) = print_text;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (c) {
        case 'c': collective = optarg; break;
        case 'a': algorithm = optarg; break;
        case 'n': p.shape.size = number("ranks", optarg, 1, MOST_RANKS); break;
        case 'e': p.shape.count = number("count", optarg, 0, MOST_COUNT); break;
        case 'r': p.shape.root = number("root", optarg, 0, MOST_RANKS - 1); break;
        case 'k': p.shape.radix = number("radix", optarg, 0, MOST_RANKS); break;
        case 'g': p.shape.per_group = number("per-group", optarg, 1, MOST_RANKS); break;
        case 't': print = print_text; break;
        case 's': print = print_svg; break;
        case 'o': print = print_cost; break;
        case 'l': return program_end("schedule", list_all());
        case 'h': fputs(usage, stdout); return program_end("schedule", 0);
        default: fputs(usage, stderr); return 2;
        }
    if (optind < argc || p.shape.root >= p.shape.size) {
        fprintf(stderr, "schedule: %s\n",
                optind < argc ? "an argument that is no option" : "the root is none of the ranks");
        return 2;
    }
    if (!find_algorithm(&p, collective, algorithm)) return 2;
    if (!build(&p)) {
        fputs("schedule: there is no such schedule for this number of ranks, or no memory\n",
              stderr);
        return 1;
    }
    print(&p);
    talloc_free(p.rank); /* the parent of all */
    return program_end("schedule", 0);
}
