# Builds Weft with a C compiler and GNU make, without Bazel. tools/build calls it and documents its settings.
# Targets: lib, programs, examples, tests, python. All output lies under $(OUT).
SHELL := /bin/bash
OUT ?= out/build
CC ?= cc
CXX ?= c++
CFLAGS ?= -O2 -g
LDFLAGS ?=
THREADS ?= any
# A cross compiler's finds the libraries of its machine: PKG_CONFIG=aarch64-linux-gnu-pkg-config.
PKG_CONFIG ?= pkg-config
NVCC ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
RDMA ?= $(shell $(PKG_CONFIG) --exists libibverbs librdmacm 2>/dev/null && echo yes)

ROOMS := fsm base reactor transports endpoints collectives resource runtime
LIBRARY := $(shell find $(ROOMS) -name '*.c' -not -path 'fsm/explore/*' $(if $(filter yes,$(RDMA)),,-not -path 'transports/rdma/*'))

fixed_any :=
fixed_single := -DWEFT_THREADS_FIXED=WEFT_THREAD_SINGLE
fixed_serialized := -DWEFT_THREADS_FIXED=WEFT_THREAD_SERIALIZED

flags_of = $(shell $(PKG_CONFIG) --$(1) $(2) 2>/dev/null)
# Debian and Fedora have ev.h where the compiler looks, Fedora before 21 in a folder.
EV := $(or $(call flags_of,cflags,libev),$(patsubst %/ev.h,-I%,$(wildcard /usr/include/libev/ev.h)))
INSIDE := -std=gnu11 -D_GNU_SOURCE= -fvisibility=hidden -fPIC -I. -Iinclude $(fixed_$(THREADS)) \
    $(if $(filter yes,$(RDMA)),-DWEFT_HAVE_RDMA) $(call flags_of,cflags,talloc libcrypto) $(EV) \
    $(if $(filter yes,$(RDMA)),$(call flags_of,cflags,libibverbs librdmacm))
LIBS := $(or $(call flags_of,libs,talloc libcrypto),-ltalloc -lcrypto) -lev -lm -lpthread -ldl
COMPILE = $(CC) $(INSIDE) $(CFLAGS) $(CPPFLAGS)

# A change of compiler or flags builds everything anew; so does another name of the folder, by which objects name their headers.
FLAGS := $(OUT)/flags
built_by = $(OUT) $(COMPILE) $(LDFLAGS) $(CXX) $(NVCC)
$(shell mkdir -p $(OUT); printf '%s\n' '$(built_by)' | cmp -s - $(FLAGS) || printf '%s\n' '$(built_by)' >$(FLAGS))

objects = $(patsubst %.c,$(OUT)/obj/%.o,$(1))
# The C files of a folder and of those below it, without the main files that end by one of these.
shared_in = $(filter-out $(foreach end,$(2),%$(end).c),$(shell find $(1) -name '*.c'))

.PHONY: lib programs examples tests python
.SECONDARY:
.DELETE_ON_ERROR:

# ---- the library

# The kernels for device memory, as an array; empty without a CUDA compiler.
CUDA_IMAGE := $(OUT)/obj/transports/cuda/kernels/image
$(CUDA_IMAGE).c: tools/cuda_image $(wildcard transports/cuda/kernels/*) base/half.h $(FLAGS)
	@mkdir -p $(@D)
	tools/cuda_image $@ '$(NVCC)'
$(CUDA_IMAGE).o: $(CUDA_IMAGE).c $(FLAGS)
	$(COMPILE) -c $< -o $@

lib: $(OUT)/libweft.so
$(OUT)/libweft.a: $(call objects,$(LIBRARY)) $(CUDA_IMAGE).o
	@rm -f $@; ar crs $@ $^
$(OUT)/libweft.so: $(call objects,$(LIBRARY)) $(CUDA_IMAGE).o weft.map
	$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,libweft.so.0 -Wl,--version-script=weft.map -Wl,--no-undefined -o $@ $(filter %.o,$^) $(LIBS)
	@ln -sf libweft.so $(OUT)/libweft.so.0
WHOLE = -Wl,--whole-archive $(OUT)/libweft.a -Wl,--no-whole-archive

# ---- programs: tools/weft_run_main.c is $(OUT)/tools/weft-run, examples/echo_libev.c is $(OUT)/examples/echo-libev

PROGRAMS := $(wildcard tools/*_main.c)
# The explorer and the printers of machines: for tools and tests, not for the library.
EXPLORE := $(call objects,$(wildcard fsm/explore/*.c))
TOOLS_SHARED := $(call objects,$(call shared_in,tools,_main))
dashed = $(subst _,-,$(1))
# Not those of tools for fsm-pictures, which draws each machine that is linked in.
program_of = $(OUT)/tools/$(call dashed,$(patsubst tools/%_main.c,%,$(1)))
define program
$(call program_of,$(1)): $(call objects,$(1)) $(if $(filter tools/fsm_pictures_main.c,$(1)),,$(TOOLS_SHARED)) $(EXPLORE) $(OUT)/libweft.a
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(WHOLE) $(LIBS)
programs: $(call program_of,$(1))
endef
$(foreach main,$(PROGRAMS),$(eval $(call program,$(main))))

# One that needs libuv is built where that is.
EXAMPLES := $(if $(call flags_of,libs,libuv),$(wildcard examples/*.c),$(filter-out %_libuv.c,$(wildcard examples/*.c)))
example_of = $(OUT)/examples/$(call dashed,$(patsubst examples/%.c,%,$(1)))
define example
$(call example_of,$(1)): $(call objects,$(1)) $(OUT)/libweft.a
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) $$(WHOLE) $(LIBS) $(if $(filter %_libuv.c,$(1)),$(call flags_of,libs,libuv)) \
	    $(if $(filter %_verbs.c,$(1)),$(if $(filter yes,$(RDMA)),$(call flags_of,libs,libibverbs)))
examples: $(call example_of,$(1))
endef
$(foreach main,$(EXAMPLES),$(eval $(call example,$(main))))
# In C++17, by the public headers alone; where there is no C++ compiler they are left out.
define example_cpp
$(OUT)/examples/$(call dashed,$(patsubst examples/%.cpp,%,$(1))): $(1) $(wildcard include/weft/*.h include/weft/*.hpp) $(OUT)/libweft.a
	@mkdir -p $$(@D)
	$(CXX) -std=c++17 -Iinclude $(CFLAGS) $(LDFLAGS) -o $$@ $(1) $$(WHOLE) $(LIBS)
examples: $(OUT)/examples/$(call dashed,$(patsubst examples/%.cpp,%,$(1)))
endef
$(foreach main,$(if $(shell command -v $(CXX)),$(wildcard examples/*.cpp)),$(eval $(call example_cpp,$(main))))

# With device code; where there is no CUDA compiler it is left out.
define example_cuda
$(OUT)/examples/$(call dashed,$(patsubst examples/%.cu,%,$(1))): $(1) $(wildcard include/weft/*.h) $(OUT)/libweft.so
	@mkdir -p $$(@D)
	'$(NVCC)' -std=c++17 -Iinclude -O2 -arch=compute_80 -o $$@ $(1) $(OUT)/libweft.so -Xlinker -rpath -Xlinker '$$$$ORIGIN/..'
examples: $(OUT)/examples/$(call dashed,$(patsubst examples/%.cu,%,$(1)))
endef
$(foreach main,$(if $(NVCC),$(wildcard examples/*.cu)),$(eval $(call example_cuda,$(main))))

# ---- integrations: by the public headers alone

REDIS := $(OUT)/integrations/redis
REDIS_CLIENT := integrations/redis/cli_main.c integrations/redis/weft_redis.c
$(REDIS)/weft_redis.so: $(call objects,$(filter-out $(REDIS_CLIENT),$(wildcard integrations/redis/*.c))) $(OUT)/libweft.a
	@mkdir -p $(@D)
	$(CC) -shared $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(WHOLE) $(LIBS)
$(REDIS)/weft-redis-cli: $(call objects,$(REDIS_CLIENT)) $(OUT)/libweft.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(WHOLE) $(LIBS)
programs: $(REDIS)/weft_redis.so $(REDIS)/weft-redis-cli

# ---- tests: tests/messages/am_test.c is $(OUT)/tests/messages/am_test, with the other C files of its folder

# What a test in a host's loop needs, by the last word of its name; without it the test is not built.
hosts := uv=libuv glib=glib-2.0 sdevent=libsystemd event=libevent_core
host_of = $(strip $(foreach host,$(hosts),$(if $(filter %_$(firstword $(subst =, ,$(host)))_test.c,$(1)),$(lastword $(subst =, ,$(host))))))
lacks = $(if $(call host_of,$(1)),$(if $(call flags_of,libs,$(call host_of,$(1))),,lacks))
TESTS := $(foreach source,$(wildcard tests/*/*_test.c),$(if $(call lacks,$(source)),,$(source)))
beside = $(call objects,$(filter-out %_test.c %_fuzz.c %_main.c,$(wildcard $(dir $(1))*.c $(dir $(1))*_library/*.c)))
needs_tools := tests/sim/regressions_test.c tests/sim/exposed_test.c tests/tools/parts_test.c tests/tools/serve_test.c
define test
$(patsubst %.c,$(OUT)/%,$(1)): $(call objects,$(1)) $(call beside,$(1)) $(EXPLORE) $(OUT)/libweft.a \
    $(if $(filter $(1),$(needs_tools)),$(TOOLS_SHARED))
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$(filter %.o,$$^) $(if $(call host_of,$(1)),$(call flags_of,libs,$(call host_of,$(1)))) \
	    $$(WHOLE) $(LIBS)
tests: $(patsubst %.c,$(OUT)/%,$(1))
endef
$(foreach source,$(TESTS),$(eval $(call test,$(source))))

# A double of the CUDA driver, which tests load. With a C++ compiler it runs the kernels, on the processor.
CUDA_DOUBLE := $(OUT)/tests/cuda/driver_double/libcuda.so.1
CUDA_ON_HOST := $(if $(shell command -v $(CXX)),$(OUT)/tests/cuda/driver_double/kernels.o)
$(OUT)/tests/cuda/driver_double/kernels.o: tests/cuda/driver_double/kernels.cpp tests/cuda/driver_double.h tests/cuda/driver_double/double.h $(wildcard transports/cuda/kernels/*) base/half.h $(FLAGS)
	@mkdir -p $(@D)
	$(CXX) -std=gnu++17 -fPIC -I. $(CFLAGS) -ffp-contract=off -fno-exceptions -Wno-unknown-pragmas -c $< -o $@
$(CUDA_DOUBLE): $(wildcard tests/cuda/driver_double/*.[ch]) tests/cuda/driver_double.h $(CUDA_ON_HOST) $(FLAGS)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -shared -fPIC -I. $(CFLAGS) $(LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $(filter %.c,$^) $(CUDA_ON_HOST) -lpthread
tests: $(CUDA_DOUBLE)

# ---- the package for Python: $(OUT)/python, where PYTHONPATH points; the library is inside of its extension

PYTHON ?= /usr/bin/python3
python_says = $(shell $(PYTHON) -c 'import sysconfig as s; $(1)' 2>/dev/null)
# The stable ABI of 3.11, but for builds without the global lock, which have none.
FREE_THREADED = $(call python_says,print(s.get_config_var("Py_GIL_DISABLED") or ""))
EXTENSION = $(OUT)/python/weft/_core$(if $(filter 1,$(FREE_THREADED)),$(call python_says,print(s.get_config_var("EXT_SUFFIX"))),.abi3.so)
PYTHON_OBJECTS := $(call objects,$(wildcard python/src/*.c))
PYTHON_FLAGS = -isystem $(call python_says,print(s.get_path("include"))) $(if $(filter 1,$(FREE_THREADED)),,-DPy_LIMITED_API=0x030b0000)
python: $(OUT)/python/flags $(PYTHON_OBJECTS) $(OUT)/libweft.a python/core.map
	@rm -rf $(OUT)/python/weft; mkdir -p $(OUT)/python; cp -r python/weft $(OUT)/python/
	@$(PYTHON) python/dist_info.py $(OUT)/python
	$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,--version-script=python/core.map -o $(EXTENSION) $(PYTHON_OBJECTS) $(WHOLE) $(LIBS)
$(PYTHON_OBJECTS): CPPFLAGS += $(PYTHON_FLAGS)
$(PYTHON_OBJECTS): $(OUT)/python/flags
$(OUT)/python/flags: FORCE
	@mkdir -p $(@D); echo '$(PYTHON) $(PYTHON_FLAGS)' | cmp -s - $@ || echo '$(PYTHON) $(PYTHON_FLAGS)' >$@
FORCE:

# ---- objects, and what each includes

$(OUT)/obj/%_uv_test.o $(OUT)/obj/%_libuv.o: CPPFLAGS += $(call flags_of,cflags,libuv)
$(OUT)/obj/%_glib_test.o: CPPFLAGS += $(call flags_of,cflags,glib-2.0)
$(OUT)/obj/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(COMPILE) -MMD -MP -MT $@ -c $< -o $@
-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
