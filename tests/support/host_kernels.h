// Host versions of the kernels of the device table: plain loops over the layouts that the CUDA kernels read.
#pragma once

#include "kernels/args/experts.h"
#include "kernels/args/operations.h"

namespace moracle::test {

void run_on_host(const ExpertsArgs& args);
void run_on_host(const StreamedExpertsArgs& args);
void run_on_host(const LinearArgs& args);
void run_on_host(const EmbedArgs& args);
void run_on_host(const RmsNormArgs& args);
void run_on_host(const AddArgs& args);
void run_on_host(const AddNormArgs& args);
void run_on_host(const RouteArgs& args);
void run_on_host(const RankArgs& args);

}  // namespace moracle::test
