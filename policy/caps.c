/* SPDX-License-Identifier: MIT */
/* Names for the numbers of caps.h. Touches nothing. */
#include "caps.h"

const char *qp_type_name(unsigned int type)
{
	switch (type) {
	case QP_TYPE_RC:
		return "RC";
	case QP_TYPE_UC:
		return "UC";
	case QP_TYPE_UD:
		return "UD";
	case QP_TYPE_RAW_PACKET:
		return "RAW_PACKET";
	case QP_TYPE_XRC_SEND:
		return "XRC_SEND";
	case QP_TYPE_XRC_RECV:
		return "XRC_RECV";
	case QP_TYPE_DRIVER:
		return "DRIVER";
	default:
		return "other";
	}
}
