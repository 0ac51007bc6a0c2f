/* A loop of 1 kHz around a library of `fraxenv export`, against MuJoCo in place of an arm.

   The hand is told to go up by 5 cm, and stays there for the rest. Says how far it came, how long a
   control step takes, and how late the loop woke up.

   usage: close_loop MODEL.mjb [STEPS [fast]], `fast` without waiting for the clock */

#define _POSIX_C_SOURCE 200112L

#include <errno.h>
#include <mujoco/mujoco.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arm.h"

enum { NQ = 7, ACTIONS = 6, CONTROL_STEPS = 20, PERIOD = 1000000 };

static double since(const struct timespec *begin, const struct timespec *end) {
  return 1e6 * (double)(end->tv_sec - begin->tv_sec) + 1e-3 * (double)(end->tv_nsec - begin->tv_nsec);
}

static void advance(struct timespec *time) {
  time->tv_nsec += PERIOD;
  if (time->tv_nsec >= 1000000000) {
    time->tv_nsec -= 1000000000;
    time->tv_sec += 1;
  }
}

static void read_state(const mjData *data, float q[NQ], float v[NQ]) {
  for (int k = 0; k < NQ; k++) {
    q[k] = (float)data->qpos[k];
    v[k] = (float)data->qvel[k];
  }
}

static int shorter(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void report(const char *what, double *times, long count) {
  qsort(times, (size_t)count, sizeof *times, shorter);
  printf("%s: median %.1f us, 99.9 %% %.1f us, worst %.1f us\n", what, times[count / 2],
         times[(long)((double)count * 0.999)], times[count - 1]);
}

int main(int count, char **words) {
  static const float up[ACTIONS] = {0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f};
  static const float still[ACTIONS] = {0.0f};
  static const float posture[NQ] = ARM_POSTURE;
  static const arm_gains gains = ARM_GAINS_EXAMPLE;
  const long steps = count > 2 ? atol(words[2]) : 2000;
  const int fast = count > 3 && strcmp(words[3], "fast") == 0;
  arm_obstacles obstacles = ARM_OBSTACLES_EXAMPLE;
  arm_memory memory;
  arm_report safety;
  arm_hand before, after;
  float q[NQ], v[NQ], tau[NQ], bias[NQ], mass_matrix[NQ * NQ];
  struct timespec next, began, ended;

  if (count < 2 || steps < 1) {
    fprintf(stderr, "usage: close_loop MODEL.mjb [STEPS [fast]]\n");
    return 2;
  }
  if (strcmp(arm_version, ARM_VERSION) != 0) {
    fprintf(stderr, "the library is of version %s, its header of %s\n", arm_version, ARM_VERSION);
    return 2;
  }
  mjModel *model = mj_loadModel(words[1], NULL);
  double *spent = malloc((size_t)steps * sizeof *spent), *late = malloc((size_t)steps * sizeof *late);
  if (model == NULL || model->nq != NQ || spent == NULL || late == NULL) {
    fprintf(stderr, "%s is no model of an arm of seven joints\n", words[1]);
    return 2;
  }
  mjData *data = mj_makeData(model);
  for (int k = 0; k < NQ; k++) data->qpos[k] = posture[k];
  memset(obstacles.active, 0, sizeof obstacles.active);

  read_state(data, q, v);
  arm_begin(q, v, &memory);
  arm_terms(q, v, bias, &before, mass_matrix);
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (long step = 0; step < steps; step++) {
    if (!fast) {
      advance(&next);
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR) continue;
    }
    clock_gettime(CLOCK_MONOTONIC, &began);
    late[step] = since(&next, &began);
    read_state(data, q, v);
    /* An action is a policy's: here some up, and then none. One of 1 is ARM_STEP, in m. */
    if (step % CONTROL_STEPS == 0)
      arm_aim(&memory, q, (double)step / CONTROL_STEPS * ARM_STEP < 0.05 - 1e-6 ? up : still, &memory);
    arm_control(&memory, q, v, &gains, &obstacles, tau, &memory, &safety);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    spent[step] = since(&began, &ended);
    for (int k = 0; k < NQ; k++) data->qfrc_applied[k] = tau[k];
    mj_step(model, data);
  }
  read_state(data, q, v);
  arm_terms(q, v, bias, &after, mass_matrix);
  printf("the hand moved by (%.2f, %.2f, %.2f) mm\n", 1e3 * (after.position[0] - before.position[0]),
         1e3 * (after.position[1] - before.position[1]), 1e3 * (after.position[2] - before.position[2]));
  report("a control step", spent, steps);
  if (!fast) report("woken late by", late, steps);
  free(spent);
  free(late);
  mj_deleteData(data);
  mj_deleteModel(model);
  return 0;
}
