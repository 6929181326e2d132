// Every card of this project, for tables and tests.
#pragma once

#include "kernels/cpu/cpu.card.h"
#include "kernels/foreign/packed.card.h"
#include "kernels/ref/ref.card.h"
