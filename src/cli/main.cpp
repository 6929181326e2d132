#include "cli/program.h"

int main(int argc, char** argv) {
  return moracle::cli::run_program(argc, argv);
}
