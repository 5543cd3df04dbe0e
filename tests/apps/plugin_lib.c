/* SPDX-License-Identifier: MIT */
/* A plugin that is linked with libibverbs and brings it into a process that has none: see plugin.c.
 */
#include "ways.h"

#undef ibv_reg_mr

void plugin_run(void);
void plugin_run(void)
{
	static const struct calls call = {
		.get_device_list = ibv_get_device_list,
		.free_device_list = ibv_free_device_list,
		.get_device_name = ibv_get_device_name,
		.open_device = ibv_open_device,
		.close_device = ibv_close_device,
		.query_gid = ibv_query_gid,
		.alloc_pd = ibv_alloc_pd,
		.dealloc_pd = ibv_dealloc_pd,
		.reg_mr = ibv_reg_mr,
		.reg_mr_iova2 = ibv_reg_mr_iova2,
		.dereg_mr = ibv_dereg_mr,
		.create_cq = ibv_create_cq,
		.destroy_cq = ibv_destroy_cq,
		.create_srq = ibv_create_srq,
		.destroy_srq = ibv_destroy_srq,
		.create_qp = ibv_create_qp,
		.modify_qp = ibv_modify_qp,
		.destroy_qp = ibv_destroy_qp,
	};

	ways_traffic(&call, 10);
}
