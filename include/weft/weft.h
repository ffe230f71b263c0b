/* The whole public API. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H
#include <weft/am.h>
#include <weft/base.h>
#include <weft/collective.h>
#include <weft/context.h>
#include <weft/endpoint.h>
#include <weft/graph.h>
#include <weft/layout.h>
#include <weft/logger.h>
#include <weft/memory.h>
#include <weft/resource.h>
#include <weft/rma.h>
#include <weft/runtime.h>
#include <weft/stream.h>
#include <weft/tag.h>
#include <weft/team.h>
#include <weft/view.h>
#include <weft/view_operations.h>
#include <weft/worker.h>
#endif
