// Everything.
#pragma once

#include "peel/allreduce.h"
#include "peel/buffer.h"
#include "peel/codec.h"
#include "peel/communicator.h"
#include "peel/error.h"
#include "peel/exchange.h"
#include "peel/gradient.h"
#include "peel/grain.h"
#include "peel/inprocess.h"
#include "peel/items.h"
#include "peel/message.h"
#include "peel/plan.h"
#include "peel/report.h"
#include "peel/state.h"
#include "peel/types.h"
