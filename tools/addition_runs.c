/* One run of the task `addition`, as fast as one core allows. The library is the reference: see addition_runs.py.

   P and WIDTH, a multiple of 16, are given at compile time. Weights are A (P x WIDTH), B (P x WIDTH) and the transposed output (P x WIDTH). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (3 * P * WIDTH)
#define PADDED ((P + 15) / 16 * 16)
#define ALPHA_SEEN 0.98f /* of the average whose coherence is recorded */

typedef struct {
    int train_points, val_points, batch, entropy; /* batch 0: all pairs */
    int steps, eval_every, hold;                   /* hold < 0: run to the end of the budget */
    int filter, window, start;                     /* 0: none, 1: EMA, 2: MA */
    int optimizer;
    float level, lr, decay, beta1, beta2, eps, clip, alpha, lamb, average, slow_beta, slow_gain;
} Settings;

enum { ADAMW, NADAM, ADEMAMIX, MUON };

/* Room for the hidden layer and the slopes of some pairs. */
typedef struct {
    float (*hidden)[WIDTH], (*squared)[WIDTH], (*slope)[PADDED];
} Room;

typedef float Lanes __attribute__((vector_size(64), aligned(4)));

/* slope[n] <- squared[n] W for all pairs, eight at a time, so that the sums stay in registers. */
static void forward(const float *out, Room room, int count) {
    static _Thread_local float padded[WIDTH][PADDED] __attribute__((aligned(64)));
    for (int k = 0; k < WIDTH; k++)
        for (int j = 0; j < P; j++) padded[k][j] = out[j * WIDTH + k];
    for (int n = 0; n < count; n += 8) {
        for (int part = 0; part < PADDED; part += 16) {
            Lanes sum[8] = {0};
            for (int k = 0; k < WIDTH; k++) {
                Lanes column = *(const Lanes *)&padded[k][part];
                for (int i = 0; i < 8; i++) sum[i] += room.squared[n + i][k] * column;
            }
            for (int i = 0; i < 8; i++) *(Lanes *)&room.slope[n + i][part] = sum[i];
        }
    }
}

/* Loss and number of right answers of some pairs; the gradient too where `grad` is given. */
static float pass(const float *w, const int *left, const int *right, const int *answer, int count, int entropy,
                  float *grad, int *correct, Room room) {
    const float *a = w, *b = w + P * WIDTH, *out = w + 2 * P * WIDTH;
    double loss = 0;
    *correct = 0;
    for (int n = 0; n < count; n++) {
        const float *x = a + left[n] * WIDTH, *y = b + right[n] * WIDTH;
        for (int k = 0; k < WIDTH; k++) {
            float sum = x[k] + y[k];
            room.hidden[n][k] = sum;
            room.squared[n][k] = sum * sum;
        }
    }
    forward(out, room, count);
    for (int n = 0; n < count; n++) {
        float *slope = room.slope[n];
        int best = 0;
        for (int j = 1; j < P; j++)
            if (slope[j] > slope[best]) best = j;
        *correct += best == answer[n];
        if (entropy) {
            float top = slope[best], total = 0;
            for (int j = 0; j < P; j++) total += expf(slope[j] - top);
            loss += top + logf(total) - slope[answer[n]];
            for (int j = 0; j < P; j++) slope[j] = expf(slope[j] - top) / total;
            slope[answer[n]] -= 1;
            for (int j = 0; j < P; j++) slope[j] /= count;
        } else {
            slope[answer[n]] -= 1;
            float sum = 0;
            for (int j = 0; j < P; j++) sum += slope[j] * slope[j];
            loss += sum;
            for (int j = 0; j < P; j++) slope[j] *= 2.0f / count;
        }
    }
    if (!grad) return (float)(loss / count);
    memset(grad, 0, 2 * P * WIDTH * sizeof(float));
    for (int n = 0; n < count; n++) {
        float *to_left = grad + left[n] * WIDTH, *to_right = grad + (P + right[n]) * WIDTH;
        Lanes back[WIDTH / 16] = {0};
        for (int j = 0; j < P; j++)
            for (int k = 0; k < WIDTH / 16; k++) back[k] += room.slope[n][j] * *(const Lanes *)&out[j * WIDTH + 16 * k];
        for (int k = 0; k < WIDTH / 16; k++) {
            Lanes by_hidden = 2 * *(const Lanes *)&room.hidden[n][16 * k] * back[k];
            *(Lanes *)&to_left[16 * k] += by_hidden;
            *(Lanes *)&to_right[16 * k] += by_hidden;
        }
    }
    for (int j = 0; j < P; j++) {
        Lanes sum[WIDTH / 16] = {0};
        for (int n = 0; n < count; n++)
            for (int k = 0; k < WIDTH / 16; k++) sum[k] += room.slope[n][j] * *(const Lanes *)&room.squared[n][16 * k];
        memcpy(grad + (2 * P + j) * WIDTH, sum, sizeof sum);
    }
    return (float)(loss / count);
}

static double norm2(const float *g) {
    double total = 0;
    for (int i = 0; i < SIZE; i += WIDTH) {
        float sum = 0;
        for (int k = 0; k < WIDTH; k++) sum += g[i + k] * g[i + k];
        total += sum;
    }
    return total;
}

/* x <- a x + b (x x') x + c (x x')^2 x, five times: moves the singular values of a P x WIDTH matrix towards 1. */
static void orthogonalise(float *x) {
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    float gram[P][P], factor[P][P];
    Lanes next[P][WIDTH / 16];
    double total = 0;
    for (int i = 0; i < P * WIDTH; i++) total += x[i] * x[i];
    float size = (float)sqrt(total), scale = 1 / (size > 1e-7f ? size : 1e-7f);
    for (int i = 0; i < P * WIDTH; i++) x[i] *= scale;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < P; i++)
            for (int j = 0; j <= i; j++) {
                float sum = 0;
                for (int k = 0; k < WIDTH; k++) sum += x[i * WIDTH + k] * x[j * WIDTH + k];
                gram[i][j] = gram[j][i] = sum;
            }
        for (int i = 0; i < P; i++) {
            for (int j = 0; j < P; j++) factor[i][j] = b * gram[i][j];
            for (int k = 0; k < P; k++)
                for (int j = 0; j < P; j++) factor[i][j] += c * gram[i][k] * gram[k][j];
            factor[i][i] += a;
            for (int k = 0; k < WIDTH / 16; k++) next[i][k] = (Lanes){0};
            for (int j = 0; j < P; j++)
                for (int k = 0; k < WIDTH / 16; k++)
                    next[i][k] += factor[i][j] * *(const Lanes *)&x[j * WIDTH + 16 * k];
        }
        memcpy(x, next, sizeof next);
    }
}

/* Muon with Nesterov's momentum 0.95, for all three matrices; the output's is stored transposed. */
static void muon(const Settings *s, float *w, const float *g, float *m, float *update) {
    const float momentum = 0.95f, shrink = 1 - s->lr * s->decay;
    for (int i = 0; i < SIZE; i++) {
        m[i] += (1 - momentum) * (g[i] - m[i]);
        update[i] = g[i] + momentum * (m[i] - g[i]);
    }
    for (int part = 0; part < 3; part++) {
        float *x = update + part * P * WIDTH, rate = s->lr * (part == 2 ? sqrtf((float)WIDTH / P) : 1);
        orthogonalise(x);
        for (int i = 0; i < P * WIDTH; i++) w[part * P * WIDTH + i] = w[part * P * WIDTH + i] * shrink - rate * x[i];
    }
}

/* Train `w` in place. `rows` gets (validation accuracy, training accuracy, validation loss, training loss, coherence)
   for each evaluation. Returns the number of evaluations, negative if the loss became infinite or NaN. */
int run(const Settings *s, float *w, const int *train, const int *val, const int *draws, float *rows) {
    float *m = calloc(SIZE, 4), *v = calloc(SIZE, 4), *g = malloc(SIZE * 4), *slow = calloc(SIZE, 4);
    float *seen = calloc(SIZE, 4), *mean = malloc(SIZE * 4), *ring = NULL, *fresh = calloc(SIZE, 4);
    float *old = calloc(SIZE, 4); /* AdEMAMix's slow average; Muon's update */
    int size = s->batch ? s->batch : s->train_points, streak = 0, evaluations = 0, bad = 0, taken = 0, right = 0;
    int *left_b = malloc(size * 4), *right_b = malloc(size * 4), *answer_b = malloc(size * 4);
    double loss_sum = 0, square_seen = 0, nadam_product = 1;
    int most = (size > s->val_points ? size : s->val_points) + 8; /* forward reads whole groups of eight */
    Room room = {calloc(most, sizeof *room.hidden), calloc(most, sizeof *room.squared), calloc(most, sizeof *room.slope)};
    if (s->filter == 2) ring = calloc((size_t)s->window * SIZE, 4);
    for (int t = 0; t < s->steps; t++) {
        int correct;
        for (int n = 0; n < size; n++) {
            int i = s->batch ? draws[(size_t)t * size + n] : n;
            left_b[n] = train[i], right_b[n] = train[s->train_points + i], answer_b[n] = train[2 * s->train_points + i];
        }
        loss_sum += pass(w, left_b, right_b, answer_b, size, s->entropy, g, &correct, room);
        right += correct, taken++;
        if (s->clip > 0) { /* torch: coefficient clip / (norm + 1e-6), at most 1 */
            float factor = s->clip / ((float)sqrt(norm2(g)) + 1e-6f);
            if (factor < 1)
                for (int i = 0; i < SIZE; i++) g[i] *= factor;
        }
        for (int i = 0; i < SIZE; i++) seen[i] += (1 - ALPHA_SEEN) * (g[i] - seen[i]);
        square_seen += (1 - ALPHA_SEEN) * (norm2(g) - square_seen);
        float gain = 0;
        if (s->filter == 1) {
            float part = t ? 1 - s->alpha : 1;
            for (int i = 0; i < SIZE; i++) slow[i] += part * (g[i] - slow[i]);
            gain = s->lamb;
        } else if (s->filter == 2) {
            int place = t % s->window;
            float *slot = ring + (size_t)place * SIZE;
            for (int i = 0; i < SIZE; i++) {
                slow[i] += g[i] - slot[i];
                fresh[i] += g[i];
                slot[i] = g[i];
            }
            if (place == s->window - 1) { /* drops the rounding errors of the running total */
                memcpy(slow, fresh, SIZE * 4);
                memset(fresh, 0, SIZE * 4);
            }
            gain = t >= s->window - 1 ? s->lamb / s->window : 0;
        }
        if (t < s->start) gain = 0;
        for (int i = 0; gain && i < SIZE; i++) g[i] += gain * slow[i];
        if (s->optimizer == MUON) {
            muon(s, w, g, m, old);
        } else {
            float shrink = 1 - s->lr * s->decay, by_mean = s->lr / (float)(1 - pow(s->beta1, t + 1)), by_grad = 0;
            float scale = 1 / (float)sqrt(1 - pow(s->beta2, t + 1)), by_old = 0;
            if (s->optimizer == NADAM) { /* torch's schedule of the momentum */
                double now = s->beta1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 1)));
                double then = s->beta1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 2)));
                nadam_product *= now;
                by_grad = (float)(s->lr * (1 - now) / (1 - nadam_product));
                by_mean = (float)(s->lr * then / (1 - nadam_product * then));
            } else if (s->optimizer == ADEMAMIX) {
                by_old = s->lr * s->slow_gain;
                for (int i = 0; i < SIZE; i++) old[i] += (1 - s->slow_beta) * (g[i] - old[i]);
            }
            for (int i = 0; i < SIZE; i++) {
                m[i] += (1 - s->beta1) * (g[i] - m[i]);
                v[i] = s->beta2 * v[i] + (1 - s->beta2) * g[i] * g[i];
                float change = by_grad * g[i] + by_mean * m[i] + by_old * old[i];
                w[i] = w[i] * shrink - change / (sqrtf(v[i]) * scale + s->eps);
            }
        }
        if (s->average > 0) {
            float part = t ? 1 - s->average : 1;
            if (!t) memset(mean, 0, SIZE * 4);
            for (int i = 0; i < SIZE; i++) mean[i] += part * (w[i] - mean[i]);
        }
        if ((t + 1) % s->eval_every && t + 1 < s->steps) continue;
        const int *l = val, *r = val + s->val_points, *z = val + 2 * s->val_points;
        float val_loss = pass(s->average > 0 ? mean : w, l, r, z, s->val_points, s->entropy, NULL, &correct, room);
        float accuracy = (float)correct / s->val_points, train_loss = (float)(loss_sum / taken);
        float row[5] = {accuracy, (float)right / ((float)taken * size), val_loss, train_loss,
                        square_seen > 0 ? (float)(norm2(seen) / square_seen) : 0};
        memcpy(rows + 5 * evaluations++, row, sizeof row);
        right = taken = 0, loss_sum = 0;
        if (!(fabsf(train_loss) <= 3e38f)) {
            bad = 1;
            break;
        }
        streak = accuracy >= s->level ? streak + 1 : 0;
        if (s->hold >= 0 && streak > s->hold) break;
    }
    free(m), free(v), free(g), free(slow), free(seen), free(mean), free(ring), free(fresh), free(old);
    free(room.hidden), free(room.squared), free(room.slope);
    free(left_b), free(right_b), free(answer_b);
    return bad ? -evaluations : evaluations;
}
