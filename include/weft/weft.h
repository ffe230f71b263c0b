/* All of the public API. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H
#include <weft/am.h>
#include <weft/base.h>
#include <weft/collective.h>
#include <weft/context.h>
#include <weft/endpoint.h>
#include <weft/runtime.h>
#include <weft/tag.h>
#include <weft/team.h>
#include <weft/worker.h>
#endif
