// Everything.
#pragma once

#include "peel/buffer.h"
#include "peel/codec.h"
#include "peel/error.h"
#include "peel/gradient.h"
#include "peel/grain.h"
#include "peel/message.h"
#include "peel/plan.h"
#include "peel/types.h"
