// Every card of this project, for tables and tests.
#pragma once

#include "kernels/cpu/cards.h"
#include "kernels/cuda/host/cards.h"
#include "kernels/layouts/cards.h"
#include "kernels/ref/ref.card.h"
