/* Which kernel serves a layer, and one token through it:  layer MODEL [LAYER] */
#include <moracle/moracle.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(moracle_error* error) {
  fprintf(stderr, "layer: %s\n", error->message);
  moracle_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  moracle_checkpoint* checkpoint = NULL;
  moracle_experts* experts = NULL;
  moracle_error* error = NULL;
  moracle_experts_info info = {0};
  moracle_experts_call call = {0};
  char* decision = NULL;
  float *x, *out, *weights;
  int32_t* ids;
  int64_t i;
  double sum = 0;

  if (argc < 2) {
    fprintf(stderr, "usage: layer MODEL [LAYER]\n");
    return 2;
  }
  if (moracle_checkpoint_open(argv[1], NULL, &checkpoint, &error) != MORACLE_OK) return fail(error);
  if (moracle_experts_open(checkpoint, argc > 2 ? atol(argv[2]) : 0, NULL, &experts, &error) != MORACLE_OK)
    return fail(error);
  moracle_checkpoint_close(checkpoint); /* the layer stays open */

  if (moracle_experts_decision_json(experts, &decision, &error) != MORACLE_OK) return fail(error);
  puts(decision);
  moracle_free(decision);

  info.size = sizeof info;
  if (moracle_experts_describe(experts, &info, &error) != MORACLE_OK) return fail(error);
  x = malloc(sizeof(float) * (size_t)info.hidden);
  out = malloc(sizeof(float) * (size_t)info.hidden);
  ids = malloc(sizeof(int32_t) * (size_t)info.top_k);
  weights = malloc(sizeof(float) * (size_t)info.top_k);
  if (x == NULL || out == NULL || ids == NULL || weights == NULL) return 1;
  for (i = 0; i < info.hidden; ++i) x[i] = i % 2 == 0 ? 0.5F : -0.5F;
  for (i = 0; i < info.top_k; ++i) {
    ids[i] = (int32_t)i;
    weights[i] = 1.0F / (float)info.top_k;
  }
  call.size = sizeof call;
  call.x_dtype = call.out_dtype = call.weights_dtype = MORACLE_F32;
  call.ids_dtype = MORACLE_INT32;
  call.tokens = 1;
  call.top_k = info.top_k;
  call.x = x;
  call.ids = ids;
  call.weights = weights;
  call.out = out;
  if (moracle_experts_run(experts, &call, &error) != MORACLE_OK) return fail(error);
  for (i = 0; i < info.hidden; ++i) sum += (double)out[i] * out[i];
  printf("hidden %lld, experts %lld, |out|^2 = %.6g\n", (long long)info.hidden, (long long)info.experts, sum);
  free(x);
  free(out);
  free(ids);
  free(weights);
  moracle_experts_close(experts);
  return 0;
}
