/* How long exported control steps take, in states that an arm comes to by itself.

   Each scene has obstacles and a posture of its own; actions are drawn anew for each policy step. A
   control step is called once after MuJoCo's step, and once more. All of it is done several times
   over, from the same numbers and seconds apart: what the system interrupts, or slows down for a
   while, is one of a call's times, so that the quickest is what it itself takes.

   usage: exported_step MODEL.mjb SCENES STEPS_OF_A_SCENE */

#define _POSIX_C_SOURCE 200112L

#include <mujoco/mujoco.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "arm.h"

enum { NQ = 7, ACTIONS = 6, CONTROL_STEPS = 20, PASSES = 9 };

typedef struct {
  float posture[NQ];
  arm_obstacles obstacles;
} scene;

static double since(const struct timespec *begin, const struct timespec *end) {
  return 1e6 * (double)(end->tv_sec - begin->tv_sec) + 1e-3 * (double)(end->tv_nsec - begin->tv_nsec);
}

static int shorter(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void report(const char *what, double *times, long count) {
  qsort(times, (size_t)count, sizeof *times, shorter);
  printf("%s: median %.2f us, 99.9 %% %.2f us, 99.99 %% %.2f us, worst %.2f us\n", what,
         times[count / 2], times[(long)((double)count * 0.999)],
         times[(long)((double)count * 0.9999)], times[count - 1]);
}

static float drawn(uint32_t *state) { /* uniformly from -1 to 1; Marsaglia, "Xorshift RNGs" */
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

int main(int count, char **words) {
  static const arm_gains gains = ARM_GAINS_EXAMPLE;
  FILE *file = count == 4 ? fopen(words[2], "rb") : NULL;
  mjModel *model = count == 4 ? mj_loadModel(words[1], NULL) : NULL;
  if (file == NULL || model == NULL || model->nq != NQ) {
    fprintf(stderr, "usage: exported_step MODEL.mjb SCENES STEPS_OF_A_SCENE\n");
    return 2;
  }
  fseek(file, 0, SEEK_END);
  const long scenes = ftell(file) / (long)sizeof(scene), each = atol(words[3]), steps = scenes * each;
  double *first = malloc((size_t)steps * sizeof *first), *again = malloc((size_t)steps * sizeof *again);
  mjData *data = mj_makeData(model);
  if (first == NULL || again == NULL || data == NULL || steps < 1) return 2;
  long intervened = 0, infeasible = 0;
  float least = 1.0f;
  for (int pass = 0; pass < PASSES; pass++) {
    uint32_t random = 1;
    long at = 0;
    rewind(file);
    intervened = infeasible = 0;
    for (long k = 0; k < scenes; k++) {
      scene now;
      arm_memory memory, next;
      arm_report safety;
      float q[NQ], v[NQ], tau[NQ], action[ACTIONS];
      if (fread(&now, sizeof now, 1, file) != 1) return 2;
      mj_resetData(model, data);
      for (int j = 0; j < NQ; j++) data->qpos[j] = now.posture[j];
      for (long step = 0; step < each; step++, at++) {
        for (int j = 0; j < NQ; j++) {
          q[j] = (float)data->qpos[j];
          v[j] = (float)data->qvel[j];
        }
        if (step == 0) arm_begin(q, v, &memory);
        if (step % (10 * CONTROL_STEPS) == 0)
          for (int j = 0; j < ACTIONS; j++) action[j] = drawn(&random);
        if (step % CONTROL_STEPS == 0) arm_aim(&memory, q, action, &memory);
        for (int warm = 0; warm < 2; warm++) {
          struct timespec began, ended;
          clock_gettime(CLOCK_MONOTONIC, &began);
          arm_control(&memory, q, v, &gains, &now.obstacles, tau, &next, &safety);
          clock_gettime(CLOCK_MONOTONIC, &ended);
          const double spent = since(&began, &ended);
          double *least_yet = (warm ? again : first) + at;
          if (pass == 0 || spent < *least_yet) *least_yet = spent;
        }
        memory = next;
        intervened += safety.intervened;
        infeasible += !safety.feasible;
        if (safety.min_barrier < least) least = safety.min_barrier;
        for (int j = 0; j < NQ; j++) data->qfrc_applied[j] = tau[j];
        mj_step(model, data);
      }
    }
  }
  printf("%ld control steps in %ld scenes, %ld of them changed by the filter, %ld infeasible, least "
         "barrier %.4f\n", steps, scenes, intervened, infeasible, (double)least);
  report("called after MuJoCo's step", first, steps);
  report("called again", again, steps);
  fclose(file);
  free(first);
  free(again);
  mj_deleteData(data);
  mj_deleteModel(model);
  return 0;
}
