// SPDX-License-Identifier: MIT
//
// Makes queue pairs and throws out of the frames that made them, a hundred times over, destructors
// and all. Linked so that libgcc_s comes in by libstdc++ alone; tells which library unwinds.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

// Bound at run time by whoever has it, as in an object that was linked without libgcc_s.
__asm__(".weak _Unwind_Resume");

static unsigned int given_back;

template <typename T, int (*destroy)(T *)> class Owned
{
      public:
	explicit Owned(T *object) : object(object)
	{
		if (!object)
			throw std::runtime_error("a creation failed");
	}
	Owned(const Owned &) = delete;
	Owned &operator=(const Owned &) = delete;
	~Owned()
	{
		given_back += destroy(object) == 0;
	}
	T *object;
};

static ibv_context *open_one()
{
	ibv_device **list = ibv_get_device_list(nullptr);
	const char *name = std::getenv("QPG_DEVICE");
	ibv_context *opened = nullptr;

	for (ibv_device **d = list; d && *d && !opened; d++)
		if (!name || !*name || !std::strcmp(name, ibv_get_device_name(*d)))
			opened = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	return opened;
}

__attribute__((noinline)) static void deep(ibv_pd *pd, ibv_qp_init_attr *init, unsigned int depth)
{
	Owned<ibv_qp, ibv_destroy_qp> qp(ibv_create_qp(pd, init));

	if (!depth)
		throw std::out_of_range("the bottom");
	deep(pd, init, depth - 1);
}

static const char *unwinder()
{
	void *found = dlsym(RTLD_DEFAULT, "_Unwind_RaiseException");
	Dl_info where;

	if (!found || !dladdr(found, &where))
		return "none";
	const char *slash = std::strrchr(where.dli_fname, '/');

	return slash ? slash + 1 : where.dli_fname;
}

int main()
{
	unsigned int caught = 0;

	try {
		Owned<ibv_context, ibv_close_device> context(open_one());
		Owned<ibv_pd, ibv_dealloc_pd> pd(ibv_alloc_pd(context.object));
		Owned<ibv_cq, ibv_destroy_cq> cq(
			ibv_create_cq(context.object, 64, nullptr, nullptr, 0));
		ibv_qp_init_attr init = {};

		init.qp_type = IBV_QPT_RC;
		init.send_cq = init.recv_cq = cq.object;
		init.cap.max_send_wr = init.cap.max_recv_wr = 4;
		init.cap.max_send_sge = init.cap.max_recv_sge = 1;
		for (unsigned int i = 0; i < 100; i++) {
			try {
				deep(pd.object, &init, i % 4);
			} catch (const std::out_of_range &) {
				caught++;
			}
			std::printf("result %u caught, %u given back\n", caught, given_back);
		}
		throw std::runtime_error("the end");
	} catch (const std::runtime_error &error) {
		std::printf("result %s, %u given back\n", error.what(), given_back);
	}
	std::printf("result unwinder %s\n", unwinder());
	return 0;
}
